"""Suspicions that no pair has decided yet. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.agenda import MAX_PAIR_JOBS
from roofwatch.ci.changepoint.suspicion import find_suspicion
from roofwatch.ci.history.bridges import values_across_bridges
from roofwatch.ci.history.steps import TIME, timelines
from roofwatch.model.agenda import Bridge, Subject, SuspectCase
from roofwatch.model.history import CommitRef, Pair, Series
from roofwatch.model.verdict import THRESHOLDS, Verdict

_JOBS_THAT_DECIDE = 2
"""Jobs that must show a change before it is news: a disturbed machine can falsify one."""
_CHANGED = (Verdict.REGRESSED, Verdict.IMPROVED)


class Decisions:
    """What the pairs of each case and two commits say together."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs: dict[tuple[Subject, CommitRef, CommitRef], list[Pair]] = defaultdict(list)
        for pair in pairs:
            is_whole = len(pair.base_blocks_ns) == len(pair.head_blocks_ns) > 0
            if is_whole and pair.base < pair.head:
                subject = (pair.case_id, pair.implementation)
                self._pairs[subject, pair.base, pair.head].append(pair)
        self._comparisons = {key: _compared(pairs) for key, pairs in self._pairs.items()}

    def is_open(self, subject: Subject, base: CommitRef, head: CommitRef) -> bool:
        """Whether another pair would help: none was measured, it is undecided, or only one job
        shows the change.
        """
        pairs = self._pairs.get((subject, base, head))
        if pairs is None:
            return True
        verdict = self._comparisons[subject, base, head].verdict
        if verdict is Verdict.UNCHANGED:
            return False
        if verdict in _CHANGED:
            return self._count_agreeing(subject, base, head, verdict) < _JOBS_THAT_DECIDE
        return _job_count(pairs) < MAX_PAIR_JOBS

    def _count_agreeing(
        self, subject: Subject, base: CommitRef, head: CommitRef, verdict: Verdict
    ) -> int:
        """Count the jobs with this verdict whose commits overlap."""
        count = 0
        for (other_subject, other_base, other_head), pairs in self._pairs.items():
            if other_subject != subject or other_head <= base or head <= other_base:
                continue
            if self._comparisons[other_subject, other_base, other_head].verdict is verdict:
                count += _job_count(pairs)
        return count

    def open_changes(self) -> Iterator[SuspectCase]:
        """List the changes that one job shows."""
        for (subject, base, head), comparison in self._comparisons.items():
            if comparison.verdict not in _CHANGED or not self.is_open(subject, base, head):
                continue
            low, high = comparison.relative_interval
            error = (comparison.log_interval[1] - comparison.log_interval[0]) / 4
            yield SuspectCase(
                subject=subject,
                evidence=(
                    f"{comparison.relative_change:+.1%} ({low:+.1%} to {high:+.1%}) "
                    "in one pair, which a second one confirms"
                ),
                weight=abs(comparison.log_ratio) / error if error > 0 else 0.0,
                base=base,
                head=head,
                since=min(pair.measured_at for pair in self._pairs[subject, base, head]),
            )


def _compared(pairs: Sequence[Pair]) -> Comparison:
    base_blocks_ns: list[Sequence[float]] = []
    head_blocks_ns: list[Sequence[float]] = []
    for pair in pairs:
        base_blocks_ns.extend(pair.base_blocks_ns)
        head_blocks_ns.extend(pair.head_blocks_ns)
    return compare(base_blocks_ns, head_blocks_ns, threshold=THRESHOLDS.relative_change)


def _job_count(pairs: Sequence[Pair]) -> int:
    return len({pair.pair_id for pair in pairs})


def list_suspects(
    series: Sequence[Series], pairs: Sequence[Pair], bridges: Sequence[Bridge] = ()
) -> list[SuspectCase]:
    """List the cases whose newest values left their level, and the changes that one pair shows.

    A suspicion across an open bridge waits for it: the software may explain the change.
    """
    decisions = Decisions(pairs)
    suspects = list(decisions.open_changes())
    listed = {(suspect.subject, suspect.base, suspect.head) for suspect in suspects}
    for one_series in series:
        suspect = _suspect(one_series)
        if suspect is None:
            continue
        commits = (suspect.subject, suspect.base, suspect.head)
        if any(_is_across(suspect, bridge) for bridge in bridges):
            continue
        if commits not in listed and decisions.is_open(*commits):
            suspects.append(suspect)
    return suspects


def _is_across(suspect: SuspectCase, bridge: Bridge) -> bool:
    return suspect.subject in bridge.subjects and suspect.base <= bridge.commit < suspect.head


def _suspect(series: Series) -> SuspectCase | None:
    if series.key.metric != TIME:
        return None
    lines = timelines(series)
    if not lines:
        return None
    line = lines[0]
    values = values_across_bridges(line)
    suspicion = find_suspicion(values, min_relative_change=THRESHOLDS.relative_change)
    if suspicion is None:
        return None
    head = line.commits[-suspicion.value_count]
    return SuspectCase(
        subject=(series.key.case_id, series.key.implementation),
        evidence=suspicion.in_words(),
        weight=suspicion.noise_widths,
        base=line.commits[-suspicion.value_count - 1],
        head=head,
        since=min(run.measured_at for run in line.points[head]),
    )
