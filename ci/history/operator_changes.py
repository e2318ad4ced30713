"""Changes of what calls do in torch: bytes, memory and waits, counted without timing. Pure."""

from collections.abc import Iterator
from itertools import pairwise

from roofwatch.ci.causes.odds import Odds, weigh
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.static.analyses import is_other_cost
from roofwatch.model.history import Cause, ChangePoint, Series, SeriesPoint
from roofwatch.model.verdict import Status, Verdict

_CODE_ODDS = 99.0
"""Counting is deterministic, so the code that runs in torch changed."""


def operator_findings(series: Series) -> Iterator[TrendFinding]:
    """Find each change of a count from one commit to the next: one run of each shows it."""
    # several runs of one commit count the same, so the last one stands for all
    by_commit = {point.commit: point for point in series.points if point.value is not None}
    for base, head in pairwise(sorted(by_commit)):
        change = _change(series, by_commit[base], by_commit[head])
        if change is not None:
            suspects = weigh({Cause.CODE: Odds(_CODE_ODDS, "counted without running the kernel")})
            yield TrendFinding.at_commit(
                change=change,
                status=Status.CONFIRMED,
                suspects=suspects,
            )


def _change(
    series: Series,
    base: SeriesPoint,
    head: SeriesPoint,
) -> ChangePoint | None:
    assert base.value is not None
    assert head.value is not None
    key = series.key
    if not is_other_cost(key.metric, base.value, head.value):
        return None
    definition = key.definition
    is_worse = definition.is_worse(base=base.value, head=head.value)
    base_text = definition.format(base.value)
    head_text = definition.format(head.value)
    sides = f"{base_text} to {head_text}"
    return ChangePoint(
        series=key,
        commit=head.commit,
        previous_commit=base.commit,
        verdict=Verdict.of_change(is_worse=is_worse),
        before=base.value,
        after=head.value,
        evidence=f"{definition.title} {sides}",
    )
