"""Suspicions that no pair has decided yet. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from roofwatch.ci.ab.decisions import Decisions, PairedCase
from roofwatch.ci.agenda import MAX_PAIR_JOBS
from roofwatch.ci.changepoint.suspicion import find_suspicion
from roofwatch.ci.history.bridges import values_across_bridges
from roofwatch.ci.history.steps import TIME, timelines
from roofwatch.model.agenda import Bridge, SuspectCase, Suspicion
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import CommitRef, Pair, Series
from roofwatch.model.verdict import THRESHOLDS


def list_suspects(
    series: Sequence[Series],
    pairs: Sequence[Pair],
    bridges: Sequence[Bridge] = (),
) -> list[SuspectCase]:
    """List the cases whose newest values left their level, and the changes that one pair shows.

    A suspicion across an open bridge waits for it: the software may explain the change. After a
    pair has decided, only values since then are evidence.
    """
    decisions = Decisions(pairs)
    suspects = list(decisions.open_changes())
    listed = {_paired_case(suspect) for suspect in suspects}
    for one_series in series:
        suspect = _suspect(one_series, decisions)
        if suspect is None or any(_is_across(suspect, bridge) for bridge in bridges):
            continue
        paired = _paired_case(suspect)
        if paired in listed:
            continue
        if decisions.is_given_up(paired):
            evidence = f"{suspect.evidence}; {MAX_PAIR_JOBS} pairs could not decide it"
            suspect = replace(
                suspect,
                evidence=evidence,
                is_given_up=True,
            )
        suspects.append(suspect)
    return suspects


def _paired_case(suspect: SuspectCase) -> PairedCase:
    return PairedCase(
        subject=suspect.subject,
        base=suspect.base,
        head=suspect.head,
    )


def _is_across(suspect: SuspectCase, bridge: Bridge) -> bool:
    if suspect.subject not in bridge.subjects:
        return False
    return suspect.base <= bridge.commit < suspect.head


def _suspect(series: Series, decisions: Decisions) -> SuspectCase | None:
    if series.key.metric != TIME:
        return None
    lines = timelines(series)
    if not lines:
        return None
    line = lines[0]
    subject = series.key.case_key
    suspicion = suspicion_of(
        values=values_across_bridges(line),
        commits=line.commits,
        subject=subject,
        decisions=decisions,
    )
    if suspicion is None:
        return None
    head = line.commits[-suspicion.value_count]
    return SuspectCase(
        subject=subject,
        evidence=suspicion.in_words(),
        weight=suspicion.noise_widths,
        base=line.commits[-suspicion.value_count - 1],
        head=head,
        since=min(run.measured_at for run in line.points[head]),
    )


def suspicion_of(
    values: Sequence[float],
    commits: Sequence[CommitRef],
    subject: CaseKey,
    decisions: Decisions,
) -> Suspicion | None:
    """Find what is suspicious in the newest values of a case, and no pair has decided or refuted.

    They must differ from the level since the last change, and from the values since the last pair.
    """

    def since(decided_at: CommitRef | None) -> Suspicion | None:
        level_start = 0
        if decided_at is not None:
            level_start = bisect_left(commits, decided_at)
        return find_suspicion(
            values,
            min_relative_change=THRESHOLDS.relative_change,
            level_start=level_start,
        )

    suspicion = since(decisions.last_changed(subject))
    decided_at = decisions.last_decided(subject)
    if suspicion is not None and decided_at is not None:
        suspicion = since(decided_at)
    if suspicion is None:
        return None
    paired = PairedCase(
        subject=subject,
        base=commits[-suspicion.value_count - 1],
        head=commits[-suspicion.value_count],
    )
    if decisions.is_decided(paired) or decisions.refutes(paired, suspicion.log_change):
        return None
    return suspicion
