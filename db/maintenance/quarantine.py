"""Release runs from quarantine."""

from uuid import UUID

from sqlalchemy import Engine, delete, select, update
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.errors import NotQuarantinedError, StoreError
from roofwatch.db.ingest.artefacts import link_contents, list_artefacts
from roofwatch.db.ingest.ingest import lock_run, store_record
from roofwatch.db.projects import is_quarantine, record_name
from roofwatch.db.queries.records import load_record
from roofwatch.db.schema.runs import ProjectRow, RunRow


def release_run(engine: Engine, run_id: UUID, *, actor: str, person: str, reason: str) -> None:
    """Move a run from quarantine to its project because a person vouches for it.

    Raises:
        NotQuarantinedError: the run is not in quarantine.
        IngestError: the project gives one of its case IDs another meaning.
        AgedError: its samples were pruned.
        StoreError: no such run.
    """
    with engine.begin() as connection, Session(connection) as session:
        lock_run(connection, run_id)
        run = session.get(RunRow, run_id, with_for_update=True)
        if run is None:
            raise StoreError(f"run {run_id}: not in this database")
        name = session.scalars(select(ProjectRow.name).where(ProjectRow.id == run.project_id)).one()
        if not is_quarantine(name):
            raise NotQuarantinedError(f"run {run_id} is not in quarantine")
        record = load_record(session, run_id)
        digest = run.content_hash
        telemetry_pruned_at = run.telemetry_pruned_at
        contents = [
            artefact.sha256 for artefact in list_artefacts(session, run_id) if artefact.is_stored
        ]
        session.execute(delete(RunRow).where(RunRow.run_id == run_id))
        store_record(connection, record, digest)
        link_contents(connection, run_id, contents)
        session.execute(
            update(RunRow)
            .where(RunRow.run_id == run_id)
            .values(telemetry_pruned_at=telemetry_pruned_at)
        )
        add_entry(
            session,
            actor=actor,
            person=person,
            action="run.release",
            project=record_name(name),
            subject=str(run_id),
            before="quarantined",
            after="counted",
            reason=reason,
        )
        session.flush()
