"""Evidence about a step of a time, other than the series itself: pairs, counters, profiles, old
code. Pure.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from roofwatch.ci.ab.changes import Change, find_counter_changes
from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.ab.launches import LaunchMove, find_launch_moves, may_explain
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.ci.history.finding import Status
from roofwatch.ci.messages import plain
from roofwatch.model.history import CommitRef, Pair, SeriesKey, SeriesPoint
from roofwatch.model.metrics import format_ns
from roofwatch.model.stored_results import CountedRun, ProfiledRun
from roofwatch.model.verdict import THRESHOLDS, Verdict

_MAX_COUNTERS, _MAX_LAUNCHES = 3, 2
_MAX_CHARACTERS = 120
"""Longest text about one launch, since names of templates are long."""
_TIMES = ("duration", "cycles", "clock", "frequency")
"""Counters that begin with these are times read under a profiler, and explain nothing."""
_STAYED, _MOVED = 1 / 3, 2 / 3
"""Shares of the step: old code that changed by less stayed, and by more changed with it."""
_ERRORS = 2.0
"""Standard errors that must fit into a third of the step, to tell the two apart."""
_MIN_EARLY_RUNS = 4
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in standard deviations over √n."""

Levels = tuple[Sequence[CommitRef], Sequence[CommitRef]]
"""First and last commit of the old level, and of the new one."""
_Subject = tuple[str, str, str]
"""Case id, implementation, runner class."""
_T = TypeVar("_T")
_Run = TypeVar("_Run", CountedRun, ProfiledRun)


@dataclass(frozen=True)
class Evidence:
    """One observation other than the series itself."""

    has_changed: bool
    sentence: str


class SupportingEvidence:
    """The pairs, counters and profiles of one project, by case, implementation and runner class."""

    def __init__(
        self,
        pairs: Sequence[Pair] = (),
        *,
        counted: Iterable[CountedRun] = (),
        profiled: Iterable[ProfiledRun] = (),
    ) -> None:
        """Compare the pairs; blocks of several pairs of the same commits add up.

        Runs with counters and with profiles are in the order of the branch.
        """
        self._counted = _grouped(
            counted, lambda one: (one.case_id, one.implementation, one.runner_class)
        )
        self._profiled = _grouped(
            profiled,
            lambda one: (one.profile.case_id, one.profile.implementation, one.runner_class),
        )
        # a pair that was cut short has blocks without partners
        whole = [pair for pair in pairs if len(pair.base_blocks_ns) == len(pair.head_blocks_ns) > 0]
        by_commits = _grouped(whole, lambda pair: (*_subject(pair), pair.base.sha, pair.head.sha))
        self._comparisons = {
            measured: compare(
                [block for pair in own for block in pair.base_blocks_ns],
                [block for pair in own for block in pair.head_blocks_ns],
                threshold=THRESHOLDS.relative_change,
            )
            for measured, own in by_commits.items()
        }
        self._commits = {
            measured: (own[0].base, own[0].head) for measured, own in by_commits.items()
        }

    def confirmed_ranges(
        self, key: SeriesKey, commits: Collection[CommitRef]
    ) -> list[tuple[CommitRef, CommitRef, Comparison]]:
        """List the changes that pairs of commits of the branch decided, the shortest range first.

        A range ends before the commit of an unchanged pair with the same base, as those of a
        bisection have. A longer range that contains a change of the same direction is left out.

        Args:
            key: Of a time.
            commits: Measured commits of the branch.

        Returns:
            The last commit before the change, the first with it, and the comparison.
        """
        own: list[tuple[CommitRef, CommitRef, Comparison]] = []
        for measured, comparison in self._comparisons.items():
            base, head = self._commits[measured]
            is_on_branch = base in commits and head in commits and base < head
            if measured[:3] == _subject(key) and is_on_branch:
                own.append((base, head, comparison))
        unchanged = [pair for pair in own if pair[2].verdict is Verdict.UNCHANGED]
        narrowed: list[tuple[CommitRef, CommitRef, Comparison]] = []
        for base, head, comparison in own:
            if comparison.verdict not in (Verdict.REGRESSED, Verdict.IMPROVED):
                continue
            same_as_base = [
                other for first, other, _ in unchanged if first == base and other < head
            ]
            narrowed.append((max([base, *same_as_base]), head, comparison))
        narrowed.sort(
            key=lambda one: (
                one[1].first_parent_count - one[0].first_parent_count,
                one[1].first_parent_count,
            )
        )
        ranges: list[tuple[CommitRef, CommitRef, Comparison]] = []
        for base, head, comparison in narrowed:
            is_explained = any(
                base <= inner_base and inner_head <= head and comparison.verdict is inner.verdict
                for inner_base, inner_head, inner in ranges
            )
            if not is_explained:
                ranges.append((base, head, comparison))
        return ranges

    def counters_around(self, key: SeriesKey, levels: Levels) -> Evidence | None:
        """Compare the counters on both sides of a step; None if a side has none."""
        sides = _nearest(self._counted.get(_subject(key), []), levels)
        if sides is None:
            return None
        largest: dict[str, Change] = {}
        for change in find_counter_changes(sides[0].counters, sides[1].counters):
            if not change.metric.startswith(_TIMES):
                largest.setdefault(change.metric, change)
        where = f"counters read at {sides[0].commit.short_sha} and {sides[1].commit.short_sha}"
        if not largest:
            return Evidence(False, f"{where} are the same within 2 %")
        return Evidence(
            True, f"{where}: {_listed(map(_describe_counter, largest.values()), _MAX_COUNTERS)}"
        )

    def launches_around(self, key: SeriesKey, levels: Levels, log_change: float) -> Evidence | None:
        """Compare what calls launch on both sides of a step.

        Returns:
            Changed if no other timed commit lies between the two profiles; None if a side has no
            profile, or if the launches that differ take too little time to explain the step.
        """
        sides = _nearest(self._profiled.get(_subject(key), []), levels)
        if sides is None:
            return None
        moves = find_launch_moves([sides[0].profile], [sides[1].profile])
        if not may_explain(moves, log_change):
            return None
        base, head = sides[0].commit, sides[1].commit
        return Evidence(
            (base, head) == (levels[0][-1], levels[1][0]),
            f"profiles of {base.short_sha} and {head.short_sha} show other launches: "
            f"{_listed(map(_describe_launch, moves), _MAX_LAUNCHES)}",
        )

    def check_step(
        self, key: SeriesKey, commits: Sequence[CommitRef], step: Step
    ) -> tuple[int, Status, Comparison | None]:
        """Check a step against the paired measurements of its commits, and of the neighbours where
        it may also lie.

        Returns:
            The index of the step, its status, and the comparison behind that.
        """
        verdict = Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED
        neighbours = [index for index in step.candidates if abs(index - step.index) == 1]
        compared = {}
        for index in [step.index, *neighbours]:
            measured = (*_subject(key), commits[index - 1].sha, commits[index].sha)
            comparison = compared[index] = self._comparisons.get(measured)
            if comparison is not None and comparison.verdict is verdict:
                return index, Status.CONFIRMED, comparison
        for index, comparison in compared.items():
            if comparison is None or not _rules_out(comparison, step, verdict):
                return index, Status.UNCONFIRMED, comparison
        return step.index, Status.REFUTED, compared[step.index]


def measured_again(
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
    *,
    log_change: float,
    ended: datetime | None,
) -> Evidence | None:
    """Whether the old level's commits take the new time when measured again; None if no run, or
    only noise, says so.

    Args:
        before: All timed runs of the commits of the old level, whenever they were made.
        after: Those of the new level.
        log_change: ln(after / before) of the levels.
        ended: When the level after the new one was first measured; None if there is none.
    """
    began = min(run.measured_at for run in after)
    settings = {run.setting for run in after}
    early = [run.value for run in before if run.measured_at < began and run.value]
    # a run under the old driver or toolchain is no evidence about the new one
    late = [
        run.value
        for run in before
        if run.value
        and began <= run.measured_at
        and (ended is None or run.measured_at < ended)
        and run.setting in settings
    ]
    if not late or len(early) < _MIN_EARLY_RUNS:
        return None
    logs = [math.log(value) for value in early]
    level = statistics.median(logs)
    deviation = MAD_TO_DEVIATION * statistics.median(abs(value - level) for value in logs)
    error = _MEDIAN_ERROR * deviation * math.sqrt(1 / len(early) + 1 / len(late))
    share = (statistics.median(map(math.log, late)) - level) / log_change
    if _ERRORS * error > abs(log_change) / 3 or _STAYED < share < _MOVED:
        return None
    runs = "once" if len(late) == 1 else f"in {len(late)} runs"
    sentence = (
        f"old commits, measured again after it ({runs}), take {format_ns(statistics.median(late))}"
    )
    if share <= _STAYED:
        return Evidence(False, f"{sentence} as before")
    return Evidence(
        True,
        f"{sentence} instead of {format_ns(math.exp(level))}: the change is there without the "
        f"commit",
    )


def describe_comparison(comparison: Comparison) -> str:
    low, high = comparison.relative_interval
    return (
        f"{comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%}, "
        f"{comparison.block_count} blocks): {comparison.verdict}"
    )


def _rules_out(comparison: Comparison, step: Step, verdict: Verdict) -> bool:
    """Whether a paired measurement excludes a step: its verdict is `unchanged` or the opposite, or
    its interval includes 0 and ends below half of the step.
    """
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison.verdict is not verdict
    low, high = comparison.relative_interval
    half = (step.after / step.before) ** 0.5
    return (
        low <= 0 and 1 + high < half
        if verdict is Verdict.REGRESSED
        else high >= 0 and 1 + low > half
    )


def _subject(one: Pair | SeriesKey) -> _Subject:
    return one.case_id, one.implementation, one.runner_class


_K = TypeVar("_K", bound=tuple[str, ...])


def _grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    grouped: dict[_K, list[_T]] = defaultdict(list)
    for value in values:
        grouped[key(value)].append(value)
    return dict(grouped)


def _nearest(runs: Sequence[_Run], levels: Levels) -> tuple[_Run, _Run] | None:
    """The last run of the old level and the first of the new one; None if a level has none."""
    base, head = ([run for run in runs if level[0] <= run.commit <= level[-1]] for level in levels)
    return (base[-1], head[0]) if base and head else None


def _listed(sentences: Iterable[str], most: int) -> str:
    given = list(sentences)
    more = f", and {len(given) - most} more" if len(given) > most else ""
    return f"{', '.join(given[:most])}{more}"


def _describe_counter(change: Change) -> str:
    name = change.metric.removesuffix("_share").removesuffix("_count").replace("_", " ")
    if change.metric.endswith("_share"):
        return f"{name} {change.base:.0%} to {change.head:.0%}"
    return (
        f"{name} {change.relative_change:+.0%}"
        if change.base
        else f"{name} {change.base:g} to {change.head:g}"
    )


def _describe_launch(move: LaunchMove) -> str:
    text = plain(str(move.remark), limit=_MAX_CHARACTERS)
    return f"{text} ({move.share:.0%} of a call {'after' if move.head_name else 'before'})"
