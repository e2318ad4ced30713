"""Let a run out of quarantine, once somebody vouches for it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine, delete, select, update
from sqlalchemy.orm import Session

from roofwatch.db.artefacts import link_contents, list_artefacts
from roofwatch.db.auth.audit import add_entry
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import lock_run, store_record
from roofwatch.db.maintenance.as_sent import load_as_sent
from roofwatch.db.projects import is_quarantine, record_name
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


class NotQuarantinedError(StoreError):
    """The run counts already."""


def release_run(engine: Engine, run_id: UUID, *, actor: str, person: str, reason: str) -> None:
    """Make a run one of its project.

    Args:
        engine: Of the store.
        run_id: Of a run that is stored.
        actor: Who was let in.
        person: Who vouches for the record.
        reason: Why.

    Raises:
        NotQuarantinedError: the run counts already.
        IngestError: the project knows a case of it by another meaning.
        AgedError: its samples are no longer kept.
        StoreError: no such run.
    """
    with engine.begin() as connection, Session(connection) as session:
        lock_run(connection, run_id)
        run = session.get(RunRow, run_id, with_for_update=True)
        if run is None:
            raise StoreError(f"run {run_id}: not in this database")
        name = session.scalars(
            select(ProjectRow.name)
            .join(CommitRow, CommitRow.project_id == ProjectRow.id)
            .where(CommitRow.id == run.commit_id)
        ).one()
        if not is_quarantine(name):
            raise NotQuarantinedError(f"run {run_id} is not in quarantine; it counts already")
        record = load_as_sent(session, run_id)
        digest = run.content_hash
        telemetry_pruned_at = run.telemetry_pruned_at
        contents = [artefact.sha256 for artefact in list_artefacts(session, run_id) if artefact.is_stored]
        session.execute(delete(RunRow).where(RunRow.run_id == run_id))
        store_record(connection, record, digest)
        link_contents(connection, run_id, contents)
        aged = update(RunRow).where(RunRow.run_id == run_id).values(telemetry_pruned_at=telemetry_pruned_at)
        session.execute(aged)
        project = record_name(name)
        add_entry(
            session,
            actor=actor,
            person=person,
            action="run.release",
            project=project,
            subject=str(run_id),
            before="quarantined",
            after="counted",
            reason=reason,
        )
        session.flush()
