"""One series by commit, and its steps where each run says one number: errors, memory, the time of the host. Pure.

No pair of records confirms such a step. Memory is what torch's allocator counts, and a check draws the same inputs
every time: where nothing changed, nothing moves at all, so a level whose runs all say the same number is certain. The
host's time seldom says one number, so a step of it is a suspicion; and it accuses neither the kernel on the device nor
its machine code.

An error of exactly 0 has no logarithm: it counts as half of the smallest other one, so that the loss of exactness is a
step and equal errors are none.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.changes import error_floor
from roofwatch.ci.causes.explain import NEAR_RUNS, ChangeContext, explain_error, explain_host, explain_memory
from roofwatch.ci.changepoint import detect
from roofwatch.ci.changepoint.segmentation import MIN_SEGMENT
from roofwatch.ci.history.commit_changes import CompiledHistory, points_by_commit
from roofwatch.ci.history.finding import Status, TrendFinding, windows_between
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import ChangePoint, CommitRef, Series, SeriesKey, SeriesPoint, Suspect, Verdict

_SURE_RUNS = 2
"""Runs on either side that must say the same number."""
Values = Sequence[float] | NDArray[np.float64]


# --- one series by commit


@dataclass(frozen=True)
class Timeline:
    """The points of one series that have a value, by one timer and cache state: of two, numbers do not compare."""

    key: SeriesKey
    points: Mapping[CommitRef, Sequence[SeriesPoint]]
    """Commits in the order of the branch."""

    @cached_property
    def commits(self) -> list[CommitRef]:
        return list(self.points)

    @cached_property
    def values(self) -> list[float]:
        """The median of each commit's runs."""
        return [statistics.median(run.value for run in runs if run.value is not None) for runs in self.points.values()]

    def runs(self, first: int, last: int) -> list[SeriesPoint]:
        """Of the commits at positions `first` to `last`, this one left out."""
        return [run for commit in self.commits[max(first, 0) : last] for run in self.points[commit]]


def timelines(series: Series) -> list[Timeline]:
    """Take a series apart by timer and cache state; what gave the newest value comes first."""
    timed: dict[str, list[SeriesPoint]] = defaultdict(list)
    for point in reversed(series.points):
        if point.value is not None:
            timed[point.timing].append(point)
    return [Timeline(series.key, points_by_commit(reversed(points))) for points in timed.values()]


def once_per_commit(by_timeline: Iterable[Iterable[TrendFinding]]) -> Iterator[TrendFinding]:
    """What two ways of timing show at one commit is told once, by the newer one."""
    told: set[CommitRef] = set()
    for findings in map(list, by_timeline):
        yield from (finding for finding in findings if finding.change.commit not in told)
        told.update(finding.change.commit for finding in findings)


# --- metrics


@dataclass(frozen=True)
class _Kind:
    """How one metric is judged."""

    threshold: Callable[[Thresholds], float]
    explain: Callable[[ChangeContext], tuple[Suspect, ...]]
    least: float | None = None
    """What counts as no more than nothing; half of the least value above 0 if None."""


ERROR = "rmse_ratio"
"""The error that is judged; the largest error of an element rests on one element, and jumps by itself."""
_KINDS: Mapping[str, _Kind] = {
    # below the clocks that read it
    "host_ns": _Kind(lambda limits: limits.host_relative_change, explain_host, 10.0),
    # torch's smallest block
    "peak_allocated_bytes": _Kind(lambda limits: limits.memory_relative_change, explain_memory, 512.0),
    ERROR: _Kind(lambda limits: limits.error_relative_change, explain_error),
}
VALUE_METRICS = frozenset(_KINDS)
SECONDARY_METRICS = ("host_ns", "peak_allocated_bytes")
"""What is measured beside a time, by each timer and cache state."""


def threshold_of(metric: str, thresholds: Thresholds) -> float:
    """Smallest change of a metric that is worth reporting in a history."""
    return _KINDS[metric].threshold(thresholds) if metric in _KINDS else thresholds.trend_relative_change


# --- steps


def value_findings(series: Series, compiled: CompiledHistory, thresholds: Thresholds) -> Iterator[TrendFinding]:
    """Every step of a series of one of `VALUE_METRICS`."""
    return once_per_commit(_findings(line, compiled, thresholds) for line in timelines(series))


def _findings(line: Timeline, compiled: CompiledHistory, thresholds: Thresholds) -> Iterator[TrendFinding]:
    steps = find_value_steps(line.key, line.values, thresholds)
    edges = [0, *(step.index for step in steps), len(line.commits)]
    for step, start, end in zip(steps, edges, edges[2:], strict=False):
        yield _finding(line, step, start, end, compiled)


def _finding(line: Timeline, step: detect.Step, start: int, end: int, compiled: CompiledHistory) -> TrendFinding:
    before, after = line.runs(start, step.index)[-NEAR_RUNS:], line.runs(step.index, end)[:NEAR_RUNS]
    is_exact = _says_one_number(before) and _says_one_number(after)
    commit, previous = line.commits[step.index], line.commits[step.index - 1]
    is_worse = line.key.definition.is_worse(base=step.before, head=step.after)
    verdict = Verdict.REGRESSED if is_worse else Verdict.IMPROVED
    places = (step.index,) if is_exact else step.candidates
    suspects = _KINDS[line.key.metric].explain(
        ChangeContext(
            before=before,
            after=after,
            log_change=_log_ratio(step.before, step.after),
            candidates=frozenset(line.commits[place] for place in places),
            code=compiled.code_change(line.key, previous, commit, verdict),
        )
    )
    change = ChangePoint(
        series=line.key,
        commit=commit,
        previous_commit=previous,
        verdict=verdict,
        before=step.before,
        after=step.after,
        evidence=_sentence(line.key, step, is_exact=is_exact),
    )
    if is_exact:
        return TrendFinding.at_commit(change, Status.CONFIRMED, suspects)
    window, reach = windows_between(line.commits, min(places), max(places))
    return TrendFinding(change, Status.UNCONFIRMED, suspects, window, reach)


def _sentence(key: SeriesKey, step: detect.Step, *, is_exact: bool) -> str:
    metric = key.definition
    relative = f" ({step.after / step.before - 1:+.0%})" if step.before > 0 else ""
    sure = "the same in every run on either side" if is_exact else f"{step.standard_errors:.1f} standard errors"
    return (
        f"{metric.title} {metric.format(step.before)} to {metric.format(step.after)}{relative}, "
        f"{step.count_before} commits before and {step.count_after} after, {sure}"
    )


def _log_ratio(before: float, after: float) -> float:
    """ln(after / before), infinite where one of the two is 0."""
    if before > 0 and after > 0:
        return math.log(after / before)
    return math.inf if after > before else -math.inf


def _says_one_number(runs: Sequence[SeriesPoint]) -> bool:
    return len(runs) >= _SURE_RUNS and len({point.value for point in runs}) == 1


def find_value_steps(key: SeriesKey, values: Values, thresholds: Thresholds) -> list[detect.Step]:
    """Steps of values that may be zero; `before` and `after` are the values as measured.

    Args:
        key: Of the series; its metric is one of `VALUE_METRICS`.
        values: A commit each, 0 or above.
        thresholds: What is worth reporting.
    """
    kind = _KINDS[key.metric]
    steps = _steps(np.asarray(values, dtype=np.float64), kind.threshold(thresholds), kind.least)
    if key.metric != ERROR:
        return steps
    floor = error_floor(key.case_id)
    # what was exact all the time and no longer is, such as a copy, lost something however small
    return [step for step in steps if not step.before or max(step.before, step.after) > floor]


def _steps(values: NDArray[np.float64], min_relative_change: float, least: float | None) -> list[detect.Step]:
    positive = values[values > 0]
    if not len(positive):
        return []
    floored = np.where(values > 0, values, float(positive.min()) / 2) if least is None else np.maximum(values, least)
    if float(floored.max()) < float(floored.min()) * (1 + min_relative_change):
        return []  # medians of levels lie within the values
    steps = detect.find_change_points(floored, min_relative_change=min_relative_change)
    newest = _newest_exact_step(floored, steps[-1].index if steps else 0, min_relative_change)
    if newest is not None:
        steps = [*steps[:-1], *(replace(step, count_after=newest.count_before) for step in steps[-1:]), newest]
    edges = [0, *(step.index for step in steps), len(values)]
    return [
        replace(
            step, before=float(np.median(values[start : step.index])), after=float(np.median(values[step.index : end]))
        )
        for step, start, end in zip(steps, edges, edges[2:], strict=False)
    ]


def _newest_exact_step(values: NDArray[np.float64], begins: int, min_relative_change: float) -> detect.Step | None:
    """The step to a number that the newest values all say and none said before, from a level of one number.

    The detector waits at the end of a long series for as many values as a spell of a busy machine may last. Of what is
    counted, or computed from the same inputs, no machine makes a spell: the shortest level is enough.

    Args:
        values: A commit each, above 0.
        begins: Where the newest level begins that the detector has found.
        min_relative_change: Smaller ones are not worth reporting.
    """
    others = np.flatnonzero(values != values[-1])
    index = int(others[-1]) + 1 if len(others) else 0
    old = values[begins:index]
    count = len(values) - index
    if min(count, len(old)) < MIN_SEGMENT or np.any(old != old[0]) or np.any(values[:index] == values[-1]):
        return None
    if abs(math.log(values[-1] / old[0])) < math.log1p(min_relative_change):
        return None
    before, after = float(old[0]), float(values[-1])
    return detect.Step(index, before, after, len(old), count, math.inf, candidates=(index,))
