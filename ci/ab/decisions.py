"""What the pairs of a branch say together about each case. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from roofwatch.ci.ab.compare import PairedEstimate, compare, look_number
from roofwatch.ci.agenda import MAX_PAIR_JOBS
from roofwatch.model.agenda import SuspectCase
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import CommitRef, Pair
from roofwatch.model.verdict import THRESHOLDS, Verdict

_JOBS_THAT_DECIDE = 2
"""Jobs that must show a change before it is news: a disturbed machine can falsify one."""
MOST_BLOCKS = 40
"""Of one job; what is undecided then is left to another one, at another time."""

_PairKey = tuple[CaseKey, CommitRef, CommitRef]


class Decisions:
    """What the pairs of each case and two commits say together."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs: dict[_PairKey, list[Pair]] = defaultdict(list)
        for pair in pairs:
            # a base that is newer than its head says nothing about the head
            if _is_whole(pair) and pair.base < pair.head:
                self._pairs[pair.case_key, pair.base, pair.head].append(pair)
        self._comparisons: dict[_PairKey, PairedEstimate] = {}
        for key, same_pairs in self._pairs.items():
            self._comparisons[key] = _compared(same_pairs)
        self._last_decided: dict[CaseKey, CommitRef] = {}
        self._last_changed: dict[CaseKey, CommitRef] = {}
        # sorted by commit, so the newest one is written last
        for subject, base, head in sorted(self._pairs, key=_head_of):
            if self.is_decided(subject, base, head):
                self._last_decided[subject] = head
            if self.is_changed(subject, base, head):
                self._last_changed[subject] = head

    def last_decided(self, subject: CaseKey) -> CommitRef | None:
        """The newest commit that a pair of a case explains: a difference between its values from
        there on and older ones is no news.
        """
        return self._last_decided.get(subject)

    def last_changed(self, subject: CaseKey) -> CommitRef | None:
        """The newest commit that changed the time of a case."""
        return self._last_changed.get(subject)

    def is_decided(self, subject: CaseKey, base: CommitRef, head: CommitRef) -> bool:
        """Whether the pairs say that nothing changed, or enough of them what changed."""
        if (subject, base, head) not in self._pairs:
            return False
        verdict = self._comparisons[subject, base, head].verdict
        if verdict.is_change:
            return self._count_agreeing(subject, base, head, verdict) >= _JOBS_THAT_DECIDE
        return verdict is Verdict.UNCHANGED

    def refutes(
        self,
        subject: CaseKey,
        base: CommitRef,
        head: CommitRef,
        log_change: float,
    ) -> bool:
        """Whether the pairs exclude a change of this size and show none, verdict or not."""
        comparison = self._comparisons.get((subject, base, head))
        if comparison is None:
            return False
        low, high = comparison.log_interval
        is_none_possible = low <= 0 <= high
        is_size_possible = low <= log_change <= high
        return is_none_possible and not is_size_possible

    def is_changed(self, subject: CaseKey, base: CommitRef, head: CommitRef) -> bool:
        """Whether the pairs say that the time changed."""
        is_decided = self.is_decided(subject, base, head)
        return is_decided and self._comparisons[subject, base, head].verdict.is_change

    def is_given_up(self, subject: CaseKey, base: CommitRef, head: CommitRef) -> bool:
        """Whether so many pairs were undecided that another one would not help."""
        is_open = not self.is_decided(subject, base, head)
        if not is_open:
            return False
        return _job_count(self._pairs.get((subject, base, head), ())) >= MAX_PAIR_JOBS

    def _count_agreeing(
        self,
        subject: CaseKey,
        base: CommitRef,
        head: CommitRef,
        verdict: Verdict,
    ) -> int:
        """Count the jobs with this verdict whose commits overlap."""
        count = 0
        for key, pairs in self._pairs.items():
            other_subject, other_base, other_head = key
            if other_subject != subject:
                continue
            # pairs of other commits say nothing about these
            do_overlap = base < other_head and other_base < head
            if do_overlap and self._comparisons[key].verdict is verdict:
                count += _job_count(pairs)
        return count

    def open_changes(self) -> Iterator[SuspectCase]:
        """List the changes that one job shows, and those that pairs make likely."""
        for key, comparison in self._comparisons.items():
            if self.is_decided(*key) or not shows_change(comparison):
                continue
            subject, base, head = key
            same_pairs = self._pairs[key]
            is_given_up = self.is_given_up(*key)
            reason = "another one decides"
            if is_given_up:
                reason = "could not decide it"
            yield SuspectCase(
                subject=subject,
                evidence=f"{_size_in_words(comparison, _job_count(same_pairs))}; {reason}",
                weight=_standard_errors(comparison),
                base=base,
                head=head,
                since=min(pair.measured_at for pair in same_pairs),
                is_given_up=is_given_up,
            )


def _is_whole(pair: Pair) -> bool:
    """Whether each block has its partner: a pair that was cut short has blocks without one."""
    block_count = len(pair.base_blocks_ns)
    return block_count > 0 and block_count == len(pair.head_blocks_ns)


def _head_of(key: _PairKey) -> CommitRef:
    _, _, head = key
    return head


def _size_in_words(comparison: PairedEstimate, job_count: int) -> str:
    low, high = comparison.relative_interval
    pairs = "one pair"
    if job_count != 1:
        pairs = f"{job_count} pairs"
    return f"{comparison.relative_change:+.1%} ({low:+.1%} to {high:+.1%}) in {pairs}"


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


def _compared(pairs: Sequence[Pair]) -> PairedEstimate:
    base_blocks_ns: list[Sequence[float]] = []
    head_blocks_ns: list[Sequence[float]] = []
    for pair in pairs:
        base_blocks_ns.extend(pair.base_blocks_ns)
        head_blocks_ns.extend(pair.head_blocks_ns)
    return compare(base_blocks_ns, head_blocks_ns, threshold=THRESHOLDS.relative_change)


def _job_count(pairs: Sequence[Pair]) -> int:
    return len({pair.pair_id for pair in pairs})
