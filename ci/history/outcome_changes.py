"""Outcomes of a history: what began to fail, and what works again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from roofwatch.ci.causes.explain import explain_outcome
from roofwatch.ci.history.trend_finding import Status, TrendFinding, window_of
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.values import ChangePoint, CommitRef, Series, SeriesKey, SeriesPoint, Verdict

OUTCOME_METRICS = frozenset({"median_ns", "rmse_ratio"})
"""One of each kind of check: all other metrics of it fail together."""

_MACHINE_DEPENDENT = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID})
"""Failures that the machine can cause alone: believed when two runs agree."""
_MAX_MESSAGE = 200


def outcome_findings(series: Series, by_commit: dict[CommitRef, list[SeriesPoint]]) -> Iterator[TrendFinding]:
    """Every change from working to failing and back.

    Args:
        series: Of one of `OUTCOME_METRICS`.
        by_commit: Its points, commits in order.
    """
    if all(point.outcome is Outcome.OK for point in series.points):
        return
    ends = [(commit, _outcome_of(points)) for commit, points in by_commit.items()]
    for position, ((previous, before), (commit, after)) in enumerate(pairwise(ends), start=1):
        if (before.outcome is Outcome.OK) == (after.outcome is Outcome.OK):
            continue
        is_broken = after.outcome is not Outcome.OK
        failing = after if is_broken else before
        # the run of failing commits that this change begins or ends
        spell = ends[position:] if is_broken else ends[:position][::-1]
        failing_runs = 0
        for other, point in spell:
            if point.outcome is Outcome.OK:
                break
            failing_runs += len(by_commit[other])
        is_sure = failing.outcome not in _MACHINE_DEPENDENT or failing_runs >= 2
        change = ChangePoint(
            series=series.key,
            commit=commit,
            previous_commit=previous,
            verdict=Verdict.REGRESSED if is_broken else Verdict.IMPROVED,
            before=before.value,
            after=after.value,
            evidence=_sentence(series.key, before, after),
        )
        yield TrendFinding(
            change=change,
            status=Status.CONFIRMED if is_sure else Status.UNCONFIRMED,
            suspects=explain_outcome(
                [before], [after], f"it {'worked' if is_broken else 'failed'} at the commit before"
            ),
            window=window_of(change),
            reach=window_of(change),
        )


def _outcome_of(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """A commit works if any of its runs did; else how the last one ended."""
    return next((point for point in points if point.outcome is Outcome.OK), points[-1])


def _sentence(key: SeriesKey, before: SeriesPoint, after: SeriesPoint) -> str:
    what = "accuracy" if key.definition.layer is Layer.ACCURACY else "measurement"
    return f"{what} was {before.outcome}, is {after.outcome}{in_brackets(after.message)}"


def in_brackets(message: str | None) -> str:
    """What a failure said, on one line and short enough for a sentence."""
    if not message:
        return ""
    line = " ".join(message.split())
    return f" ({line[:_MAX_MESSAGE]}…)" if len(line) > _MAX_MESSAGE else f" ({line})"
