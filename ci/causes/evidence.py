"""Evidence beside a series of times, held against one of its steps: paired measurements, counters, profiles. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from roofwatch.ci.ab.changes import Change, find_counter_changes
from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.ab.launches import LaunchChange, LaunchMove, find_launch_moves, may_explain
from roofwatch.ci.causes.runner_evidence import Calibrations
from roofwatch.ci.changepoint import detect
from roofwatch.ci.history.finding import Status
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.queries.counted_values import CountedRun
from roofwatch.db.queries.profiled_values import ProfiledRun
from roofwatch.db.values import CommitRef, Pair, SeriesKey, Verdict

_COUNTERS_TOLD, _LAUNCHES_TOLD = 3, 2
_MOST_CHARACTERS = 120
"""Of one launch: names of templates run to hundreds."""
_TIMES = ("duration", "cycles", "clock", "frequency")
"""Counters that begin with these are time again, read under a profiler: they explain nothing."""

_Levels = tuple[Sequence[CommitRef], Sequence[CommitRef]]
"""First and last commit of the old level, and of the new one."""


@dataclass(frozen=True)
class CountedStep:
    """Hardware counters on both sides of a step."""

    base: CommitRef
    head: CommitRef
    changes: tuple[Change, ...]
    """The largest first; each counter once, of the launch where it changed most."""

    def in_words(self) -> str:
        where = f"counters read at {self.base.short_sha} and {self.head.short_sha}"
        if not self.changes:
            return f"{where} are the same within 2 %"
        told = ", ".join(map(_counter_in_words, self.changes[:_COUNTERS_TOLD]))
        return f"{where}: {told}{_and_more(len(self.changes) - _COUNTERS_TOLD)}"


@dataclass(frozen=True)
class LaunchedStep:
    """What was launched on both sides of a step, by profiles."""

    base: CommitRef
    head: CommitRef
    moves: tuple[LaunchMove, ...]
    """What takes the largest share of its call first."""
    is_at_the_step: bool
    """No commit that was timed lies between the two profiles."""

    def may_explain(self, log_change: float) -> bool:
        """Whether what changed takes enough of the slower calls for such a change of their time."""
        return may_explain(self.moves, log_change)

    def in_words(self) -> str:
        told = ", ".join(map(_launch_in_words, self.moves[:_LAUNCHES_TOLD]))
        where = f"by profiles of {self.base.short_sha} and {self.head.short_sha} its calls launch something else"
        return f"{where}: {told}{_and_more(len(self.moves) - _LAUNCHES_TOLD)}"


class SupportingEvidence:
    """All that a project's runs and pairs show beside its series of times; any of it may be empty."""

    def __init__(
        self,
        pairs: Sequence[Pair] = (),
        thresholds: Thresholds | None = None,
        *,
        counted: Iterable[CountedRun] = (),
        profiled: Iterable[ProfiledRun] = (),
    ) -> None:
        """Order it by what was measured. Blocks of several pairs of the same thing add up.

        Args:
            pairs: Of two commits, or of one commit with itself.
            thresholds: What is worth reporting; the defaults if left out.
            counted: Runs with counters, in the order of the branch.
            profiled: Runs with profiles, in the order of the branch.
        """
        self.calibrations = Calibrations(pairs)
        self._comparisons = _compare_pairs(pairs, (thresholds or Thresholds()).relative_change)
        self._counted: dict[tuple[str, str, str], list[CountedRun]] = defaultdict(list)
        for counts in counted:
            self._counted[counts.case_id, counts.implementation, counts.runner_class].append(counts)
        self._profiled: dict[tuple[str, str, str], list[ProfiledRun]] = defaultdict(list)
        for run in profiled:
            self._profiled[run.profile.case_id, run.profile.implementation, run.runner_class].append(run)

    def counters_around(self, key: SeriesKey, levels: _Levels) -> CountedStep | None:
        """The counters on both sides of a step; None where a side has none."""
        sides = _beside(self._counted.get((key.case_id, key.implementation, key.runner_class), []), levels)
        if sides is None:
            return None
        old, new = sides
        largest: dict[str, Change] = {}
        for change in find_counter_changes(old.counters, new.counters):
            if not change.metric.startswith(_TIMES):
                largest.setdefault(change.metric, change)
        return CountedStep(old.commit, new.commit, tuple(largest.values()))

    def launches_around(self, key: SeriesKey, levels: _Levels) -> LaunchedStep | None:
        """What was launched on both sides of a step; None where a side has no profile."""
        sides = _beside(self._profiled.get((key.case_id, key.implementation, key.runner_class), []), levels)
        if sides is None:
            return None
        old, new = sides
        return LaunchedStep(
            base=old.commit,
            head=new.commit,
            moves=find_launch_moves([old.profile], [new.profile]),
            is_at_the_step=(old.commit, new.commit) == (levels[0][-1], levels[1][0]),
        )

    def check_step(
        self, key: SeriesKey, commits: Sequence[CommitRef], step: detect.Step
    ) -> tuple[int, Status, Comparison | None]:
        """Hold a step of a time against the paired measurements of its commits, and of the neighbouring ones that it
        may as well lie at: the index it is at, how sure that is, and the comparison that says so.
        """
        verdict = Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED
        neighbours = [index for index in step.candidates if abs(index - step.index) == 1]
        open_at: tuple[int, Comparison | None] | None = None
        for index in [step.index, *neighbours]:
            comparison = self._compare(key, commits[index - 1], commits[index])
            if comparison is not None and comparison.verdict is verdict:
                return index, Status.CONFIRMED, comparison
            if (comparison is None or not _rules_out(comparison, step, verdict)) and open_at is None:
                open_at = index, comparison
        if open_at is not None:
            return open_at[0], Status.UNCONFIRMED, open_at[1]
        return step.index, Status.REFUTED, self._compare(key, commits[step.index - 1], commits[step.index])

    def _compare(self, key: SeriesKey, base: CommitRef, head: CommitRef) -> Comparison | None:
        measured = (key.project, key.case_id, key.implementation, key.runner_class, base.sha, head.sha)
        return self._comparisons.get(measured)


def describe_comparison(comparison: Comparison) -> str:
    low, high = comparison.relative_interval
    return (
        f"{comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%}, "
        f"{comparison.block_count} blocks): {comparison.verdict}"
    )


_PairKey = tuple[str, str, str, str, str, str]
_Blocks = list[tuple[float, ...]]


def _compare_pairs(pairs: Iterable[Pair], threshold: float) -> dict[_PairKey, Comparison]:
    blocks: dict[_PairKey, tuple[_Blocks, _Blocks]] = {}
    for pair in pairs:
        if len(pair.base_blocks_ns) != len(pair.head_blocks_ns):
            continue  # one side was cut short: its blocks have no partners
        subject = pair.project, pair.case_id, pair.implementation, pair.runner_class
        base, head = blocks.setdefault((*subject, pair.base.sha, pair.head.sha), ([], []))
        base.extend(pair.base_blocks_ns)
        head.extend(pair.head_blocks_ns)
    return {key: compare(base, head, threshold=threshold) for key, (base, head) in blocks.items() if base}


def _rules_out(comparison: Comparison, step: detect.Step, verdict: Verdict) -> bool:
    """Whether a paired measurement leaves no room for a step: it says unchanged or the opposite, or its interval
    holds no change at all and ends below half of the step.
    """
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison.verdict is not verdict
    low, high = comparison.relative_interval
    ratio = step.after / step.before
    if verdict is Verdict.REGRESSED:
        return low <= 0 and 1 + high < ratio**0.5
    return high >= 0 and 1 + low > ratio**0.5


class _OfCommit(Protocol):
    @property
    def commit(self) -> CommitRef: ...


_Run = TypeVar("_Run", bound=_OfCommit)


def _beside(runs: Sequence[_Run], levels: _Levels) -> tuple[_Run, _Run] | None:
    """The last run of the old level and the first of the new one; None where a level has none."""
    base, head = ([run for run in runs if level[0] <= run.commit <= level[-1]] for level in levels)
    return (base[-1], head[0]) if base and head else None


def _counter_in_words(change: Change) -> str:
    name = change.metric.removesuffix("_share").removesuffix("_count").replace("_", " ")
    if change.metric.endswith("_share"):
        return f"{name} {change.base:.0%} to {change.head:.0%}"
    if not change.base:
        return f"{name} {change.base:g} to {change.head:g}"
    return f"{name} {change.relative_change:+.0%}"


def _launch_in_words(move: LaunchMove) -> str:
    said = str(move.remark)
    cut = said if len(said) <= _MOST_CHARACTERS else f"{said[: _MOST_CHARACTERS - 1]}…"
    where = "before" if move.change is LaunchChange.GONE else "after"
    return f"{cut} ({move.share:.0%} of a call {where})"


def _and_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
