"""Projects, commits and runs, and everything that one run found."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, collate, func, or_, select
from sqlalchemy.orm import Session, load_only

from roofwatch.collector.record.machine import Ceiling, Outcome
from roofwatch.db.projects import QUARANTINE, is_quarantine, quarantine_name, record_name
from roofwatch.db.queries.question import Word, Words
from roofwatch.db.queries.results import MeasuredCase, RunDetail, RunSummary, StaticRow
from roofwatch.db.queries.run_filter import is_on, project_id
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CompilationRow,
    MeasurementRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CeilingRow, CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import MeasuredCommit, bound_of

NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.run_id)
_SUMMARY_COLUMNS = (
    *(RunRow.run_id, RunRow.started_at, RunRow.finished_at),
    *(RunRow.harness_version, RunRow.is_dirty, RunRow.pair_id, RunRow.outcome_counts, RunRow.is_unreachable),
)
_PLACE = (RunRow.number, RunRow.series_ids)
"""What the results of a run are found by."""
_CASE_COLUMNS: dict[str, Any] = {
    "case_id": CaseRow.name,
    **{name: getattr(CaseRow, name) for name in ("kernel", "shape", "dtype", "direction")},
    **{name: getattr(CaseVersionRow, name) for name in ("family", "flop_count", "memory_bytes")},
    **{name: getattr(SeriesRow, name) for name in ("implementation", "timer", "cache")},
    **{name: getattr(MeasurementRow, name) for name in ("outcome", "message", "median_ns", "utilisation")},
    **{name: getattr(MeasurementRow, name) for name in ("host_ns", "peak_allocated_bytes")},
    "low_ns": MeasurementRow.q1_ns,
    "high_ns": MeasurementRow.q3_ns,
    "sample_count": func.coalesce(MeasurementRow.sample_count, 0),
}
"""By field of `MeasuredCase`."""
_STATIC_COLUMNS = (
    *(CaseRow.name.label("case_id"), StaticFactRow.implementation, StaticFactRow.function, StaticFactRow.target),
    *(StaticFactRow.outcome, StaticFactRow.message, StaticFactRow.configuration),
    *(StaticFactRow.registers, StaticFactRow.spilled_registers, StaticFactRow.local_bytes, StaticFactRow.shared_bytes),
    *(StaticFactRow.code_bytes, StaticFactRow.code_hash),
)


def list_projects(
    session: Session, *, among: Collection[str] | None = None, after: str = "", limit: int | None = None
) -> list[str]:
    """List project names by code point, without quarantines.

    Args:
        session: Database session.
        among: Only these.
        after: Only names after this one.
        limit: Maximum number of names.
    """
    by_code_point = collate(ProjectRow.name, "C")
    query = select(ProjectRow.name).where(~ProjectRow.name.endswith(QUARANTINE, autoescape=True), by_code_point > after)
    if among is not None:
        query = query.where(ProjectRow.name.in_(among))
    return list(session.scalars(query.order_by(by_code_point).limit(limit)))


def list_commits(session: Session, project: Word, *, runner_classes: Words = ()) -> list[MeasuredCommit]:
    """List the commits with runs in the order of the branch; commits that left the branch come first.

    Args:
        session: Database session.
        project: Project name.
        runner_classes: Only commits measured on these; empty for any.
    """
    unreachable = (
        select(RunRow.commit_id)
        .where(RunRow.project_id == project_id(project))
        .group_by(RunRow.commit_id)
        .having(func.bool_and(RunRow.is_unreachable))
    )
    query = select(CommitRow, CommitRow.id.in_(unreachable)).join(ProjectRow).where(ProjectRow.name == project)
    if runner_classes:
        measured = (
            select(RunRow.commit_id)
            .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
            .where(RunRow.project_id == project_id(project), is_on(project, runner_classes))
        )
        query = query.where(CommitRow.id.in_(measured))
    commits = [
        MeasuredCommit(
            *(row.first_parent_count, row.sha, row.author, row.subject, row.committed_at), is_unreachable=is_unreachable
        )
        for row, is_unreachable in session.execute(query)
    ]
    return sorted(commits, key=lambda commit: (not commit.is_unreachable, commit))


def list_runs(
    session: Session,
    project: str,
    limit: int | None = 50,
    *,
    after: tuple[datetime, UUID] | None = None,
    is_quarantined: bool = False,
) -> list[RunSummary]:
    """List runs of any kind, newest first.

    Args:
        session: Database session.
        project: Project name.
        limit: Maximum number of runs; None for all.
        after: Start time and id of the last run of the previous page.
        is_quarantined: List the project's quarantine instead.
    """
    name = quarantine_name(project) if is_quarantined else project
    query = _runs().where(ProjectRow.name == name).order_by(*NEWEST_FIRST).limit(limit)
    if after is not None:
        time, run_id = after
        query = query.where(or_(RunRow.started_at < time, and_(RunRow.started_at == time, RunRow.run_id > run_id)))
    return [_summary(*row) for row in session.execute(query)]


def read_run_detail(session: Session, run_id: UUID) -> RunDetail | None:
    """Read everything that one run found; None if there is no such run."""
    return next(iter(read_run_details(session, RunRow.run_id == run_id)), None)


def read_run_details(session: Session, condition: ColumnElement[bool]) -> list[RunDetail]:
    """Read everything that some runs found, newest first.

    Args:
        session: Database session.
        condition: On runs, commits and environments; should leave few runs.
    """
    query = _runs(*_PLACE).where(condition).order_by(*NEWEST_FIRST)
    details = []
    for row in session.execute(query).all():
        run = row[0]
        details.append(
            RunDetail(_summary(*row), _ceilings(session, run), list_cases(session, run), _static_rows(session, run))
        )
    return details


def list_cases_of_run(session: Session, run_id: UUID) -> tuple[MeasuredCase, ...]:
    """List the measurements of a stored run."""
    query = select(RunRow).where(RunRow.run_id == run_id).options(load_only(*_PLACE))
    return list_cases(session, session.scalars(query).one())


def list_cases(session: Session, run: RunRow) -> tuple[MeasuredCase, ...]:
    """List the measurements of a run in the order of its record."""
    columns = [column.label(name) for name, column in _CASE_COLUMNS.items()]
    query = (
        select(SeriesRow.id, CaseRow.id, MeasurementRow.is_memory_bound, *columns)
        .select_from(MeasurementRow)
        .join(SeriesRow, SeriesRow.id == MeasurementRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(MeasurementRow.run_number == run.number)
    )
    checks = _checks(session, run)
    cases = {}
    for series_id, case_row_id, is_memory_bound, *values in session.execute(query):
        fields = dict(zip(_CASE_COLUMNS, values, strict=True))
        fields["outcome"] = Outcome(fields["outcome"])
        outcome, rmse_ratio = checks.get((case_row_id, fields["implementation"]), (None, None))
        cases[series_id] = MeasuredCase(
            **fields,
            bound=bound_of(is_memory_bound=is_memory_bound),
            accuracy_outcome=outcome,
            rmse_ratio=rmse_ratio,
        )
    return tuple(cases[series_id] for series_id in run.series_ids)


def projects_of_runs(session: Session, run_ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the project of each stored run; a quarantined run has the project that its record names."""
    query = (
        select(RunRow.run_id, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(RunRow.run_id.in_(run_ids))
    )
    return {run_id: record_name(name) for run_id, name in session.execute(query)}


def projects_of_bisections(session: Session, regression_ids: Collection[UUID]) -> set[str]:
    """Return the projects that have bisections of some regressions."""
    query = (
        select(ProjectRow.name)
        .join(BisectionRow, BisectionRow.project_id == ProjectRow.id)
        .where(BisectionRow.regression_id.in_(regression_ids))
    )
    return set(session.scalars(query))


def _checks(session: Session, run: RunRow) -> dict[tuple[int, str], tuple[Outcome, float | None]]:
    """Read the outcome and the largest error of each check, by case row id and implementation."""
    check, error = AccuracyRow, TensorErrorRow
    outcomes = select(check.case_id, check.implementation, check.outcome).where(check.run_number == run.number)
    errors = (
        select(error.case_id, error.implementation, func.max(error.rmse_ratio))
        .where(error.run_number == run.number)
        .group_by(error.case_id, error.implementation)
    )
    largest = {(case_id, implementation): ratio for case_id, implementation, ratio in session.execute(errors)}
    return {
        (case_id, implementation): (Outcome(outcome), largest.get((case_id, implementation)))
        for case_id, implementation, outcome in session.execute(outcomes)
    }


def _ceilings(session: Session, run: RunRow) -> tuple[Ceiling, ...]:
    """Read measured ceilings; those of the datasheet do not belong in a roofline of measurements."""
    query = (
        select(*(getattr(CeilingRow, name) for name in Ceiling.model_fields))
        .where(CeilingRow.run_id == run.run_id, CeilingRow.source == "measured")
        .order_by(CeilingRow.position)
    )
    return tuple(Ceiling.model_validate(dict(row)) for row in session.execute(query).mappings())


def _static_rows(session: Session, run: RunRow) -> tuple[StaticRow, ...]:
    query = (
        select(*_STATIC_COLUMNS)
        .join(CompilationRow, CompilationRow.static_fact_id == StaticFactRow.id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CompilationRow.run_number == run.number)
        .order_by(CompilationRow.position)
    )
    return tuple(StaticRow(**dict(row._mapping) | {"outcome": Outcome(row.outcome)}) for row in session.execute(query))


def _runs(*more: Any) -> Select[RunRow, CommitRow, str, str, str]:
    """Select runs with the columns of a summary, and some more."""
    return (
        select(RunRow, CommitRow, ProjectRow.name, EnvironmentRow.runner_class, EnvironmentRow.device_name)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .options(load_only(*_SUMMARY_COLUMNS, *more))
    )


def _summary(run: RunRow, commit: CommitRow, name: str, runner_class: str, device_name: str) -> RunSummary:
    return RunSummary(
        run_id=str(run.run_id),
        project=record_name(name),
        is_quarantined=is_quarantine(name),
        commit=commit.to_ref(),
        runner_class=runner_class,
        device_name=device_name,
        started_at=run.started_at,
        finished_at=run.finished_at,
        harness_version=run.harness_version,
        is_dirty=run.is_dirty,
        outcome_counts=run.outcome_counts,
        is_pair_side=run.pair_id is not None,
        is_unreachable=run.is_unreachable,
    )
