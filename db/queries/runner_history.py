"""The runs of each runner on the default branch, and what the newest of them found, for alerts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from roofwatch.db.queries.filter_options import source_files_of
from roofwatch.db.queries.run_filter import is_in_series
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow


@dataclass(frozen=True)
class RunnerRun:
    run_id: UUID
    place: int
    """First-parent count of the commit."""
    started_at: datetime


def read_runner_history(session: Session, project: str) -> dict[str, list[RunnerRun]]:
    """Read runs by runner class, ordered by commit, then by time."""
    query = (
        select(EnvironmentRow.runner_class, RunRow.run_id, CommitRow.first_parent_count, RunRow.started_at)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(is_in_series(project))
        .order_by(CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id)
    )
    runs: defaultdict[str, list[RunnerRun]] = defaultdict(list)
    for runner_class, run_id, place, started_at in session.execute(query):
        runs[runner_class].append(RunnerRun(run_id, place, started_at))
    return dict(runs)


def read_tags(session: Session, run_id: UUID) -> dict[str, frozenset[str]]:
    """Read the tags of a run's cases by case id."""
    query = (
        select(CaseRow.name, CaseVersionRow.tags)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .join(RunRow, CaseVersionRow.id == func.any(RunRow.case_version_ids))
        .where(RunRow.run_id == run_id)
    )
    return {name: frozenset(tags) for name, tags in session.execute(query)}


def read_source_files(session: Session, run_id: UUID) -> dict[str, str]:
    """Read the source file of each kernel of a run, from the root of the repository."""
    stored = session.scalars(select(RunRow.unread_fields["source_lines"]).where(RunRow.run_id == run_id)).one_or_none()
    return source_files_of(stored or ())
