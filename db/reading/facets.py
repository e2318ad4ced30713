"""By what the results of a project can be narrowed: branches, runner classes, and what is known of its cases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from db.reading.facet_values import CaseFacet, Facets
from db.tables.records import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_RECENT_RUNS = 12
"""Runs that are asked for families and tags: the newest of each runner are among them, and they stay few."""


def read_facets(session: Session, project: str) -> Facets:
    """By what a project can be narrowed, in one statement; nothing where there is no such project."""
    statement = select(_cases(project), _branches(project), _runner_classes(project))
    cases, branches, runner_classes = session.execute(statement).one()
    return Facets(
        cases=tuple(
            CaseFacet(case_id, kernel, dtype, family or "", tuple(tags or ()))
            for case_id, kernel, dtype, family, tags in cases or ()
        ),
        commits_by_branch={branch: frozenset(shas) for branch, shas in branches or ()},
        runner_classes=tuple(sorted(runner_classes or ())),
    )


def _cases(project: str) -> ScalarSelect[Any]:
    """Every case, with its family and tags as the newest run knew it that is asked."""
    recent = (
        select(RunRow.case_version_ids, RunRow.started_at)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(ProjectRow.name == project)
        .order_by(RunRow.started_at.desc())
        .limit(_RECENT_RUNS)
        .cte("recent")
    )
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
        .where(ProjectRow.name == project)
        .scalar_subquery()
    )


def _branches(project: str) -> ScalarSelect[Any]:
    by_branch = (
        select(RunRow.branch, func.array_agg(CommitRow.sha.distinct()).label("shas"))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(ProjectRow.name == project, RunRow.branch.is_not(None))
        .group_by(RunRow.branch)
        .subquery()
    )
    return select(func.json_agg(func.json_build_array(by_branch.c.branch, by_branch.c.shas))).scalar_subquery()


def _runner_classes(project: str) -> ScalarSelect[Any]:
    return (
        select(func.json_agg(EnvironmentRow.runner_class.distinct()))
        .select_from(RunRow)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(ProjectRow.name == project)
        .scalar_subquery()
    )
