"""By what the results of a project can be narrowed: branches, runner classes, and what is known of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import CTE, ColumnElement, ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by, distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.projects import QUARANTINE, is_quarantine
from roofwatch.db.queries.filter_option_values import CaseFacet, Facets
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_RECENT_RUNS = 12
"""Runs that are asked what they know of their cases: the newest of each runner are among them, and they stay few."""


def read_facets(session: Session, project: str | None) -> Facets:
    """By what a project can be narrowed, and what others there are, in one statement; nothing of it where there is no
    such project.

    Args:
        session: Of the store.
        project: Its name; none for the first of all.
    """
    is_asked = ProjectRow.name == (_first_project() if project is None else project)
    recent = _recent_runs(is_asked)
    statement = select(
        _cases(is_asked, recent),
        _branches(is_asked),
        _runner_classes(is_asked),
        _source_lines(recent),
        _commit_count(is_asked),
        _projects(),
    )
    cases, branches, runner_classes, source_lines, commit_count, projects = session.execute(statement).one()
    return Facets(
        cases=tuple(
            CaseFacet(case_id, kernel, dtype, family or "", tuple(tags or ()))
            for case_id, kernel, dtype, family, tags in cases or ()
        ),
        commits_by_branch={branch: frozenset(shas) for branch, shas in branches or ()},
        runner_classes=tuple(sorted(runner_classes or ())),
        commit_count=commit_count,
        source_files=_newest_files(source_lines or ()),
        projects=tuple(name for name in projects or () if not is_quarantine(name)),
    )


def source_files_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The file of each kernel of a run, from the root of its repository: what Triton compiles before what calls it.

    Args:
        lines: As the record holds them.
    """
    jitted_first = sorted(lines, key=lambda line: not line.get("is_jitted"))
    return {line["kernel"]: line["file"] for line in reversed(jitted_first)}


def _newest_files(lines_of_runs: Sequence[Iterable[Mapping[str, Any]] | None]) -> dict[str, str]:
    """The newest run comes first, and says where a kernel is that it has."""
    files: dict[str, str] = {}
    for lines in reversed(lines_of_runs):
        files |= source_files_of(lines or ())
    return files


def _recent_runs(is_asked: ColumnElement[bool]) -> CTE:
    return (
        select(RunRow.case_version_ids, RunRow.started_at, RunRow.unread_fields["source_lines"].label("source_lines"))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_asked)
        .order_by(RunRow.started_at.desc())
        .limit(_RECENT_RUNS)
        .cte("recent")
    )


def _cases(is_asked: ColumnElement[bool], recent: CTE) -> ScalarSelect[Any]:
    """Every case, with its family and tags as the newest run knew it that is asked."""
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
        .where(is_asked)
        .scalar_subquery()
    )


def _source_lines(recent: CTE) -> ScalarSelect[Any]:
    """A list of lines of each run that is asked, that of the newest first."""
    newest_first = aggregate_order_by(recent.c.source_lines, recent.c.started_at.desc())
    return select(func.json_agg(newest_first)).select_from(recent).scalar_subquery()


def _branches(is_asked: ColumnElement[bool]) -> ScalarSelect[Any]:
    by_branch = (
        select(RunRow.branch, func.array_agg(CommitRow.sha.distinct()).label("shas"))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_asked, RunRow.branch.is_not(None))
        .group_by(RunRow.branch)
        .subquery()
    )
    return select(func.json_agg(func.json_build_array(by_branch.c.branch, by_branch.c.shas))).scalar_subquery()


def _first_project() -> ScalarSelect[str]:
    return (
        select(ProjectRow.name)
        .where(~ProjectRow.name.endswith(QUARANTINE, autoescape=True))
        .order_by(ProjectRow.name)
        .limit(1)
        .scalar_subquery()
    )


def _projects() -> ScalarSelect[Any]:
    """Names of all, in the order of `list_projects`."""
    return select(func.json_agg(aggregate_order_by(ProjectRow.name, ProjectRow.name))).scalar_subquery()


def _commit_count(is_asked: ColumnElement[bool]) -> ScalarSelect[int]:
    return (
        select(func.count())
        .select_from(CommitRow)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_asked)
        .scalar_subquery()
    )


def _runner_classes(is_asked: ColumnElement[bool]) -> ScalarSelect[Any]:
    return (
        select(func.json_agg(EnvironmentRow.runner_class.distinct()))
        .select_from(RunRow)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(is_asked)
        .scalar_subquery()
    )
