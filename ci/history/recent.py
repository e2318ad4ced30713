"""What single runs say against the noise of the newest runs: changes too new to judge. Pure.

The noise of a series is the spread of the differences between neighbouring runs, which a step or a
drift hardly changes (von Neumann et al. 1941), by the median absolute deviation. It includes what
differs from job to job, which the samples of one run do not show.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.ab.decisions import Decisions
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.ci.changepoint.segmentation import MIN_SEGMENT
from roofwatch.ci.history.steps import TIME
from roofwatch.ci.messages import count_of
from roofwatch.model.history import CommitRef, Regression, SeriesKey
from roofwatch.model.library import is_library
from roofwatch.model.metrics import Better
from roofwatch.model.stored_results import RecentRuns, RecentSeries
from roofwatch.model.verdict import THRESHOLDS

_MIN_RUNS = 8
"""Runs from which the noise of a series is known."""
RUNS_FOR_A_VERDICT = 5
"""Runs after which the history judges a change at the latest."""
_FEWEST = 3
"""Values from which a change is possible: two have no scatter."""
# without a known noise, less may be the noise
_CLEAR_GAP = math.log(1.25)
_GAPS = 3.0
"""Without a known noise, a gap between two levels counts from this and from so many scatters."""
_ERRORS_OF_ONE = 6.0
_ERRORS_OF_MORE = 4.0
"""Standard deviations that a single run, or each of several, must lie off."""


@dataclass(frozen=True)
class Spread:
    """How much a time differs from run to run."""

    deviation: float
    """Standard deviation of the log time of a run."""
    run_count: int

    @classmethod
    def of(cls, medians_ns: Sequence[float]) -> "Spread | None":
        """Estimate it; None for fewer than 8 runs."""
        if len(medians_ns) < _MIN_RUNS:
            return None
        logs = [math.log(value) for value in medians_ns]
        steps = [abs(after - before) for before, after in pairwise(logs)]
        of_difference = MAD_TO_DEVIATION * statistics.median(steps)
        # a difference has the noise of two values
        return cls(of_difference / math.sqrt(2), len(logs))


@dataclass(frozen=True)
class HistoryNoise:
    """The noise of one runner class, from its newest runs."""

    deviation: float
    """Median over its series, as a fraction."""
    series_count: int
    """Series that the noise was estimated from."""
    run_count: int


def noise_from_history(runners: Iterable[RecentRuns]) -> dict[str, HistoryNoise]:
    """Estimate the noise of each runner class that has enough runs."""
    noise: dict[str, HistoryNoise] = {}
    for runner in runners:
        all_spreads = [Spread.of(series.values) for series in runner.series]
        deviations = [spread.deviation for spread in all_spreads if spread is not None]
        # one number for the class: its machine makes the noise of all its series
        if deviations:
            noise[runner.runner_class] = HistoryNoise(
                deviation=math.expm1(statistics.median(deviations)),
                series_count=len(deviations),
                run_count=len(runner.commits),
            )
    return noise


# --- changes too new to judge


@dataclass(frozen=True)
class KernelSuspicion:
    """Series of one kernel on one runner class whose newest values left their level: not a verdict,
    and what gives one.
    """

    kernel: str
    runner_class: str
    relative_change: float
    """Median over the series."""
    is_worse: bool
    is_imported: bool
    """Whether another tool measured it, so that no pair can decide it."""
    series_count: int
    run_count: int
    """Newest runs that show it."""
    count_before: int
    """Runs before it."""
    base: CommitRef
    """Of the last run of the old level."""
    head: CommitRef
    """Of the newest run."""

    @property
    def claim(self) -> str:
        """What may be claimed of it: no verdict, and what gives one."""
        values = count_of(self.run_count, "value")
        change = f"{self.relative_change:+,.0%}".replace("%", " %")
        more = []
        if self.run_count < RUNS_FOR_A_VERDICT:
            more.append(f"{RUNS_FOR_A_VERDICT - self.run_count} more")
        if self.count_before < MIN_SEGMENT:
            more.append(f"{MIN_SEGMENT - self.count_before} more of earlier commits")
        # nothing here can measure a pair of another tool's values
        decided_by = []
        if not self.is_imported:
            decided_by = ["a pair"]
        if more:
            decided_by.append(" and ".join(more))
        return (
            f"undecided: {values} since a possible change of {change}; judged after "
            f"{' or '.join(decided_by) or 'the next analysis'}"
        )


def possible_changes(
    runners: Iterable[RecentRuns],
    regressions: Iterable[Regression],
) -> list[KernelSuspicion]:
    """Find times that the newest runs show off their level, before the history can judge them; the
    largest first.

    Args:
        runners: The newest runs of each runner class.
        regressions: What was judged: its series are left out from the commit of their change on.

    What a pair has decided is no possible change any more; later values may be one.
    """
    judged = _last_judged(regressions)
    by_cause: dict[_CommonCause, list[_NewestChange]] = defaultdict(list)
    by_class = {runner.runner_class: runner for runner in runners}
    for runner_class, runner in by_class.items():
        decisions = Decisions(runner.pairs)
        for series in runner.series:
            change = _newest_change_of(series, runner, decisions)
            if change is None:
                continue
            last_judged = judged.get(series.key)
            # the history judged it: it is no mere possibility any more
            if last_judged is not None and last_judged >= change.head:
                continue
            by_cause[runner_class, *change.shared_properties].append(change)
    suspicions: list[KernelSuspicion] = []
    for (runner_class, *_), changes in by_cause.items():
        newest_commit = by_class[runner_class].commits[-1]
        suspicions.append(_suspicion(runner_class, changes, newest_commit))
    return sorted(suspicions, key=_largest_first)


def _last_judged(regressions: Iterable[Regression]) -> dict[SeriesKey, CommitRef]:
    """The newest commit of each series at which a change was judged."""
    judged: dict[SeriesKey, CommitRef] = {}
    for regression in regressions:
        for point in regression.change_points:
            newest = judged.get(point.series, point.commit)
            judged[point.series] = max(point.commit, newest)
    return judged


@dataclass(frozen=True, kw_only=True)
class _NewestChange:
    """One series whose newest values left their level."""

    key: SeriesKey
    count: int
    """Of its newest values."""
    log_change: float
    base: CommitRef
    """Of the last value of the old level."""
    head: CommitRef
    """Of the first value of the new one."""
    count_before: int

    @property
    def is_growth(self) -> bool:
        """Whether the value became larger."""
        return self.log_change > 0

    @property
    def is_worse(self) -> bool:
        """Whether its direction is the bad one for the metric."""
        return self.is_growth is (self.key.definition.better is Better.LOWER)

    @property
    def shared_properties(self) -> tuple[str, int, bool, bool, bool]:
        """What is equal in series of one runner class that have one cause."""
        return (
            self.key.kernel,
            self.count,
            self.is_growth,
            self.is_worse,
            self.key.is_imported,
        )


_CommonCause = tuple[str, str, int, bool, bool, bool]
"""Runner class, and `shared_properties` of its series."""


def _newest_change_of(
    series: RecentSeries,
    runner: RecentRuns,
    decisions: Decisions,
) -> _NewestChange | None:
    is_control = series.key.is_imported and is_library(series.key.implementation)
    if is_control or not series.places:
        return None
    # a series that the newest run lacks says nothing about now
    if series.places[-1] != len(runner.commits) - 1:
        return None
    count, log_change = newest_change(_since_decided(series, runner.commits, decisions))
    if not count:
        return None
    return _NewestChange(
        key=series.key,
        count=count,
        log_change=log_change,
        base=runner.commits[series.places[-count - 1]],
        head=runner.commits[series.places[-count]],
        count_before=len(series.places) - count,
    )


def _suspicion(
    runner_class: str,
    changes: Sequence[_NewestChange],
    newest_commit: CommitRef,
) -> KernelSuspicion:
    """Sum up the changes of series that have one cause."""
    example = changes[0]
    log_change = statistics.median(change.log_change for change in changes)
    return KernelSuspicion(
        kernel=example.key.kernel,
        runner_class=runner_class,
        relative_change=math.expm1(log_change),
        is_worse=example.is_worse,
        is_imported=example.key.is_imported,
        series_count=len(changes),
        run_count=example.count,
        count_before=min(change.count_before for change in changes),
        base=example.base,
        head=newest_commit,
    )


def _largest_first(change: KernelSuspicion) -> tuple[float, str, str]:
    return (
        -abs(math.log1p(change.relative_change)),
        change.kernel,
        change.runner_class,
    )


def _since_decided(
    series: RecentSeries,
    commits: Sequence[CommitRef],
    decisions: Decisions,
) -> Sequence[float]:
    """The values from the newest commit on that a pair has decided: older ones are no evidence."""
    decided = decisions.last_decided(series.key.case_key)
    if decided is None or series.key.metric != TIME:
        return series.values
    measured = zip(series.places, series.values, strict=True)
    return [value for position, value in measured if commits[position] >= decided]


def newest_change(medians_ns: Sequence[float]) -> tuple[int, float]:
    """Return how many of the newest values left the level before, and the log change; 0 if none, or
    if the history has judged it.
    """
    old = medians_ns[: 1 - RUNS_FOR_A_VERDICT]
    spread = Spread.of(old)
    if spread is None:
        return _change_of_few(medians_ns)
    level_values = old[-_MIN_RUNS:]
    level = statistics.median(map(math.log, level_values))
    distances = [math.log(value) - level for value in medians_ns]
    edge = math.log1p(THRESHOLDS.trend_relative_change)
    count = _count_beyond(distances, max(edge, _ERRORS_OF_MORE * spread.deviation))
    # one value alone must lie further off than several that agree
    is_far = abs(distances[-1]) > _ERRORS_OF_ONE * spread.deviation
    is_sure = count > 1 or is_far
    if not count or not is_sure or count >= RUNS_FOR_A_VERDICT:
        return 0, 0.0
    return count, statistics.median(distances[-count:])


def _count_beyond(distances: Sequence[float], edge: float) -> int:
    """Count the newest values that lie further than an edge from the level, on one side of it."""
    count = 0
    for distance in reversed(distances):
        is_same_side = (distance > 0) == (distances[-1] > 0)
        if abs(distance) <= edge or not is_same_side:
            break
        count += 1
    return count


def _change_of_few(medians_ns: Sequence[float]) -> tuple[int, float]:
    """Find the widest gap between the values before a place and those after it, where too few
    values show the noise.
    """
    logs = [math.log(value) for value in medians_ns]
    if len(logs) < _FEWEST:
        return 0, 0.0
    count = 0
    widest = 0.0
    for start in range(1, len(logs)):
        base = logs[:start]
        head = logs[start:]
        has_old_level = len(base) >= MIN_SEGMENT
        is_judged = has_old_level and len(head) >= RUNS_FOR_A_VERDICT
        # one of the two is negative unless the values overlap
        rise = min(head) - max(base)
        fall = min(base) - max(head)
        gap = max(rise, fall)
        base_scatter = max(base) - min(base)
        head_scatter = max(head) - min(head)
        scatter = max(base_scatter, head_scatter)
        # a level of enough values is the history's to judge
        if is_judged or gap < max(_CLEAR_GAP, _GAPS * scatter):
            continue
        log_change = statistics.median(head) - statistics.median(base)
        if abs(log_change) > abs(widest):
            count = len(head)
            widest = log_change
    return count, widest


def is_judged(medians_ns: Sequence[float]) -> bool:
    """Whether a history of these values supports `unchanged`: it is long enough for a verdict, and
    no newest value waits for one.
    """
    return len(medians_ns) >= 2 * MIN_SEGMENT and newest_change(medians_ns)[0] == 0
