"""What records say about a branch on one runner class. Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.history import analyse_series
from roofwatch.ci.suspects import list_suspects
from roofwatch.model.agenda import ChangedRange, Subject, WatchState
from roofwatch.model.history import (
    ChangePoint,
    CommitRef,
    Pair,
    Regression,
    RegressionState,
)
from roofwatch.model.record import RunRecord
from roofwatch.watch.series import TIME, counted_runs, pairs_of, profiled_runs, series_of

_DEFAULT_RUN_S = 600.0
_DEFAULT_CASE_S = 10.0


@dataclass(frozen=True)
class KnownHistory:
    """The state of the branch, and its regressions and improvements."""

    state: WatchState
    regressions: tuple[Regression, ...]


def read_history(
    records: Iterable[RunRecord], commits: Sequence[CommitRef], runner_class: str
) -> KnownHistory:
    """Analyse the records of one project, those of the branch and the runner class.

    Args:
        records: Of one project; others than of the branch and the runner class are left out.
        commits: Of the branch, oldest first.
        runner_class: Of this machine.
    """
    by_sha = {commit.sha: commit for commit in commits}
    own_records = [
        record
        for record in records
        if record.commit.sha in by_sha
        and not record.commit.is_dirty
        and record.environment.runner_class == runner_class
    ]
    series = series_of(own_records, by_sha)
    pairs = pairs_of(own_records, by_sha)
    evidence = SupportingEvidence(
        pairs,
        counted=counted_runs(own_records, by_sha),
        profiled=profiled_runs(own_records, by_sha),
    )
    regressions = tuple(analyse_series(series, evidence).regressions())
    calibrations = [pair.measured_at for pair in pairs if pair.base == pair.head]
    state = WatchState(
        commits=tuple(commits),
        measured=frozenset(record.commit.sha for record in own_records),
        paired=_count_jobs(pairs),
        suspects=tuple(list_suspects(series, pairs)),
        ranges=tuple(_ranges(regressions)),
        calibrated_at=max(calibrations, default=None),
        seconds_of_run=_seconds_of_run(own_records),
        seconds_of_case=_seconds_of_case(own_records),
    )
    return KnownHistory(state, regressions)


def _count_jobs(pairs: Iterable[Pair]) -> Mapping[tuple[str, str], int]:
    jobs = {(pair.base.sha, pair.head.sha, pair.pair_id) for pair in pairs}
    return Counter((base, head) for base, head, _ in jobs)


def _ranges(regressions: Sequence[Regression]) -> list[ChangedRange]:
    """The confirmed changes, by the commits between which they lie."""
    ranges: dict[tuple[CommitRef, CommitRef, bool], set[Subject]] = defaultdict(set)
    for regression in regressions:
        if not regression.is_confirmed or regression.state is not RegressionState.OPEN:
            continue
        for point in regression.change_points:
            subject = (point.series.case_id, point.series.implementation)
            ranges[point.previous_commit, point.commit, _is_timed(point)].add(subject)
    return [
        ChangedRange(subjects=frozenset(subjects), base=base, head=head, is_timed=is_timed)
        for (base, head, is_timed), subjects in ranges.items()
    ]


def _is_timed(point: ChangePoint) -> bool:
    has_both_levels = point.before is not None and point.after is not None
    return point.series.metric == TIME and has_both_levels


def _seconds_of_run(records: Sequence[RunRecord]) -> float:
    durations = [_seconds_of(record) for record in records if record.pairing is None]
    return statistics.median(durations) if durations else _DEFAULT_RUN_S


def _seconds_of_case(records: Sequence[RunRecord]) -> float:
    durations = [
        _seconds_of(record) / len(record.measurements)
        for record in records
        if record.pairing is not None and record.measurements
    ]
    return statistics.median(durations) if durations else _DEFAULT_CASE_S


def _seconds_of(record: RunRecord) -> float:
    return (record.finished_at - record.started_at).total_seconds()
