"""Change points of a series from its levels, and the words about them. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofwatch.ci.ab.clock import clock_step
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.history.steps import TIME, Timeline
from roofwatch.model.history import ChangePoint, SeriesPoint
from roofwatch.model.metrics import metric
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict


def make_change(
    line: Timeline, index: int, before: float, after: float, evidence: str, **further: Any
) -> ChangePoint:
    is_worse = line.key.definition.is_worse(base=before, head=after)
    return ChangePoint(
        series=line.key,
        commit=line.commits[index],
        previous_commit=line.commits[index - 1],
        verdict=Verdict.of_change(is_worse=is_worse),
        before=before,
        after=after,
        evidence=evidence,
        **further,
    )


def clock_checked(
    change: ChangePoint,
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
    log_change: float,
) -> ChangePoint:
    """The change; inconclusive if the clock explains it."""
    step = clock_step(before, after, log_change)
    if step is None or not step.is_clock_move(min_relative_change=THRESHOLDS.trend_relative_change):
        return change
    evidence = f"{change.evidence}; {step.in_words()}"
    return replace(
        change,
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.CLOCK_CHANGED,
        evidence=evidence,
    )


def describe_counts(step: Step) -> str:
    return f"{step.count_before} commits before and {step.count_after} after"


def levels_in_words(before: float, after: float) -> str:
    """`1.00 ms to 1.10 ms (+10.0%)`, of times in ns."""
    time = metric(TIME)
    relative_change = after / before - 1
    levels = f"{time.format(before)} to {time.format(after)}"
    return f"{levels} ({relative_change:+.1%})"
