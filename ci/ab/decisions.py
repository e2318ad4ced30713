"""What the pairs of a branch say together about each case. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofwatch.ci.ab.compare import (
    SAME_CODE_REASONS,
    PairedEstimate,
    compare_pairs,
    look_number,
)
from roofwatch.ci.agenda import MAX_PAIR_JOBS
from roofwatch.model.agenda import SuspectCase
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import CommitRef, Pair
from roofwatch.model.verdict import THRESHOLDS, Verdict

_JOBS_THAT_DECIDE = 2
"""Jobs that must show a change before it is news: a disturbed machine can falsify one."""
MOST_BLOCKS = 40
"""Of one job; what is undecided then is left to another one, at another time."""


class PairedCase(NamedTuple):
    """A case, and the two commits that its pairs measured."""

    subject: CaseKey
    base: CommitRef
    head: CommitRef

    def overlaps(self, other_pair: "PairedCase") -> bool:
        """Whether pairs of the same case have commits in common."""
        if self.subject != other_pair.subject:
            return False
        # ranges of commits that end where the other begins have none in common
        begins_inside = self.base < other_pair.head
        return begins_inside and other_pair.base < self.head


class Decisions:
    """What the pairs of each case and two commits say together."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        # a base that is newer than its head says nothing about the head
        usable = [pair for pair in pairs if pair.is_whole and pair.base < pair.head]
        self._pairs = group_by(usable, _paired_case)
        self._comparisons: dict[PairedCase, PairedEstimate] = {}
        for paired, same_pairs in self._pairs.items():
            self._comparisons[paired] = compare_pairs(same_pairs)
        self._last_decided: dict[CaseKey, CommitRef] = {}
        self._last_changed: dict[CaseKey, CommitRef] = {}
        # the newest one is written last
        for paired in sorted(self._pairs, key=lambda paired: paired.head):
            if self.is_decided(paired):
                self._last_decided[paired.subject] = paired.head
            if self.is_changed(paired):
                self._last_changed[paired.subject] = paired.head

    def last_decided(self, subject: CaseKey) -> CommitRef | None:
        """The newest commit that a pair of a case explains: a difference between its values from
        there on and older ones is no news.
        """
        return self._last_decided.get(subject)

    def last_changed(self, subject: CaseKey) -> CommitRef | None:
        """The newest commit that changed the time of a case."""
        return self._last_changed.get(subject)

    def is_decided(self, paired: PairedCase) -> bool:
        """Whether the pairs say that nothing changed, or enough of them what changed."""
        comparison = self._comparisons.get(paired)
        if comparison is None:
            return False
        if comparison.verdict.is_change:
            return self._count_agreeing(paired, comparison.verdict) >= _JOBS_THAT_DECIDE
        # the same code needs no other pair: it is no change of these commits
        is_same_code = comparison.reason in SAME_CODE_REASONS
        return is_same_code or comparison.verdict is Verdict.UNCHANGED

    def refutes(self, paired: PairedCase, log_change: float) -> bool:
        """Whether the pairs exclude a change of this size and show none, verdict or not."""
        comparison = self._comparisons.get(paired)
        if comparison is None:
            return False
        low, high = comparison.log_interval
        is_none_possible = low <= 0 <= high
        is_size_possible = low <= log_change <= high
        return is_none_possible and not is_size_possible

    def is_changed(self, paired: PairedCase) -> bool:
        """Whether the pairs say that the time changed."""
        return self.is_decided(paired) and self._comparisons[paired].verdict.is_change

    def is_given_up(self, paired: PairedCase) -> bool:
        """Whether so many pairs were undecided that another one would not help."""
        if self.is_decided(paired):
            return False
        return _job_count(self._pairs.get(paired, ())) >= MAX_PAIR_JOBS

    def _count_agreeing(self, paired: PairedCase, verdict: Verdict) -> int:
        """Count the jobs with this verdict whose commits overlap."""
        count = 0
        for other_pair, pairs in self._pairs.items():
            # pairs of other commits say nothing about these
            if not paired.overlaps(other_pair):
                continue
            if self._comparisons[other_pair].verdict is verdict:
                count += _job_count(pairs)
        return count

    def open_changes(self) -> Iterator[SuspectCase]:
        """List the changes that one job shows, and those that pairs make likely."""
        for paired, comparison in self._comparisons.items():
            if self.is_decided(paired) or not shows_change(comparison):
                continue
            same_pairs = self._pairs[paired]
            is_given_up = self.is_given_up(paired)
            reason = "another one decides"
            if is_given_up:
                reason = "could not decide it"
            yield SuspectCase(
                subject=paired.subject,
                evidence=f"{_size_in_words(comparison, _job_count(same_pairs))}; {reason}",
                weight=_standard_errors(comparison),
                base=paired.base,
                head=paired.head,
                since=min(pair.measured_at for pair in same_pairs),
                is_given_up=is_given_up,
            )


def _paired_case(pair: Pair) -> PairedCase:
    return PairedCase(
        subject=pair.case_key,
        base=pair.base,
        head=pair.head,
    )


def _size_in_words(comparison: PairedEstimate, job_count: int) -> str:
    low, high = comparison.relative_interval
    pairs = "one pair"
    if job_count != 1:
        pairs = f"{job_count} pairs"
    interval = f"{low:+.1%} to {high:+.1%}"
    return f"{comparison.relative_change:+.1%} ({interval}) in {pairs}"


def _standard_errors(comparison: PairedEstimate) -> float:
    """Size of a change in standard errors; 0 if it has none."""
    low, high = comparison.log_interval
    # the interval is four standard errors wide
    error = (high - low) / 4
    if error <= 0:
        return 0.0
    return abs(comparison.log_ratio) / error


def shows_change(comparison: PairedEstimate) -> bool:
    """Whether a comparison shows a change rather than none, decided or not."""
    return comparison.is_significant and _is_beyond_threshold(comparison)


def helps_decide(comparison: PairedEstimate) -> bool:
    """Whether a runner that looks for changes measures more blocks in the same job: while they may
    turn a likely change into a verdict, and once more after the first interim analysis.
    """
    if comparison.block_count >= MOST_BLOCKS:
        return False
    # a difference that nobody would report needs no verdict
    if not _is_beyond_threshold(comparison):
        return False
    is_first_look = look_number(comparison.block_count) == 1
    return comparison.verdict is Verdict.INCONCLUSIVE or is_first_look


def _is_beyond_threshold(comparison: PairedEstimate) -> bool:
    return abs(comparison.log_ratio) > math.log1p(THRESHOLDS.relative_change)


def _job_count(pairs: Sequence[Pair]) -> int:
    return len({pair.pair_id for pair in pairs})
