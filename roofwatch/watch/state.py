"""What records say about a branch on one runner class. Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.history import analyse_series
from roofwatch.ci.watching.suspects import list_suspects
from roofwatch.model.agenda import (
    Bridge,
    ChangedRange,
    OpenRegression,
    WatchState,
)
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.history import (
    ChangePoint,
    CommitRef,
    Pair,
    Regression,
    RegressionState,
)
from roofwatch.model.machine import Environment
from roofwatch.model.metrics import TIME
from roofwatch.model.record import RunRecord
from roofwatch.model.run_setting import setting_of
from roofwatch.model.verdict import Verdict
from roofwatch.watch.series import counted_runs, pairs_of, profiled_runs, series_of

_DEFAULT_RUN_S = 600.0
_DEFAULT_CASE_S = 10.0
"""Before anything was measured here."""
_MIN_CASE_S = 0.1
_COMMITS_WITH_EVERY_CASE = 30
"""Measured commits among which each case was timed at least once: a tenth of the carried cases is
timed at each.
"""


@dataclass(frozen=True)
class KnownHistory:
    """The state of the branch, and its regressions and improvements."""

    state: WatchState
    regressions: tuple[Regression, ...]


def read_history(
    records: Iterable[RunRecord],
    commits: Sequence[CommitRef],
    environment: Environment,
) -> KnownHistory:
    """Analyse the records of one project, those of the branch and the runner class.

    Args:
        records: Of one project; others than of the branch and the runner class are left out.
        commits: Of the branch, oldest first.
        environment: Of this machine; runs of other runner classes are left out.
    """
    by_sha = {commit.sha: commit for commit in commits}
    runner_class = environment.runner_class
    own_records = [record for record in records if _is_of_history(record, by_sha, runner_class)]
    series = series_of(own_records, by_sha)
    pairs = pairs_of(own_records, by_sha)
    evidence = SupportingEvidence(
        pairs,
        counted=counted_runs(own_records, by_sha),
        profiled=profiled_runs(own_records, by_sha),
    )
    analysis = analyse_series(series, evidence)
    regressions = tuple(analysis.regressions())
    bridges = _bridges(own_records, by_sha, environment)
    open_regressions = _open_regressions(regressions, own_records, by_sha, pairs)
    state = WatchState(
        commits=tuple(commits),
        measured=frozenset(record.commit.sha for record in own_records),
        paired=_count_jobs(pairs),
        suspects=tuple(list_suspects(series, pairs, bridges)),
        ranges=tuple(_ranges(regressions)),
        regressions=tuple(open_regressions),
        bridges=tuple(bridges),
        timed_at=_times_of_cases(own_records, by_sha),
        calibrated_at=_calibrations_of_cases(pairs),
        seconds_of_run=_seconds_of_run(own_records),
        seconds_of_case=_seconds_of_case(own_records),
    )
    return KnownHistory(state, regressions)


def _is_of_history(record: RunRecord, by_sha: Mapping[str, CommitRef], runner_class: str) -> bool:
    if record.commit.sha not in by_sha or record.environment.runner_class != runner_class:
        return False
    # What was measured must be the code of the commit.
    return not record.commit.is_dirty and record.foreign_code is None


def _bridges(
    records: Sequence[RunRecord],
    by_sha: Mapping[str, CommitRef],
    environment: Environment,
) -> list[Bridge]:
    """Find what other software measured last, and this machine's did not measure at that commit."""
    software = _software_of(environment)
    last_with_other_software: dict[CaseKey, RunRecord] = {}
    measured_here: set[tuple[CaseKey, str]] = set()
    # Of two runs of one case, the newer says more.
    oldest_first = sorted(records, key=lambda record: record.started_at)
    for record in oldest_first:
        is_of_this_machine = _software_of(record.environment) == software
        for measured in record.measurements:
            if not measured.blocks:
                continue
            if is_of_this_machine:
                measured_here.add((measured.case_key, record.commit.sha))
            else:
                last_with_other_software[measured.case_key] = record
    open_subjects: dict[tuple[CommitRef, tuple[str, ...]], set[CaseKey]] = defaultdict(set)
    for subject, record in last_with_other_software.items():
        # Measuring one commit with both shows what the software alone changes.
        if (subject, record.commit.sha) in measured_here:
            continue
        commit = by_sha[record.commit.sha]
        differences = _differences(base=_software_of(record.environment), head=software)
        open_subjects[commit, differences].add(subject)
    bridges: list[Bridge] = []
    for (commit, differences), subjects in open_subjects.items():
        bridge = Bridge(commit=commit, subjects=frozenset(subjects), differences=differences)
        bridges.append(bridge)
    return bridges


def _differences(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[str, ...]:
    """Name what differs between two sets of software, with both versions."""
    differences: list[str] = []
    for name in sorted({*base, *head}):
        base_version = base.get(name, "none")
        head_version = head.get(name, "none")
        if base_version != head_version:
            differences.append(f"{name} {base_version} to {head_version}")
    return tuple(differences)


def _software_of(environment: Environment) -> dict[str, str]:
    """Driver and toolchain by name."""
    setting = setting_of(environment, "")
    software = dict(setting.toolchain)
    if setting.driver_version is not None:
        software["driver"] = setting.driver_version
    return software


def _times_of_cases(
    records: Iterable[RunRecord], by_sha: Mapping[str, CommitRef]
) -> dict[CaseKey, datetime]:
    """When each case of the newest commits was timed last; older ones may be gone."""
    measured_commits = {by_sha[record.commit.sha] for record in records}
    newest_commits = sorted(measured_commits)[-_COMMITS_WITH_EVERY_CASE:]
    newest = frozenset(newest_commits)
    timed_at: dict[CaseKey, datetime] = {}
    for record in records:
        if by_sha[record.commit.sha] not in newest:
            continue
        for measured in record.measurements:
            if measured.blocks:
                _keep_latest(timed_at, measured.case_key, record.started_at)
    return timed_at


def _keep_latest(times: dict[CaseKey, datetime], subject: CaseKey, moment: datetime) -> None:
    previous = times.get(subject)
    if previous is None or moment > previous:
        times[subject] = moment


def _calibrations_of_cases(pairs: Iterable[Pair]) -> dict[CaseKey, datetime]:
    """When each case was last measured as a pair of one commit."""
    calibrated_at: dict[CaseKey, datetime] = {}
    for pair in pairs:
        # Base and head are one commit: their difference is the noise of a pair.
        if pair.base == pair.head:
            _keep_latest(calibrated_at, pair.case_key, pair.measured_at)
    return calibrated_at


def _open_regressions(
    regressions: Sequence[Regression],
    records: Sequence[RunRecord],
    by_sha: Mapping[str, CommitRef],
    pairs: Sequence[Pair],
) -> Iterator[OpenRegression]:
    """List the open regressions of times, with the newest commit that changed their kernel."""
    for regression in regressions:
        # People closed it, or it is fast again.
        is_over = regression.recovered_at is not None
        is_open = regression.state is RegressionState.OPEN and not is_over
        timed_points = [point for point in regression.change_points if _is_timed(point)]
        if regression.verdict is not Verdict.REGRESSED or not is_open or not timed_points:
            continue
        subjects = frozenset(point.series.case_key for point in timed_points)
        kernels = {kernel_of(case_id) for case_id, _ in subjects}
        changed_again_at = _last_change(
            kernels=kernels,
            since=regression.commit,
            records=records,
            by_sha=by_sha,
        )
        # Its kernel has not changed since, so there is nothing new to say.
        if changed_again_at is None:
            continue
        if _is_decided(
            subjects=subjects,
            regressed_at=regression.commit,
            changed_at=changed_again_at,
            pairs=pairs,
        ):
            continue
        yield OpenRegression(
            kernel=regression.kernel,
            subjects=subjects,
            commit=regression.commit,
            changed_again_at=changed_again_at,
        )


def _last_change(
    kernels: Collection[str],
    since: CommitRef,
    records: Iterable[RunRecord],
    by_sha: Mapping[str, CommitRef],
) -> CommitRef | None:
    """The first measured commit after a regression with the newest sources of its kernels; None if
    they did not change since.
    """
    digests: dict[CommitRef, tuple[str | None, ...]] = {}
    for record in records:
        commit = by_sha[record.commit.sha]
        known_digests = tuple(record.source_digests.get(kernel) for kernel in sorted(kernels))
        # A record without digests cannot tell whether the sources changed.
        if commit >= since and None not in known_digests:
            digests[commit] = known_digests
    if since not in digests:
        return None
    changed_at: CommitRef | None = None
    current = digests[since]
    for commit in sorted(digests):
        if digests[commit] != current:
            current = digests[commit]
            changed_at = commit
    # The kernel is as it was when it regressed: it was changed and changed back.
    if current == digests[since]:
        return None
    return changed_at


def _is_decided(
    subjects: Iterable[CaseKey],
    regressed_at: CommitRef,
    changed_at: CommitRef,
    pairs: Sequence[Pair],
) -> bool:
    """Whether pairs over the newest change of a kernel show what it did to all cases."""
    paired = {
        pair.case_key for pair in pairs if regressed_at <= pair.base < changed_at <= pair.head
    }
    return paired.issuperset(subjects)


def _count_jobs(pairs: Iterable[Pair]) -> Mapping[CaseKey, int]:
    # A job has a pair for each case.
    jobs = {(pair.base.sha, pair.head.sha, pair.pair_id) for pair in pairs}
    return Counter((base, head) for base, head, _ in jobs)


def _ranges(regressions: Sequence[Regression]) -> list[ChangedRange]:
    """The confirmed changes, by the commits between which they lie."""
    ranges: dict[tuple[CommitRef, CommitRef, bool], set[CaseKey]] = defaultdict(set)
    for regression in regressions:
        # An unconfirmed change is a suspicion, which has jobs of its own.
        if not regression.is_confirmed or regression.state is not RegressionState.OPEN:
            continue
        for point in regression.change_points:
            subject = point.series.case_key
            ranges[point.previous_commit, point.commit, _is_timed(point)].add(subject)
    return [
        ChangedRange(
            subjects=frozenset(subjects),
            base=base,
            head=head,
            is_timed=is_timed,
        )
        for (base, head, is_timed), subjects in ranges.items()
    ]


def _is_timed(point: ChangePoint) -> bool:
    has_both_levels = point.before is not None and point.after is not None
    return point.series.metric == TIME.key and has_both_levels


def _seconds_of_run(records: Sequence[RunRecord]) -> float:
    # Pairs take as long as their number of blocks, so they are counted by case.
    durations = [_seconds_of(record) for record in records if record.pairing is None]
    if durations:
        return statistics.median(durations)
    return _DEFAULT_RUN_S


def _seconds_of_case(records: Sequence[RunRecord]) -> float:
    durations = [
        _seconds_of(record) / len(record.measurements)
        for record in records
        if record.pairing is not None and record.measurements
    ]
    if not durations:
        return _DEFAULT_CASE_S
    return max(_MIN_CASE_S, statistics.median(durations))


def _seconds_of(record: RunRecord) -> float:
    return (record.finished_at - record.started_at).total_seconds()
