"""Store a record: all of it or nothing, once however often and by how many it is sent."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

import orjson
import psycopg
from sqlalchemy import Connection, Engine, delete, insert, select, text
from sqlalchemy.exc import DBAPIError

from collector.part import Part
from collector.record import RunRecord
from db.artefacts import artefact_rows
from db.errors import ConflictError, IngestError, StoreError
from db.keeping.as_sent import describe_as_sent
from db.projects import quarantine_name
from db.storing.accuracies import store_accuracies
from db.storing.counter_rows import store_counters
from db.storing.machine_code import store_static_facts
from db.storing.measurements import stage_measurements, store_measurements
from db.storing.shared_rows import case_ids, commit_id, environment_id, in_utc, project_id, series_ids
from db.tables.artefacts import RunArtefactRow
from db.tables.partitions import ensure_partitions
from db.tables.records import CeilingRow, CommitRow, ProjectRow, RunRow
from db.values import IngestResult, OnConflict

_REFUSED = ("22", "23", "54")
"""Classes of SQLSTATE that blame the data: a value, a constraint, a limit."""
_LOCK_RUN = text("SELECT pg_advisory_xact_lock(hashtextextended(:run_id, 0))")


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
        record: Of which `load_record` will give an equal one, its times in UTC.
        is_quarantined: Nobody vouches for it: keep it beside the project, where nothing counts it.
        on_conflict: What to do where the project has the run with other content.

    Raises:
        ConflictError: the run is stored with other content, and is not to be replaced.
        IngestError: the record has a value that cannot be stored.
        StoreError: the database failed. In every case nothing of the record was stored, or all of it.
    """
    try:
        said = record.said()
        document = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
        if b"\\u0000" in document:
            _refuse_nul(record)
        ensure_partitions(engine, in_utc(record.started_at).date())
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            result = store_record(
                connection,
                record,
                hashlib.sha256(document).hexdigest(),
                said=said,
                is_quarantined=is_quarantined,
                on_conflict=on_conflict,
            )
    except (orjson.JSONEncodeError, OverflowError) as error:
        raise IngestError(f"{_name(record)}: a number or time is out of range: {error}; measure again") from None
    except DBAPIError as error:
        raise _refusal(record, error.orig) from None
    except psycopg.Error as error:
        raise _refusal(record, error) from None
    return result


def store_record(
    connection: Connection,
    record: RunRecord,
    content_hash: str,
    *,
    said: Mapping[str, Any] | None = None,
    is_quarantined: bool = False,
    on_conflict: OnConflict = OnConflict.REFUSE,
) -> IngestResult:
    """Store the record in a transaction of the caller's, which does so once; a record that is there changes nothing.

    Whoever stores a run waits first for all others that store it. Then comes what runs share, in one order
    (`shared_rows.py`), then what is the run's alone. `said` is `record.said()`, for who has it already.
    """
    lock_run(connection, record.run_id)
    name = quarantine_name(record.project) if is_quarantined else record.project
    result = IngestResult(run_id=str(record.run_id), project=record.project, was_new=True)
    stored_hash = connection.scalar(select(RunRow.content_hash).where(RunRow.run_id == record.run_id))
    if stored_hash == content_hash:
        return IngestResult(result.run_id, result.project, was_new=False)
    if stored_hash is not None:
        if on_conflict is OnConflict.REFUSE:
            raise ConflictError(_conflict(record, stored_hash, content_hash))
        _remove_run(connection, record, name)
        result = IngestResult(result.run_id, result.project, was_new=False, was_replaced=True)
    project = project_id(connection, name)
    environment = environment_id(connection, record.environment)
    commit = commit_id(connection, project, record.commit)
    cases, versions = case_ids(connection, project, record)
    series: list[int] = []
    if record.measurements:
        stage_measurements(connection, record, record.said() if said is None else said)
        series = series_ids(connection, versions, record.environment.runner_class)
    shared = {"commit_id": commit, "environment_id": environment, "case_version_ids": versions, "series_ids": series}
    shared |= _launches(record, series)
    row = _run_values(record) | shared | {"content_hash": content_hash}
    inserting = insert(RunRow).values(row).returning(RunRow.number, RunRow.measured_on)
    run_number, measured_on = connection.execute(inserting).one()
    _store_ceilings(connection, record)
    if series:
        store_measurements(connection, run_number, measured_on, series)
    _store_other_results(connection, record, run_number, measured_on, cases)
    return result


def lock_run(connection: Connection, run_id: UUID) -> None:
    """Wait for all others that store or move the run, until the end of the transaction; before any other lock."""
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
            f"{_name(record)}: a run with this id is stored in {stored_in}, and only a run of the same project is "
            "replaced; the stored one was kept"
        )
    connection.execute(delete(RunRow).where(RunRow.run_id == record.run_id))


def _run_values(record: RunRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "schema_version": record.schema_version,
        "harness_version": record.harness_version,
        "branch": record.commit.branch,
        "is_dirty": record.commit.is_dirty,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": in_utc(record.started_at),
        "finished_at": in_utc(record.finished_at),
        "unread_fields": _without_columns(record) | record.unread_fields(),
        "telemetry": None if record.telemetry is None else _document(record.telemetry),
        "spent_ns": record.spent_ns,
        "as_sent": describe_as_sent(record),
        "outcome_counts": dict(Counter(one.outcome.value for one in record.measurements)),
    }


def _launches(record: RunRecord, series: Sequence[int]) -> dict[str, list[int]]:
    """What of the samples is asked for without unpacking them: how many launches, and in whose blocks the device was
    held back or shared.
    """
    measured = list(zip(series, record.measurements, strict=True))
    return {
        "launch_counts": [len(one.samples_ns) * one.launches_per_sample for _, one in measured],
        "degraded_series_ids": [
            series_id
            for series_id, one in measured
            if any(block.device_state is not None and block.device_state.degraded_by for block in one.blocks)
        ],
    }


def _without_columns(record: RunRecord) -> dict[str, Any]:
    """Fields that no query asks for, in the form in which an older version keeps them, which does not know them."""
    return {
        name: [part.model_dump(mode="json") for part in getattr(record, name)]
        for name in ("source_lines", "skipped")
        if getattr(record, name)
    }


def _store_ceilings(connection: Connection, record: RunRecord) -> None:
    rows = [
        {
            "run_id": record.run_id,
            "position": position,
            "resource": ceiling.resource,
            "level": ceiling.level,
            "dtype": ceiling.dtype,
            "per_s": ceiling.per_s,
            "up_to_bytes": ceiling.up_to_bytes,
            "method": ceiling.method,
            "source": ceiling.source,
        }
        for position, ceiling in enumerate(record.ceilings)
    ]
    if rows:
        connection.execute(insert(CeilingRow), rows)


def _store_other_results(
    connection: Connection, record: RunRecord, run_number: int, measured_on: date, cases: Sequence[int]
) -> None:
    for store in (store_accuracies, store_static_facts, store_counters):
        store(connection, record, run_number, measured_on, cases)
    artefacts = artefact_rows(record)
    if artefacts:
        connection.execute(insert(RunArtefactRow), artefacts)


def _document(part: Part) -> dict[str, Any]:
    """What the part says beyond its defaults; what we do not know is kept with the run."""
    return part.model_dump(mode="json", exclude_defaults=True, exclude=set(part.model_extra or ()))


def _name(record: RunRecord) -> str:
    return f"run {record.run_id} of {record.project}"


def _conflict(record: RunRecord, stored_hash: str, content_hash: str) -> str:
    return (
        f"{_name(record)}: a run with this id is stored with other content (sha256 {stored_hash[:12]}…, this one "
        f"{content_hash[:12]}…); the stored one was kept. Measure again for a run with an id of its own, or replace "
        "the stored one: roofwatch ingest --replace"
    )


def _refuse_nul(record: RunRecord) -> None:
    where = _path_to_nul(record.model_dump(mode="json"))
    if where is not None:
        raise IngestError(
            f"{_name(record)}: {where} contains a NUL character, which a database cannot store; remove it and send "
            "the record again"
        )


def _path_to_nul(value: object) -> str | None:
    """Path of the first string with a NUL in it."""
    if isinstance(value, str):
        return "" if "\0" in value else None
    children: Sequence[tuple[object, object]] = ()
    if isinstance(value, dict):
        for key in value:
            if "\0" in key:
                return repr(key)
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for step, child in children:
        rest = _path_to_nul(child)
        if rest is not None:
            return f"{step}.{rest}" if rest else str(step)
    return None


def _refusal(record: RunRecord, cause: BaseException | None) -> StoreError:
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if isinstance(cause, psycopg.DataError) or (state is not None and state[:2] in _REFUSED):
        return IngestError(f"{_name(record)}: the database refuses a value: {reason}; nothing of the run was stored")
    return StoreError(
        f"{_name(record)}: the database failed: {reason}; keep the record file and ingest it again, which is safe"
    )
