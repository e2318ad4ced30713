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
_CLEAR_GAP = math.log(1.25)
_GAPS = 3.0
"""Without a known noise, a gap between two levels counts from this and from so many scatters."""
_ERRORS_OF_ONE, _ERRORS_OF_MORE = 6.0, 4.0
"""Standard deviations that a single run, or each of several, must lie off."""
_CONFIDENCE = 0.95


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
        return cls(MAD_TO_DEVIATION * statistics.median(steps) / math.sqrt(2), len(logs))


@dataclass(frozen=True)
class HistoryNoise:
    """The noise of one runner class, from its newest runs."""

    deviation: float
    """Median over its series, as a fraction."""
    series_count: int
    run_count: int


def noise_from_history(runners: Iterable[RecentRuns]) -> dict[str, HistoryNoise]:
    """Estimate the noise of each runner class that has enough runs."""
    found = {}
    for runner in runners:
        spreads = [spread for one in runner.series if (spread := Spread.of(one.values)) is not None]
        if spreads:
            deviation = statistics.median(spread.deviation for spread in spreads)
            found[runner.runner_class] = HistoryNoise(
                math.expm1(deviation), len(spreads), len(runner.commits)
            )
    return found


# --- changes too new to judge


@dataclass(frozen=True)
class PossibleChange:
    """Times, or values of another tool, of one kernel on one runner class that left their level in
    the newest runs.
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
        values = "1 value" if self.run_count == 1 else f"{self.run_count} values"
        change = f"{self.relative_change:+,.0%}".replace("%", " %")
        more = []
        if self.run_count < RUNS_FOR_A_VERDICT:
            more.append(f"{RUNS_FOR_A_VERDICT - self.run_count} more")
        if self.count_before < MIN_SEGMENT:
            more.append(f"{MIN_SEGMENT - self.count_before} more of earlier commits")
        # nothing here can measure a pair of another tool's values
        decided_by = [] if self.is_imported else ["a pair"]
        if more:
            decided_by.append(" and ".join(more))
        return (
            f"undecided: {values} since a possible change of {change}; judged after "
            f"{' or '.join(decided_by) or 'the next analysis'}"
        )


@dataclass(frozen=True)
class _Moved:
    """What series have in common that are one possible change."""

    kernel: str
    runner_class: str
    count: int
    is_growth: bool
    is_worse: bool
    is_imported: bool


def possible_changes(
    runners: Iterable[RecentRuns], regressions: Iterable[Regression]
) -> list[PossibleChange]:
    """Find times that the newest runs show off their level, before the history can judge them; the
    largest first.

    Args:
        runners: The newest runs of each runner class.
        regressions: What was judged: its series are left out from the commit of their change on.

    What a pair has decided is no possible change any more; later values may be one.
    """
    judged: dict[SeriesKey, CommitRef] = {}
    for point in (point for one in regressions for point in one.change_points):
        judged[point.series] = max(point.commit, judged.get(point.series, point.commit))
    moved: dict[_Moved, list[tuple[RecentSeries, float]]] = defaultdict(list)
    by_class = {runner.runner_class: runner for runner in runners}
    for runner_class, runner in by_class.items():
        decisions = Decisions(runner.pairs)
        for one in runner.series:
            if one.key.is_imported and is_library(one.key.implementation):
                continue
            count, change = newest_change(_since_decided(one, runner.commits, decisions))
            is_newest = bool(one.places) and one.places[-1] == len(runner.commits) - 1
            if not count or not is_newest:
                continue
            known = judged.get(one.key)
            if known is None or known < runner.commits[one.places[-count]]:
                definition = one.key.definition
                is_worse = (change > 0) is (definition.better is Better.LOWER)
                place = _Moved(
                    kernel=one.key.kernel,
                    runner_class=runner_class,
                    count=count,
                    is_growth=change > 0,
                    is_worse=is_worse,
                    is_imported=one.key.is_imported,
                )
                moved[place].append((one, change))
    found = [
        PossibleChange(
            kernel=place.kernel,
            runner_class=place.runner_class,
            relative_change=math.expm1(statistics.median(change for _, change in own)),
            is_worse=place.is_worse,
            is_imported=place.is_imported,
            series_count=len(own),
            run_count=place.count,
            count_before=min(len(one.places) for one, _ in own) - place.count,
            base=by_class[place.runner_class].commits[own[0][0].places[-place.count - 1]],
            head=by_class[place.runner_class].commits[-1],
        )
        for place, own in moved.items()
    ]
    return sorted(
        found, key=lambda one: (-abs(math.log1p(one.relative_change)), one.kernel, one.runner_class)
    )


def _since_decided(
    series: RecentSeries, commits: Sequence[CommitRef], decisions: Decisions
) -> Sequence[float]:
    """The values from the newest commit on that a pair has decided: older ones are no evidence."""
    decided = decisions.last_decided((series.key.case_id, series.key.implementation))
    if decided is None or series.key.metric != TIME:
        return series.values
    return [
        value
        for place, value in zip(series.places, series.values, strict=True)
        if commits[place] >= decided
    ]


def newest_change(medians_ns: Sequence[float]) -> tuple[int, float]:
    """Return how many of the newest values left the level before, and the log change; 0 if none, or
    if the history has judged it.
    """
    edge = math.log1p(THRESHOLDS.trend_relative_change)
    old = medians_ns[: 1 - RUNS_FOR_A_VERDICT]
    spread = Spread.of(old)
    if spread is None:
        return _change_of_few(medians_ns)
    level = statistics.median(math.log(value) for value in old[-_MIN_RUNS:])
    off = [math.log(value) - level for value in medians_ns]
    count = 0
    for value in reversed(off):
        if abs(value) <= max(edge, _ERRORS_OF_MORE * spread.deviation) or (value > 0) != (
            off[-1] > 0
        ):
            break
        count += 1
    is_sure = count > 1 or (count == 1 and abs(off[-1]) > _ERRORS_OF_ONE * spread.deviation)
    return (
        (count, statistics.median(off[-count:]))
        if is_sure and count < RUNS_FOR_A_VERDICT
        else (0, 0.0)
    )


def _change_of_few(medians_ns: Sequence[float]) -> tuple[int, float]:
    """Find the widest gap between the values before a place and those after it, where too few
    values show the noise.
    """
    logs = [math.log(value) for value in medians_ns]
    widest, size = 0, 0.0
    for place in range(1, len(logs)):
        base, head = logs[:place], logs[place:]
        is_judged = len(base) >= MIN_SEGMENT and len(head) >= RUNS_FOR_A_VERDICT
        gap = max(min(head) - max(base), min(base) - max(head))
        scatter = max(max(base) - min(base), max(head) - min(head))
        if len(logs) < _FEWEST or is_judged or gap < max(_CLEAR_GAP, _GAPS * scatter):
            continue
        change = statistics.median(head) - statistics.median(base)
        if abs(change) > abs(size):
            widest, size = len(head), change
    return widest, size


def is_judged(medians_ns: Sequence[float]) -> bool:
    """Whether a history of these values supports `unchanged`: it is long enough for a verdict, and
    no newest value waits for one.
    """
    return len(medians_ns) >= 2 * MIN_SEGMENT and newest_change(medians_ns)[0] == 0
