"""Suspicions that no pair has decided yet. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from roofwatch.ci.ab.decisions import Decisions
from roofwatch.ci.agenda import MAX_PAIR_JOBS
from roofwatch.ci.changepoint.suspicion import find_suspicion
from roofwatch.ci.history.bridges import values_across_bridges
from roofwatch.ci.history.steps import TIME, timelines
from roofwatch.model.agenda import Bridge, SuspectCase
from roofwatch.model.history import Pair, Series
from roofwatch.model.verdict import THRESHOLDS


def list_suspects(
    series: Sequence[Series], pairs: Sequence[Pair], bridges: Sequence[Bridge] = ()
) -> list[SuspectCase]:
    """List the cases whose newest values left their level, and the changes that one pair shows.

    A suspicion across an open bridge waits for it: the software may explain the change. After a
    pair has decided, only values since then are evidence.
    """
    decisions = Decisions(pairs)
    suspects = list(decisions.open_changes())
    listed = {(suspect.subject, suspect.base, suspect.head) for suspect in suspects}
    for one_series in series:
        suspect = _suspect(one_series, decisions)
        if suspect is None or any(_is_across(suspect, bridge) for bridge in bridges):
            continue
        commits = (suspect.subject, suspect.base, suspect.head)
        if commits in listed or decisions.is_decided(*commits):
            continue
        if decisions.is_given_up(*commits):
            evidence = f"{suspect.evidence}; {MAX_PAIR_JOBS} pairs could not decide it"
            suspect = replace(suspect, evidence=evidence, is_given_up=True)
        suspects.append(suspect)
    return suspects


def _is_across(suspect: SuspectCase, bridge: Bridge) -> bool:
    return suspect.subject in bridge.subjects and suspect.base <= bridge.commit < suspect.head


def _suspect(series: Series, decisions: Decisions) -> SuspectCase | None:
    if series.key.metric != TIME:
        return None
    lines = timelines(series)
    if not lines:
        return None
    line = lines[0]
    subject = (series.key.case_id, series.key.implementation)
    last_decided = decisions.last_decided(subject)
    suspicion = find_suspicion(
        values_across_bridges(line),
        min_relative_change=THRESHOLDS.relative_change,
        level_start=0 if last_decided is None else bisect_left(line.commits, last_decided),
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
