"""Whose the runs and bisections are that a question is about."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from roofwatch.db.projects import record_name
from roofwatch.db.schema.bisections import BisectionRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


def projects_of_runs(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """The project that each run is of, or speaks of from its quarantine, by run; without those that are not stored."""
    query = (
        select(RunRow.run_id, ProjectRow.name)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(RunRow.run_id.in_([UUID(run_id) for run_id in run_ids]))
    )
    return {str(run_id): record_name(name) for run_id, name in session.execute(query)}


def projects_of_bisections(session: Session, regression_ids: Collection[UUID]) -> set[str]:
    """The projects in which there are bisections of these regressions."""
    query = (
        select(ProjectRow.name)
        .join(BisectionRow, BisectionRow.project_id == ProjectRow.id)
        .where(BisectionRow.regression_id.in_(regression_ids))
    )
    return set(session.scalars(query))
