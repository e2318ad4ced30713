"""Values that results of a project can be filtered by: branches, runner classes and properties of cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import CTE, ColumnElement, ScalarSelect, Select, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by, distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.projects import QUARANTINE, is_quarantine
from roofwatch.db.queries.results import CaseOption, FilterOptions
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_RECENT_RUNS = 12
"""Runs that case properties are read from: enough to include the newest of each runner."""


def read_filter_options(session: Session, project: str | None) -> FilterOptions:
    """Read the filter options of a project, empty if there is no such project, and the names of all projects.

    Args:
        session: Database session.
        project: Project name; None for the first.
    """
    is_wanted = ProjectRow.name == (_first_project() if project is None else project)
    recent = _recent_runs(is_wanted)
    statement = select(
        _cases(is_wanted, recent),
        _branches(is_wanted),
        _runs(func.json_agg(EnvironmentRow.runner_class.distinct()), is_wanted).scalar_subquery(),
        select(func.json_agg(aggregate_order_by(recent.c.source_lines, recent.c.started_at.desc()))).scalar_subquery(),
        _commit_count(is_wanted),
        select(func.json_agg(aggregate_order_by(ProjectRow.name, ProjectRow.name))).scalar_subquery(),
    )
    cases, branches, runner_classes, source_lines, commit_count, projects = session.execute(statement).one()
    source_files: dict[str, str] = {}
    for lines in reversed(source_lines or ()):
        source_files |= source_files_of(lines or ())
    return FilterOptions(
        cases=tuple(
            CaseOption(case_id, kernel, dtype, family or "", tuple(tags or ()))
            for case_id, kernel, dtype, family, tags in cases or ()
        ),
        commits_by_branch={branch: frozenset(shas) for branch, shas in branches or ()},
        runner_classes=tuple(sorted(runner_classes or ())),
        commit_count=commit_count,
        source_files=source_files,
        projects=tuple(name for name in projects or () if not is_quarantine(name)),
    )


def source_files_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the file of each kernel from a record's source lines; jitted functions take precedence over callers."""
    jitted_first = sorted(lines, key=lambda line: not line.get("is_jitted"))
    return {line["kernel"]: line["file"] for line in reversed(jitted_first)}


def _runs(column: Any, is_wanted: ColumnElement[bool]) -> Select[Any]:
    return (
        select(column)
        .select_from(RunRow)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_wanted)
    )


def _recent_runs(is_wanted: ColumnElement[bool]) -> CTE:
    return (
        select(RunRow.case_version_ids, RunRow.started_at, RunRow.unread_fields["source_lines"].label("source_lines"))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_wanted)
        .order_by(RunRow.started_at.desc())
        .limit(_RECENT_RUNS)
        .cte("recent")
    )


def _cases(is_wanted: ColumnElement[bool], recent: CTE) -> ScalarSelect[Any]:
    """Select every case, with family and tags from the newest recent run."""
    newest = (
        select(CaseVersionRow.case_id, CaseVersionRow.family, CaseVersionRow.tags)
        .join(recent, CaseVersionRow.id == func.any(recent.c.case_version_ids))
        .order_by(CaseVersionRow.case_id, recent.c.started_at.desc())
        .ext(distinct_on(CaseVersionRow.case_id))
        .cte("newest")
    )
    fields = (CaseRow.name, CaseRow.kernel, CaseRow.dtype, newest.c.family, newest.c.tags)
    return (
        select(func.json_agg(func.json_build_array(*fields)))
        .select_from(CaseRow)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .outerjoin(newest, newest.c.case_id == CaseRow.id)
        .where(is_wanted)
        .scalar_subquery()
    )


def _branches(is_wanted: ColumnElement[bool]) -> ScalarSelect[Any]:
    by_branch = (
        _runs(RunRow.branch, is_wanted)
        .add_columns(func.array_agg(CommitRow.sha.distinct()).label("shas"))
        .where(RunRow.branch.is_not(None))
        .group_by(RunRow.branch)
        .subquery()
    )
    return select(func.json_agg(func.json_build_array(by_branch.c.branch, by_branch.c.shas))).scalar_subquery()


def _commit_count(is_wanted: ColumnElement[bool]) -> ScalarSelect[int]:
    commits = select(func.count()).select_from(CommitRow).join(ProjectRow, ProjectRow.id == CommitRow.project_id)
    return commits.where(is_wanted).scalar_subquery()


def _first_project() -> ScalarSelect[str]:
    return (
        select(ProjectRow.name)
        .where(~ProjectRow.name.endswith(QUARANTINE, autoescape=True))
        .order_by(ProjectRow.name)
        .limit(1)
        .scalar_subquery()
    )
