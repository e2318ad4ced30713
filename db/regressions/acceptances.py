"""Acceptances of pull requests: store them, list them, and find what a branch has merged."""

from collections.abc import Collection
from dataclasses import asdict

from pydantic import TypeAdapter
from sqlalchemy import JSON, Engine, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.schema.regressions import AcceptanceRow
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.db.schema.table import to_value
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.record import MergedPullRequest

_MERGED = TypeAdapter(list[MergedPullRequest])


def store_acceptance(
    engine: Engine,
    project: str,
    acceptance: PullRequestAcceptance,
    actor: str,
) -> bool:
    """Store an acceptance, or for which commit it holds now; return False if that was stored.

    The project is analysed again, for regressions that are known already.
    """
    with Session(engine) as session, session.begin():
        session.execute(upsert(ProjectRow).values(name=project).on_conflict_do_nothing())
        number = session.scalars(select(ProjectRow.id).where(ProjectRow.name == project)).one()
        insert = upsert(AcceptanceRow).values(project_id=number, **asdict(acceptance))
        updated = insert.on_conflict_do_update(
            index_elements=["project_id", "pull_request", "comment_id"],
            set_={"head_sha": insert.excluded.head_sha},
            where=AcceptanceRow.head_sha != insert.excluded.head_sha,
        )
        if session.execute(updated.returning(AcceptanceRow.id)).one_or_none() is None:
            return False
        add_entry(
            session,
            actor=actor,
            person=acceptance.person,
            action="acceptance.store",
            project=project,
            subject=acceptance.pull_request,
            after=acceptance.head_sha,
            reason=acceptance.reason,
        )
        session.execute(
            update(ProjectRow)
            .where(ProjectRow.id == number)
            .values(analysis_requested_at=func.clock_timestamp())
        )
    return True


def list_acceptances(session: Session, project: ProjectName) -> list[PullRequestAcceptance]:
    """Acceptances of a project, the newest first."""
    query = (
        select(AcceptanceRow)
        .where(AcceptanceRow.project_id == project_id(project))
        .order_by(AcceptanceRow.accepted_at.desc(), AcceptanceRow.id.desc())
    )
    return [to_value(PullRequestAcceptance, row) for row in session.scalars(query)]


def list_merged(
    session: Session,
    project: str,
    shas: Collection[str],
) -> dict[str, list[MergedPullRequest]]:
    """Pull requests that the records of some commits of the main branch name, by commit."""
    # a commit may be measured in pairs alone, which are part of no series
    merged = func.json_extract_path(RunRow.document, "commit", "merged", type_=JSON)
    query = (
        select(CommitRow.sha, merged)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(
            RunRow.project_id == project_id(project),
            CommitRow.sha.in_(shas),
            merged.is_not(None),
        )
    )
    changes: dict[str, list[MergedPullRequest]] = {}
    for sha, document in session.execute(query):
        listed = _MERGED.validate_python(document)
        # a shallow clone lists fewer
        if len(listed) > len(changes.get(sha, ())):
            changes[sha] = listed
    return changes
