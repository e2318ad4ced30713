"""Which two runs to compare for two commits."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from collector.record import Side
from db.reading.runs import find_run
from db.tables.records import CommitRow, ProjectRow, RunRow


def find_runs_to_compare(
    session: Session, project: str, base_sha: str, head_sha: str, *, runner_class: str | None = None
) -> tuple[UUID | None, UUID | None]:
    """Run ids of base and head: of the newest pair that measured just these two commits, else of the run that speaks
    for each. None where a commit has no run.

    Args:
        session: Of the store.
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        runner_class: Only where each was measured by itself on this one; a pair is of one runner anyway.
    """
    paired = None if runner_class is not None else _newest_pair(session, project, base_sha, head_sha)
    if paired is not None:
        return paired
    base, head = (find_run(session, project, sha, runner_class=runner_class) for sha in (base_sha, head_sha))
    return None if base is None else UUID(base.run_id), None if head is None else UUID(head.run_id)


def _newest_pair(session: Session, project: str, base_sha: str, head_sha: str) -> tuple[UUID, UUID] | None:
    base_run, head_run = aliased(RunRow), aliased(RunRow)
    base_commit, head_commit = aliased(CommitRow), aliased(CommitRow)
    query = (
        select(base_run.run_id, head_run.run_id)
        .join(head_run, head_run.pair_id == base_run.pair_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .join(ProjectRow, ProjectRow.id == base_commit.project_id)
        .where(
            ProjectRow.name == project,
            head_commit.project_id == ProjectRow.id,
            base_commit.sha == base_sha,
            head_commit.sha == head_sha,
            base_run.pair_side == Side.BASE.value,
            head_run.pair_side == Side.HEAD.value,
        )
        .order_by(head_run.started_at.desc(), head_run.run_id)
        .limit(1)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])
