"""What records say about a branch on one runner class. Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.history import analyse_series
from roofwatch.ci.watching.suspects import list_suspects
from roofwatch.model.agenda import Bridge, ChangedRange, Subject, WatchState
from roofwatch.model.history import (
    ChangePoint,
    CommitRef,
    Pair,
    Regression,
    RegressionState,
)
from roofwatch.model.machine import Environment
from roofwatch.model.record import RunRecord
from roofwatch.model.run_setting import setting_of
from roofwatch.watch.series import TIME, counted_runs, pairs_of, profiled_runs, series_of

_DEFAULT_RUN_S = 600.0
_DEFAULT_CASE_S = 10.0


@dataclass(frozen=True)
class KnownHistory:
    """The state of the branch, and its regressions and improvements."""

    state: WatchState
    regressions: tuple[Regression, ...]


def read_history(
    records: Iterable[RunRecord], commits: Sequence[CommitRef], environment: Environment
) -> KnownHistory:
    """Analyse the records of one project, those of the branch and the runner class.

    Args:
        records: Of one project; others than of the branch and the runner class are left out.
        commits: Of the branch, oldest first.
        environment: Of this machine; runs of other runner classes are left out.
    """
    by_sha = {commit.sha: commit for commit in commits}
    own_records = [
        record
        for record in records
        if record.commit.sha in by_sha
        and not record.commit.is_dirty
        and record.foreign_code is None
        and record.environment.runner_class == environment.runner_class
    ]
    series = series_of(own_records, by_sha)
    pairs = pairs_of(own_records, by_sha)
    evidence = SupportingEvidence(
        pairs,
        counted=counted_runs(own_records, by_sha),
        profiled=profiled_runs(own_records, by_sha),
    )
    regressions = tuple(analyse_series(series, evidence).regressions())
    bridges = _bridges(own_records, by_sha, environment)
    calibrations = [pair.measured_at for pair in pairs if pair.base == pair.head]
    state = WatchState(
        commits=tuple(commits),
        measured=frozenset(record.commit.sha for record in own_records),
        paired=_count_jobs(pairs),
        suspects=tuple(list_suspects(series, pairs, bridges)),
        ranges=tuple(_ranges(regressions)),
        bridges=tuple(bridges),
        calibrated_at=max(calibrations, default=None),
        seconds_of_run=_seconds_of_run(own_records),
        seconds_of_case=_seconds_of_case(own_records),
    )
    return KnownHistory(state, regressions)


def _bridges(
    records: Sequence[RunRecord], by_sha: Mapping[str, CommitRef], environment: Environment
) -> list[Bridge]:
    """Find what other software measured last, and this machine's did not measure at that commit."""
    software = _software_of(environment)
    earlier: dict[Subject, RunRecord] = {}
    measured_now: set[tuple[Subject, str]] = set()
    for record in sorted(records, key=lambda record: record.started_at):
        is_earlier = _software_of(record.environment) != software
        for measured in record.measurements:
            subject = (measured.case_id, measured.implementation)
            if not measured.blocks:
                continue
            if is_earlier:
                earlier[subject] = record
            else:
                measured_now.add((subject, record.commit.sha))
    open_subjects: dict[tuple[CommitRef, tuple[str, ...]], set[Subject]] = defaultdict(set)
    for subject, record in earlier.items():
        if (subject, record.commit.sha) not in measured_now:
            differences = _differences(_software_of(record.environment), software)
            open_subjects[by_sha[record.commit.sha], differences].add(subject)
    return [
        Bridge(commit=commit, subjects=frozenset(subjects), differences=differences)
        for (commit, differences), subjects in open_subjects.items()
    ]


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{name} {before.get(name, 'none')} to {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def _software_of(environment: Environment) -> dict[str, str]:
    """Driver and toolchain by name."""
    setting = setting_of(environment, "")
    software = dict(setting.toolchain)
    if setting.driver_version is not None:
        software["driver"] = setting.driver_version
    return software


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
