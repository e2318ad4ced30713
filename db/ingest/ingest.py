"""Store a record: completely or not at all, and once."""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
import psycopg
from sqlalchemy import Connection, Engine, delete, func, select, text
from sqlalchemy.exc import DBAPIError

from roofwatch.db.engine.session import WAIT_FOR_DISK, first_line
from roofwatch.db.errors import (
    ConflictError,
    FullDiskError,
    IngestError,
    StoreError,
)
from roofwatch.db.ingest.run_rows import store_run
from roofwatch.db.ingest.shared_rows import note_values, store_shared
from roofwatch.db.projects import quarantine_name
from roofwatch.db.regressions.case_analyses import note_changed_cases, note_changed_project
from roofwatch.db.schema.runs import ProjectRow, RunRow
from roofwatch.model.record import RunRecord

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL character in JSON, not a backslash before `u0000`."""
_REFUSED = ("22", "23", "54")
"""Classes of SQLSTATE that blame the data: a value, a constraint, a limit."""
_EARLIEST_START = datetime(2007, 1, 1, tzinfo=UTC)
"""CUDA's first release."""
_MAX_CLOCK_AHEAD = timedelta(days=1)
"""A run from the future would stay the newest of its project."""
_LOCK_RUN = text(f"SELECT pg_advisory_xact_lock(hashtextextended(:run_id, 0)), {WAIT_FOR_DISK}")


@dataclass(frozen=True)
class IngestResult:
    run_id: str
    project: str
    content_hash: str
    was_new: bool
    """False if a run with this ID was stored before."""
    was_replaced: bool = False
    """The stored run had other content, which is gone."""


def ingest_record(
    engine: Engine,
    record: RunRecord,
    *,
    is_quarantined: bool = False,
    replaces: bool = False,
) -> IngestResult:
    """Store a record in one transaction; `load_record` returns an equal one. A stored record
    changes nothing.

    A record from a source that is not trusted is quarantined: no analysis includes it.

    Raises:
        ConflictError: the run is stored with other content, and must not be replaced.
        IngestError: the record has a value that cannot be stored, or its clock is wrong.
        StoreError: the database failed.
    """
    digest = content_hash(record)
    try:
        _check_name(record)
        # not serializable: concurrent writers of shared rows wait instead of failing
        with (
            engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            _check_clock(connection, record)
            return store_record(
                connection,
                record,
                digest,
                is_quarantined=is_quarantined,
                replaces=replaces,
            )
    except DBAPIError as error:
        raise _to_store_error(record, error.orig) from None
    except psycopg.Error as error:
        raise _to_store_error(record, error) from None


def store_record(
    connection: Connection,
    record: RunRecord,
    digest: str,
    *,
    is_quarantined: bool = False,
    replaces: bool = False,
) -> IngestResult:
    """Store a record with its content hash in the caller's transaction; otherwise as
    `ingest_record`.

    Locks are taken in one order, so writers cannot deadlock: the run, rows that runs share, metrics
    of series.
    """
    lock_run(connection, record.run_id)
    project_name = record.project
    if is_quarantined:
        project_name = quarantine_name(record.project)
    stored = connection.execute(
        select(RunRow.content_hash, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(RunRow.run_id == record.run_id)
    ).one_or_none()
    # a second upload of the same record is normal: clients send at least once
    if stored is not None:
        if stored.content_hash == digest:
            return IngestResult(
                run_id=str(record.run_id),
                project=record.project,
                content_hash=digest,
                was_new=False,
            )
        _check_may_replace(record, digest, stored.name == project_name, replaces=replaces)
        connection.execute(delete(RunRow).where(RunRow.run_id == record.run_id))
    shared = store_shared(connection, record, project_name)
    store_run(connection, record, digest, shared)
    if stored is not None:
        # the replaced run may have had other cases
        note_changed_project(connection, shared.project)
    elif not is_quarantined:
        note_changed_cases(connection, shared.project, shared.cases.values())
    note_values(connection, record, shared.series)
    is_new = stored is None
    return IngestResult(
        run_id=str(record.run_id),
        project=record.project,
        content_hash=digest,
        was_new=is_new,
        was_replaced=not is_new,
    )


def lock_run(connection: Connection, run_id: UUID) -> None:
    """Wait for other writers of a run, before any other lock.

    The commit then waits for the disk.
    """
    connection.execute(_LOCK_RUN, {"run_id": str(run_id)})


def content_hash(record: RunRecord) -> str:
    """`RunRecord.content_hash` of a record that a database can store.

    Raises:
        IngestError: a number is out of range, or a text contains a NUL character.
    """
    digest = hashlib.sha256()
    try:
        for part in record.sorted_json():
            # the quick test first: almost no text has one
            if b"u0000" in part and _NUL.search(part):
                raise IngestError(
                    f"{_name(record)}: a text contains a NUL character, which a database cannot "
                    "store; remove it and send the record again"
                )
            digest.update(part)
    except orjson.JSONEncodeError as error:
        raise IngestError(
            f"{_name(record)}: a number is out of range: {error}; measure again"
        ) from None
    return digest.hexdigest()


def _check_name(record: RunRecord) -> None:
    """Refuse names that a tool might take for another folder."""
    if {".", ".."} & set(record.project.split("/")):
        raise IngestError(
            f"project {record.project!r}: a name has no parts '.' and '..'; set another --project"
        )


def _name(record: RunRecord) -> str:
    return f"run {record.run_id} of {record.project}"


def _check_clock(connection: Connection, record: RunRecord) -> None:
    now = connection.execute(select(func.now())).scalar_one()
    # a wrong clock would put the run at a wrong place of the history
    if not _EARLIEST_START <= record.started_at <= now + _MAX_CLOCK_AHEAD:
        raise IngestError(
            f"{_name(record)}: started at {record.started_at.isoformat(timespec='seconds')}, but "
            f"the database's clock "
            f"says {now.isoformat(timespec='seconds')}; nothing was stored. Correct the clock of "
            f"the runner"
        )


def _check_may_replace(
    record: RunRecord,
    digest: str,
    is_same_project: bool,
    *,
    replaces: bool,
) -> None:
    if not replaces:
        raise ConflictError(
            f"{_name(record)}: a run with this ID is stored with other content than this (sha256 "
            f"{digest[:12]}…); "
            "the stored one was kept. Measure again to get a new ID, or replace it: roofwatch "
            "ingest --replace"
        )
    if not is_same_project:
        raise ConflictError(
            f"{_name(record)}: a run with this ID is stored in another project, and only a run of "
            f"the same project "
            "is replaced; the stored one was kept"
        )


def _to_store_error(record: RunRecord, cause: BaseException | None) -> StoreError:
    reason = first_line(cause)
    # Postgres names the kind of an error by its SQLSTATE
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if isinstance(cause, psycopg.DataError) or (state is not None and state[:2] in _REFUSED):
        return IngestError(
            f"{_name(record)}: the database refuses a value: {reason}; nothing of the run was "
            f"stored"
        )
    if isinstance(cause, psycopg.errors.DiskFull):
        return FullDiskError(
            f"{_name(record)}: the server's disk is full: {reason}; nothing of the run was "
            f"stored. Free space there, "
            "for example with `roofwatch db prune`, and ingest it again"
        )
    return StoreError(
        f"{_name(record)}: the database failed: {reason}; keep the record file and ingest it "
        f"again, which is safe"
    )
