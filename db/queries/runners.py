"""Runner classes: what is measured on each, their runs on the default branch, and what the newest
of them found.
"""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.schema.measurements import ImportedRow, MeasurementRow, SeriesRow
from roofwatch.db.schema.run_filter import (
    COMMIT_COLUMNS,
    Limit,
    Words,
    is_in_series,
    is_on,
    project_id,
)
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.model.history import CommitRef, Pair, SeriesKey, timing_of
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better
from roofwatch.model.record import Side
from roofwatch.model.stored_results import (
    CaseCoverage,
    RecentRuns,
    RecentSeries,
    RunnerCoverage,
    RunnerRun,
)

_RUNS_THAT_MAY_CHANGE = 6
"""Newest runs that a possible change may begin in; older values are judged."""
_MAX_TIMES = 51
"""Result times per runner class: fifty gaps show the usual interval."""


def list_runner_coverage(
    session: Session,
    project: ProjectName,
    *,
    runner_classes: Words = (),
    branches: Words = (),
) -> list[RunnerCoverage]:
    """List the runner classes that ever gave a result of the project, by name.

    Given runner classes and branches, only runs on one of these, of commits measured on one of
    these, count.
    """
    newest_first = aggregate_order_by(RunRow.run_id, RunRow.started_at.desc())
    # a side of a pair may have measured only some cases, so it says nothing about coverage
    # a pair may have a few cases only, and a modified work tree is no commit
    is_whole = ~RunRow.is_dirty & RunRow.pair_id.is_(None)
    runner = (
        select(
            EnvironmentRow.runner_class,
            func.min(EnvironmentRow.device_name).label("device_name"),
            func.array_agg(aggregate_order_by(RunRow.started_at, RunRow.started_at.desc())).label(
                "times"
            ),
            func.max(CommitRow.committed_at).label("newest_commit_at"),
            func.array_agg(newest_first).filter(is_whole).label("run_ids"),
        )
        .select_from(RunRow)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.project_id == project_id(project), is_on(project, runner_classes, branches))
        .group_by(EnvironmentRow.runner_class)
        .cte("runner")
    )
    times: Any = runner.c.times[1:_MAX_TIMES]
    columns = (
        runner.c.runner_class,
        runner.c.device_name,
        times,
        runner.c.newest_commit_at,
        runner.c.run_ids[1],
    )
    rows = session.execute(select(*columns).order_by(runner.c.runner_class)).all()
    cases: defaultdict[UUID, list[CaseCoverage]] = defaultdict(list)
    run_ids = [row[-1] for row in rows]
    imported = {
        (of_run, case_id): frozenset(map(Outcome, outcomes))
        for of_run, case_id, outcomes in session.execute(_imported_cases(run_ids))
    }
    for of_run, case_id, outcomes, count, degraded_count in session.execute(_cases(run_ids)):
        # a case without any measurement was planned, and has no outcome
        measured_outcomes = frozenset(map(Outcome, outcomes or ()))
        imported_outcomes = imported.get((of_run, case_id), frozenset())
        coverage = CaseCoverage(
            case_id=case_id,
            outcomes=measured_outcomes | imported_outcomes,
            measurement_count=count,
            degraded_count=degraded_count,
        )
        cases[of_run].append(coverage)
    return [
        RunnerCoverage(
            runner_class=runner_class,
            device_name=device_name,
            result_times=tuple(result_times),
            newest_commit_at=newest_commit_at,
            run_id=None if run_id is None else str(run_id),
            cases=tuple(cases[run_id]),
        )
        for runner_class, device_name, result_times, newest_commit_at, run_id in rows
    ]


def read_runner_history(session: Session, project: str) -> dict[str, list[RunnerRun]]:
    """Read runs by runner class, ordered by commit, then by time."""
    runner = EnvironmentRow
    query = (
        select(
            runner.runner_class,
            RunRow.run_id,
            runner.device_name,
            RunRow.started_at,
            RunRow.harness_version,
            *COMMIT_COLUMNS,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(runner, runner.id == RunRow.environment_id)
        .where(is_in_series(project))
        .order_by(
            CommitRow.first_parent_count,
            CommitRow.sha,
            RunRow.started_at,
            RunRow.run_id,
        )
    )
    runs: defaultdict[str, list[RunnerRun]] = defaultdict(list)
    for row in session.execute(query):
        runner_class, run_id, device_name, started_at, harness_version, *commit = row
        run = RunnerRun(
            run_id=run_id,
            device_name=device_name,
            started_at=started_at,
            harness_version=harness_version,
            commit=CommitRef(*commit),
        )
        runs[runner_class].append(run)
    return dict(runs)


def read_recent_runs(
    session: Session,
    project: ProjectName,
    *,
    runner_classes: Words = (),
    limit: Limit = 40,
) -> list[RecentRuns]:
    """Read the successful times, and the values of other tools with a known direction, of the
    newest runs on the default branch, of each runner class or of some.
    """
    rows = _newest_runs(session, project, runner_classes, limit)
    commits: defaultdict[str, list[CommitRef]] = defaultdict(list)
    classes: dict[int, str] = {}
    # position of each run on its class, from the oldest that is read
    place_of: dict[int, int] = {}
    for runner_class, number, *commit, _ in rows:
        place_of[number] = len(commits[runner_class])
        classes[number] = runner_class
        commits[runner_class].append(CommitRef(*commit))
    series_of_class: defaultdict[str, list[RecentSeries]] = defaultdict(list)
    for key, timing, numbers, values in _recent_times(session, project, place_of):
        series = _recent_series(key, timing, [place_of[number] for number in numbers], values)
        series_of_class[key.runner_class].append(series)
    for key, numbers, values in read_recent_imports(session, project, classes):
        if key.is_performance:
            series = _recent_series(key, "", [place_of[number] for number in numbers], values)
            series_of_class[key.runner_class].append(series)
    return [
        RecentRuns(
            runner_class=runner_class,
            commits=tuple(class_commits),
            series=tuple(series_of_class[runner_class]),
            pairs=tuple(_recent_pairs(session, project, runner_class, class_commits)),
        )
        for runner_class, class_commits in sorted(commits.items())
    ]


def _newest_runs(
    session: Session,
    project: str,
    runner_classes: Words,
    limit: int,
) -> Sequence[Any]:
    """Read runner class, number, commit and rank of the newest runs, the oldest first."""
    along = (CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at)
    newest_first = [column.desc() for column in along]
    rank = func.row_number().over(partition_by=EnvironmentRow.runner_class, order_by=newest_first)
    ranked = (
        select(
            EnvironmentRow.runner_class,
            RunRow.number,
            *COMMIT_COLUMNS,
            rank.label("rank"),
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(is_in_series(project), is_on(project, runner_classes))
        .subquery("newest")
    )
    query = select(ranked).where(ranked.c.rank <= limit).order_by(ranked.c.rank.desc())
    return session.execute(query).all()


def _recent_times(
    session: Session,
    project: str,
    run_numbers: Collection[int],
) -> Iterator[tuple[SeriesKey, str, Sequence[int], Sequence[float]]]:
    """Read the times of some runs: of each series, the timing, the runs' numbers and the times."""
    row, series = MeasurementRow, SeriesRow
    subject = (
        CaseRow.name,
        series.implementation,
        series.runner_class,
        series.timer,
        series.cache,
    )
    # one row per series: the database gathers its runs into arrays
    query = (
        select(*subject, func.array_agg(row.run_number), func.array_agg(row.median_ns))
        .select_from(row)
        .join(series, series.id == row.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == series.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(row.run_number.in_(run_numbers), row.median_ns.is_not(None))
        .group_by(*subject)
    )
    for row_of_series in session.execute(query):
        name, implementation, runner_class, timer, cache, numbers, medians_ns = row_of_series
        key = SeriesKey(
            project=project,
            case_id=name,
            implementation=implementation,
            metric="median_ns",
            runner_class=runner_class,
        )
        yield key, timing_of(timer, cache), numbers, [time_ns or 0.0 for time_ns in medians_ns]


def _recent_series(
    key: SeriesKey,
    timing: str,
    places: Sequence[int],
    values: Sequence[float],
) -> RecentSeries:
    """Put the values, which the database gathers in no order, in the order of the runs."""
    in_order = sorted(zip(places, values, strict=True))
    return RecentSeries(
        key=key,
        timing=timing,
        places=tuple(position for position, _ in in_order),
        values=tuple(value for _, value in in_order),
    )


def _recent_pairs(
    session: Session,
    project: str,
    runner_class: str,
    commits: Sequence[CommitRef],
) -> Iterator[Pair]:
    """Read the pairs that may decide what the newest runs of a runner class show."""
    # a change before these runs is judged already
    first = commits[-_RUNS_THAT_MAY_CHANGE:][0]
    pair_ids = (
        select(RunRow.pair_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            RunRow.project_id == project_id(project),
            RunRow.pair_side == Side.HEAD.value,
            EnvironmentRow.runner_class == runner_class,
            CommitRow.first_parent_count >= first.first_parent_count,
        )
    )
    for pair in list_pairs(session, project, pair_ids=pair_ids):
        # samples are many, and the decision is made of the medians of blocks
        yield replace(
            pair,
            base_blocks_ns=_medians_ns(pair.base_blocks_ns),
            head_blocks_ns=_medians_ns(pair.head_blocks_ns),
        )


def _medians_ns(blocks_ns: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple((statistics.median(samples_ns),) for samples_ns in blocks_ns)


def read_recent_imports(
    session: Session,
    project: str,
    classes: Mapping[int, str],
) -> Iterator[tuple[SeriesKey, Sequence[int], Sequence[float]]]:
    """Read the positive values of other tools in some runs, whose runner classes are given by
    number: of each series, the numbers of its runs and their values.
    """
    row = ImportedRow
    query = (
        select(
            CaseRow.name,
            row.implementation,
            row.key,
            EnvironmentRow.runner_class,
            func.array_agg(row.run_number),
            func.array_agg(row.value),
        )
        .join(CaseRow, CaseRow.id == row.case_id)
        .join(RunRow, RunRow.number == row.run_number)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(row.run_number.in_(classes), row.value > 0, row.better != Better.UNKNOWN.value)
        .group_by(
            CaseRow.name,
            row.implementation,
            row.key,
            EnvironmentRow.runner_class,
        )
    )
    for name, implementation, metric, runner_class, numbers, values in session.execute(query):
        key = SeriesKey(
            project=project,
            case_id=name,
            implementation=implementation,
            metric=metric,
            runner_class=runner_class,
        )
        yield key, numbers, [value or 0.0 for value in values]


def _imported_cases(run_ids: Collection[UUID | None]) -> Select[UUID, str, Any]:
    """Select the outcomes of other tools' values for each case of some runs."""
    return (
        select(RunRow.run_id, CaseRow.name, func.array_agg(ImportedRow.outcome.distinct()))
        .join(ImportedRow, ImportedRow.run_number == RunRow.number)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .where(RunRow.run_id.in_(run_ids))
        .group_by(RunRow.run_id, CaseRow.name)
    )


def _cases(run_ids: Collection[UUID | None]) -> Select[UUID, str, Any, int, int]:
    """Select each case of some runs, with its outcomes and its numbers of measurements and of
    degraded ones.
    """
    measured, series = MeasurementRow, SeriesRow
    count = func.count(measured.outcome)
    return (
        select(
            RunRow.run_id,
            CaseRow.name,
            func.array_agg(measured.outcome.distinct()).filter(measured.outcome.is_not(None)),
            count,
            count.filter(measured.is_degraded),
        )
        .select_from(RunRow)
        .join(CaseVersionRow, CaseVersionRow.id == func.any(RunRow.case_version_ids))
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .outerjoin(
            series,
            (series.case_version_id == CaseVersionRow.id)
            & (series.id == func.any(RunRow.series_ids)),
        )
        .outerjoin(
            measured, (measured.run_number == RunRow.number) & (measured.series_id == series.id)
        )
        .where(RunRow.run_id.in_(run_ids))
        .group_by(RunRow.run_id, CaseRow.name)
    )
