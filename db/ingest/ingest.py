"""Store a record: all of it or nothing, once however often and by how many it is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
from sqlalchemy import Connection, Engine, delete, func, select, text
from sqlalchemy.exc import DBAPIError

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.engine.session import WAIT_FOR_DISK
from roofwatch.db.errors import ConflictError, FullDiskError, IngestError, StoreError
from roofwatch.db.ingest.case_rows import case_ids
from roofwatch.db.ingest.content import content_hash, name_run, refuse_nul
from roofwatch.db.ingest.machine_code import fact_ids
from roofwatch.db.ingest.result import IngestResult, OnConflict
from roofwatch.db.ingest.results import store_results
from roofwatch.db.ingest.run_row import SharedIds, store_run
from roofwatch.db.ingest.series_rows import Identity, are_there, note_values, series_ids
from roofwatch.db.ingest.shared_rows import in_utc, store_commit, store_environment, store_project
from roofwatch.db.projects import quarantine_name
from roofwatch.db.schema.partitions import ensure_partitions
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow

_REFUSED = ("22", "23", "54")
"""Classes of SQLSTATE that blame the data: a value, a constraint, a limit."""
_FIRST = datetime(2007, 1, 1, tzinfo=UTC)
"""Before CUDA there was nothing to measure."""
_AHEAD = timedelta(days=1)
"""What clocks may differ by: a run that seems to begin later would be the newest of its project forever."""
_LOCK_RUN = text(f"SELECT pg_advisory_xact_lock(hashtextextended(:run_id, 0)), {WAIT_FOR_DISK}")


def ingest_record(
    engine: Engine,
    record: RunRecord,
    *,
    is_quarantined: bool = False,
    on_conflict: OnConflict = OnConflict.REFUSE,
) -> IngestResult:
    """Store a record; one that is stored already changes nothing.

    Args:
        engine: Of a store with a current schema.
        record: `load_record` will give an equal one, its times in UTC.
        is_quarantined: From an untrusted source: keep it beside the project, where nothing counts it.
        on_conflict: What to do where the project has the run with other content.

    Raises:
        ConflictError: the run is stored with other content, and is not to be replaced.
        IngestError: the record has a value that cannot be stored, or is of a run that has yet to begin.
        StoreError: the database failed. In every case nothing of the record was stored, or all of it.
    """
    digest = content_hash(record)
    try:
        _check_clock(engine, record)
        ensure_partitions(engine, in_utc(record.started_at).date())
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            return store_record(
                connection,
                record,
                digest,
                is_quarantined=is_quarantined,
                on_conflict=on_conflict,
            )
    except OverflowError as error:
        raise IngestError(f"{name_run(record)}: a time is out of range: {error}; measure again") from None
    except DBAPIError as error:
        raise _refusal(record, error.orig) from None
    except psycopg.Error as error:
        raise _refusal(record, error) from None


def store_record(
    connection: Connection,
    record: RunRecord,
    digest: str,
    *,
    is_quarantined: bool = False,
    on_conflict: OnConflict = OnConflict.REFUSE,
) -> IngestResult:
    """Store a record in the caller's transaction; one that is stored already changes nothing.

    Writers of one run wait for each other first. Then comes what runs share, in one order (`shared_rows.py`), then the
    run's own rows, and at the end what series learn of their measurements, so that no two writers wait for each other.

    Args:
        connection: In a transaction that stores one record.
        record: To be stored.
        digest: Its content hash.
        is_quarantined: As for `ingest_record`.
        on_conflict: As for `ingest_record`.
    """
    lock_run(connection, record.run_id)
    stored_hash = connection.scalar(select(RunRow.content_hash).where(RunRow.run_id == record.run_id))
    name = quarantine_name(record.project) if is_quarantined else record.project
    was_new = stored_hash is None
    if stored_hash is not None:
        if stored_hash == digest:
            return IngestResult(str(record.run_id), record.project, digest, was_new=False)
        if on_conflict is OnConflict.REFUSE:
            raise ConflictError(_conflict(record, digest))
        _remove_run(connection, record, name)
    ids = _store_shared(connection, record, name)
    key = store_run(connection, record, digest, ids)
    store_results(connection, record, key, ids)
    # last, for it locks rows of others: a writer that waits here holds nothing that we still need
    note_values(connection, ids.series, are_there(record.measurements))
    return IngestResult(str(record.run_id), record.project, digest, was_new=was_new, was_replaced=not was_new)


def _store_shared(connection: Connection, record: RunRecord, project_name: str) -> SharedIds:
    project = store_project(connection, project_name)
    environment = store_environment(connection, record.environment)
    commit = store_commit(connection, project, record.commit)
    cases, versions = case_ids(connection, project, record)
    names = [case.case_id for case in record.cases]
    version_of = dict(zip(names, versions, strict=True))
    identities = [
        Identity(version_of[one.case_id], one.implementation, one.timer, one.cache) for one in record.measurements
    ]
    series = series_ids(connection, identities, record.environment.runner_class)
    case_of = dict(zip(names, cases, strict=True))
    facts = fact_ids(connection, record, case_of)
    return SharedIds(project, environment, commit, case_of, versions, series, facts)


def lock_run(connection: Connection, run_id: UUID) -> None:
    """Wait for all others that store or move the run, until the end of the transaction; before any other lock. What is
    committed then is on disk.
    """
    connection.execute(_LOCK_RUN, {"run_id": str(run_id)})


def _remove_run(connection: Connection, record: RunRecord, project: str) -> None:
    """Make room for other content of the run."""
    stored_in = connection.scalar(
        select(ProjectRow.name)
        .join(CommitRow, CommitRow.project_id == ProjectRow.id)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(RunRow.run_id == record.run_id)
    )
    if stored_in != project:
        raise ConflictError(
            f"{name_run(record)}: a run with this id is stored in {stored_in}, and only a run of the same project is "
            "replaced; the stored one was kept"
        )
    connection.execute(delete(RunRow).where(RunRow.run_id == record.run_id))


def _check_clock(engine: Engine, record: RunRecord) -> None:
    with engine.connect() as connection:
        now = connection.execute(select(func.now())).scalar_one()
    if not _FIRST <= record.started_at <= now + _AHEAD:
        began_at, here = (time.isoformat(timespec="seconds") for time in (in_utc(record.started_at), in_utc(now)))
        raise IngestError(
            f"{name_run(record)}: it says that it began at {began_at}, and by the clock of the database it is {here}; "
            "nothing of the run was stored. Set the clock of the runner right and measure again"
        )


def _conflict(record: RunRecord, content_hash: str) -> str:
    # the stored one may be of another project, of which this is all that is told
    return (
        f"{name_run(record)}: a run with this id is stored with other content than this (sha256 "
        f"{content_hash[:12]}…); the stored one was kept. Measure again for a run with an id of its own, or replace "
        "the stored one: roofwatch ingest --replace"
    )


def _refusal(record: RunRecord, cause: BaseException | None) -> StoreError:
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if isinstance(cause, psycopg.DataError) or (state is not None and state[:2] in _REFUSED):
        refuse_nul(record)
        return IngestError(f"{name_run(record)}: the database refuses a value: {reason}; nothing of the run was stored")
    if isinstance(cause, psycopg.errors.DiskFull):
        return FullDiskError(
            f"{name_run(record)}: the server's disk is full: {reason}; nothing of the run was stored: make room there, "
            "for example by `roofwatch db prune`, and ingest it again"
        )
    return StoreError(
        f"{name_run(record)}: the database failed: {reason}; keep the record file and ingest it again, which is safe"
    )
