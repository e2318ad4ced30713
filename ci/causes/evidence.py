"""Evidence about a step of a time, other than the series itself: pairs, counters, profiles, old
code. Pure.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from roofwatch.ci.ab.changes import compare_counters
from roofwatch.ci.ab.compare import (
    SAME_CODE_REASONS,
    ComparedRange,
    PairedEstimate,
    compare_pairs,
)
from roofwatch.ci.ab.launches import LaunchEvidence, compare_profiles, may_explain
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION, difference_error
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import listed, plain
from roofwatch.model.grouping import group_by
from roofwatch.model.history import CommitRef, Pair, SeriesKey, SeriesPoint
from roofwatch.model.metrics import format_counter_name, format_ns
from roofwatch.model.stored_results import CountedRun, ProfiledRun
from roofwatch.model.verdict import Status, Verdict

_MAX_COUNTERS = 3
_MAX_LAUNCHES = 2
_MAX_CHARACTERS = 120
"""Longest text about one launch, since names of templates are long."""
_TIMES = ("duration", "cycles", "clock", "frequency")
"""Counters that begin with these are times read under a profiler, and explain nothing."""
_STAYED = 1 / 3
"""Share of the step: old code that changed by less stayed."""
_MOVED = 2 / 3
"""Share of the step: old code that changed by more changed with it."""
_ERRORS = 2.0
"""Standard errors that must fit into a third of the step, to tell the two apart."""
# fewer runs have no spread to compare with
_MIN_EARLY_RUNS = 4
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in standard deviations over √n."""

Levels = tuple[Sequence[CommitRef], Sequence[CommitRef]]
"""First and last commit of the old level, and of the new one."""
_Subject = tuple[str, str, str]
"""Case id, implementation, runner class."""
_SubjectAndCommits = tuple[str, str, str, str, str]
"""A subject, and the hashes of base and head."""
_Run = TypeVar(
    "_Run",
    CountedRun,
    ProfiledRun,
)


@dataclass(frozen=True)
class Observation:
    """One observation other than the series itself."""

    has_changed: bool
    """Whether it changed together with the time."""
    sentence: str
    """What was observed, for readers."""


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
        self._counted = group_by(counted, _subject)
        self._profiled = group_by(profiled, _subject_of_profile)
        whole = [pair for pair in pairs if pair.is_whole]
        self._comparisons: dict[_SubjectAndCommits, PairedEstimate] = {}
        self._commits: dict[_SubjectAndCommits, tuple[CommitRef, CommitRef]] = {}
        for key, same_pairs in group_by(whole, _subject_and_commits).items():
            self._comparisons[key] = compare_pairs(same_pairs)
            any_pair = same_pairs[0]
            self._commits[key] = any_pair.base, any_pair.head

    def confirmed_ranges(
        self,
        key: SeriesKey,
        commits: Collection[CommitRef],
    ) -> list[ComparedRange]:
        """List the changes that pairs of commits of the branch decided, the shortest range first.

        A range ends before the commit of an unchanged pair with the same base, as those of a
        bisection have. A longer range that contains a change of the same direction is left out.

        Args:
            key: Of a time.
            commits: Measured commits of the branch.

        Returns:
            The shortest ranges, each with its comparison.
        """
        subject = _subject(key)
        on_branch: list[ComparedRange] = []
        for measured, comparison in self._comparisons.items():
            *measured_subject, _, _ = measured
            if tuple(measured_subject) != subject:
                continue
            base, head = self._commits[measured]
            # only the branch's own order says which commit came first
            if base in commits and head in commits and base < head:
                on_branch.append(
                    ComparedRange(
                        base=base,
                        head=head,
                        comparison=comparison,
                    )
                )
        ranges: list[ComparedRange] = []
        for changed_range in sorted(_narrowed(on_branch), key=_length_and_end):
            # a bisection leaves the longer ranges that it began with
            if not any(_explains(shorter_range, changed_range) for shorter_range in ranges):
                ranges.append(changed_range)
        return ranges

    def unchanged_code(
        self,
        key: SeriesKey,
        commits: Sequence[CommitRef],
        candidates: Iterable[int],
    ) -> Observation | None:
        """Say that a series ran the same code before and after its step, if pairs show it wherever
        the step may lie; else None.

        Args:
            key: Of a time.
            commits: Measured commits of the series.
            candidates: Positions in `commits` at which the new level may begin.
        """
        for index in candidates:
            pair_key = (*_subject(key), commits[index - 1].sha, commits[index].sha)
            comparison = self._comparisons.get(pair_key)
            if comparison is None or comparison.reason not in SAME_CODE_REASONS:
                return None
        return Observation(
            has_changed=False,
            sentence="both sides of the pair run the same code, by all that is recorded",
        )

    def counters_around(self, key: SeriesKey, levels: Levels) -> Observation | None:
        """Compare the counters on both sides of a step; None if a side has none."""
        sides = _nearest(self._counted.get(_subject(key), []), levels)
        if sides is None:
            return None
        base, head = sides
        largest: dict[str, Change[None]] = {}
        for change in compare_counters(base.counters, head.counters):
            # changes come in order of size, one for each kernel of a call
            if not change.metric.startswith(_TIMES):
                largest.setdefault(change.metric, change)
        counters = f"counters read at {base.commit.short_sha} and {head.commit.short_sha}"
        if not largest:
            return Observation(False, f"{counters} are the same within 2 %")
        descriptions = listed(map(_describe_counter, largest.values()), _MAX_COUNTERS)
        return Observation(True, f"{counters}: {descriptions}")

    def launches_around(
        self,
        key: SeriesKey,
        levels: Levels,
        log_change: float,
    ) -> Observation | None:
        """Compare what calls launch on both sides of a step.

        Returns:
            Changed if no other timed commit lies between the two profiles; None if a side has no
            profile, or if the launches that differ take too little time to explain the step.
        """
        sides = _nearest(self._profiled.get(_subject(key), []), levels)
        if sides is None:
            return None
        base_run, head_run = sides
        launches = compare_profiles(base_run.profile, head_run.profile)
        # launches that take a microsecond do not explain a step of a millisecond
        if not may_explain(launches, log_change):
            return None
        base = base_run.commit
        head = head_run.commit
        old_level, new_level = levels
        is_at_step = base == old_level[-1] and head == new_level[0]
        descriptions = listed(map(_describe_launch, launches), _MAX_LAUNCHES)
        profiles = f"profiles of {base.short_sha} and {head.short_sha}"
        return Observation(
            has_changed=is_at_step,
            sentence=f"{profiles} show other launches: {descriptions}",
        )

    def check_step(
        self,
        key: SeriesKey,
        commits: Sequence[CommitRef],
        step: Step,
    ) -> tuple[int, Status, PairedEstimate | None]:
        """Check a step against the paired measurements of its commits, and of the neighbours where
        it may also lie.

        Returns:
            The index of the step, its status, and the comparison behind that.
        """
        verdict = Verdict.of_change(is_worse=step.after > step.before)
        neighbours = [index for index in step.candidates if abs(index - step.index) == 1]
        comparisons: dict[int, PairedEstimate | None] = {}
        for index in [step.index, *neighbours]:
            base = commits[index - 1]
            head = commits[index]
            pair_key = (*_subject(key), base.sha, head.sha)
            comparison = self._comparisons.get(pair_key)
            comparisons[index] = comparison
            if comparison is not None and comparison.verdict is verdict:
                return index, Status.CONFIRMED, comparison
        # a step is refuted only if every place where it may lie is
        for index, comparison in comparisons.items():
            if comparison is None or not _rules_out(comparison, step, verdict):
                return index, Status.UNCONFIRMED, comparison
        return (
            step.index,
            Status.REFUTED,
            comparisons[step.index],
        )


def _narrowed(ranges: Sequence[ComparedRange]) -> list[ComparedRange]:
    """The ranges with a change, each from the last commit that is known to equal its base."""
    unchanged = [compared for compared in ranges if compared.verdict is Verdict.UNCHANGED]
    unchanged_since = group_by(unchanged, lambda compared: compared.base)
    narrowed: list[ComparedRange] = []
    for compared in ranges:
        # an unchanged pair only shortens others
        if not compared.verdict.is_change:
            continue
        last_equal = compared.base
        for equal in unchanged_since.get(compared.base, []):
            if last_equal < equal.head < compared.head:
                last_equal = equal.head
        narrowed.append(replace(compared, base=last_equal))
    return narrowed


def _length_and_end(compared: ComparedRange) -> tuple[int, int]:
    """Sort key: short ranges first, then by their end."""
    end = compared.head.first_parent_count
    return end - compared.base.first_parent_count, end


def _explains(inner: ComparedRange, outer: ComparedRange) -> bool:
    """Whether a range lies within another one and has a change of the same direction."""
    begins_inside = outer.base <= inner.base
    is_inside = begins_inside and inner.head <= outer.head
    return is_inside and outer.verdict is inner.verdict


def measured_again(
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
    *,
    log_change: float,
    ended: datetime | None,
) -> Observation | None:
    """Whether the old level's commits take the new time when measured again; None if no run, or
    only noise, says so.

    Args:
        before: All timed runs of the commits of the old level, whenever they were made.
        after: Those of the new level.
        log_change: ln(after / before) of the levels.
        ended: When the level after the new one was first measured; None if there is none.
    """
    began = min(run.measured_at for run in after)
    new_settings = {run.setting for run in after}
    early_ns: list[float] = []
    late_ns: list[float] = []
    for run in before:
        if not run.value:
            continue
        if run.measured_at < began:
            early_ns.append(run.value)
        # a run under the old driver or toolchain is no evidence about the new one
        elif run.setting in new_settings and (ended is None or run.measured_at < ended):
            late_ns.append(run.value)
    # without runs on both sides of the step there is nothing to compare
    if not late_ns or len(early_ns) < _MIN_EARLY_RUNS:
        return None
    early_logs = [math.log(value_ns) for value_ns in early_ns]
    early_level = statistics.median(early_logs)
    late_level = statistics.median(map(math.log, late_ns))
    distances = [abs(value - early_level) for value in early_logs]
    deviation = MAD_TO_DEVIATION * statistics.median(distances)
    # of the difference between two medians
    error_of_means = difference_error(deviation, len(early_ns), len(late_ns))
    error = _MEDIAN_ERROR * error_of_means
    allowed_error = abs(log_change) / 3
    # noisier runs fit both levels
    if _ERRORS * error > allowed_error:
        return None
    share = (late_level - early_level) / log_change
    # halfway between the two levels says neither
    if _STAYED < share < _MOVED:
        return None
    runs = f"in {len(late_ns)} runs"
    if len(late_ns) == 1:
        runs = "once"
    late_median = format_ns(statistics.median(late_ns))
    sentence = f"old commits, measured again after it ({runs}), take {late_median}"
    if share <= _STAYED:
        return Observation(has_changed=False, sentence=f"{sentence} as before")
    early_median = format_ns(math.exp(early_level))
    return Observation(
        has_changed=True,
        sentence=f"{sentence} instead of {early_median}: the change is there without the commit",
    )


def describe_comparison(comparison: PairedEstimate) -> str:
    """Write the change of a pair with its interval and verdict."""
    low, high = comparison.relative_interval
    decided = str(comparison.verdict)
    if comparison.reason in SAME_CODE_REASONS:
        decided += ", the same code on both sides"
    return (
        f"{comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%}, "
        f"{comparison.block_count} blocks): {decided}"
    )


def _rules_out(
    comparison: PairedEstimate,
    step: Step,
    verdict: Verdict,
) -> bool:
    """Whether a paired measurement excludes a step: its verdict is `unchanged` or the opposite, or
    its interval includes 0 and ends below half of the step.
    """
    # a decided pair speaks for itself
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison.verdict is not verdict
    low, high = comparison.relative_interval
    # half of the step on the log scale
    half_ratio = math.sqrt(step.after / step.before)
    # an undecided pair excludes the step only if it leaves no place for half of it
    if verdict is Verdict.REGRESSED:
        return low <= 0 and 1 + high < half_ratio
    return high >= 0 and 1 + low > half_ratio


def _subject(result: Pair | SeriesKey | CountedRun) -> _Subject:
    return result.case_id, result.implementation, result.runner_class


def _subject_of_profile(run: ProfiledRun) -> _Subject:
    return (
        run.profile.case_id,
        run.profile.implementation,
        run.runner_class,
    )


def _subject_and_commits(pair: Pair) -> _SubjectAndCommits:
    return (
        *_subject(pair),
        pair.base.sha,
        pair.head.sha,
    )


def _nearest(runs: Sequence[_Run], levels: Levels) -> tuple[_Run, _Run] | None:
    """The last run of the old level and the first of the new one; None if a level has none."""
    old_level, new_level = levels
    old_runs = _runs_within(runs, old_level)
    new_runs = _runs_within(runs, new_level)
    if not old_runs or not new_runs:
        return None
    return old_runs[-1], new_runs[0]


def _runs_within(runs: Iterable[_Run], level: Sequence[CommitRef]) -> list[_Run]:
    """The runs whose commit belongs to a level."""
    first = level[0]
    last = level[-1]
    return [run for run in runs if first <= run.commit <= last]


def _describe_counter(change: Change[None]) -> str:
    """`dram bytes +20%`, or both values of what has no relative change."""
    name = format_counter_name(change.metric.removesuffix("_share").removesuffix("_count"))
    base, head = change.values
    # a share in percent is not given as a change in percent
    if change.metric.endswith("_share"):
        return f"{name} {base:.0%} to {head:.0%}"
    if base:
        return f"{name} {change.relative_change:+.0%}"
    return f"{name} {base:g} to {head:g}"


def _describe_launch(launch: Change[LaunchEvidence]) -> str:
    """What changed in the launches of a kernel, and its share of the call."""
    text = plain(str(launch.detail), limit=_MAX_CHARACTERS)
    side = "after" if launch.evidence.head_name else "before"
    return f"{text} ({launch.evidence.share:.0%} of a call {side})"
