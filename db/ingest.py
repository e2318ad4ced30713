"""Store a record: all of it or nothing, once however often and by how many it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
from sqlalchemy import Connection, Engine, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError

from collector.case_record import CaseRecord
from collector.machine import Environment
from collector.measurement import Measurement, measured_values
from collector.part import Part
from collector.record import RunRecord
from collector.results import Accuracy, StaticFacts
from db.artefact_models import RunArtefactRow
from db.artefacts import artefact_rows
from db.errors import ConflictError, IngestError, StoreError
from db.models import (
    AccuracyRow,
    Base,
    CaseRow,
    CeilingRow,
    CommitRow,
    CountersRow,
    EnvironmentRow,
    MeasurementRow,
    ProjectRow,
    RunCaseRow,
    RunRow,
    StaticFactRow,
    TensorErrorRow,
)
from db.projects import quarantine_name
from db.values import IngestResult

_REFUSED = ("22", "23", "54")
"""Classes of SQLSTATE that blame the data: a value, a constraint, a limit."""


def ingest_record(engine: Engine, record: RunRecord, *, is_quarantined: bool = False) -> IngestResult:
    """Store a record; one that is stored already changes nothing.

    Args:
        engine: Of a store with a current schema.
        record: Of which `load_record` will give an equal one, its times in UTC.
        is_quarantined: Nobody vouches for it: keep it beside the project, where nothing counts it.

    Raises:
        ConflictError: the run is stored with other content.
        IngestError: the record has a value that cannot be stored.
        StoreError: the database failed. In every case nothing of the record was stored, or all of it.
    """
    try:
        document = record.to_json()
        content_hash = record.content_hash
        if b"\\u0000" in document:
            _refuse_nul(record)
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            was_new = store_record(connection, record, content_hash, is_quarantined=is_quarantined)
    except (orjson.JSONEncodeError, OverflowError) as error:
        raise IngestError(f"{_name(record)}: a number or time is out of range: {error}; measure again") from None
    except DBAPIError as error:
        raise _refusal(record, error) from None
    return IngestResult(run_id=str(record.run_id), project=record.project, was_new=was_new)


def store_record(connection: Connection, record: RunRecord, content_hash: str, *, is_quarantined: bool = False) -> bool:
    """Insert the record in a transaction of the caller's; False where it is stored already.

    What runs share comes first and always in one order, so that two at once may wait for each other but never both.
    """
    if _is_stored(connection, record, content_hash):
        return False
    name = quarantine_name(record.project) if is_quarantined else record.project
    project_id = _project_id(connection, name)
    environment_id = _environment_id(connection, record.environment)
    commit_id = _commit_id(connection, project_id, record)
    case_ids = _case_ids(connection, project_id, record)
    row = {
        "run_id": record.run_id,
        "commit_id": commit_id,
        "environment_id": environment_id,
        "content_hash": content_hash,
        "schema_version": record.schema_version,
        "harness_version": record.harness_version,
        "branch": record.commit.branch,
        "is_dirty": record.commit.is_dirty,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": _utc(record.started_at),
        "finished_at": _utc(record.finished_at),
        "unread_fields": _without_columns(record) | record.unread_fields(),
        "telemetry": None if record.telemetry is None else _document(record.telemetry),
        "spent_ns": record.spent_ns,
    }
    inserted = connection.scalar(upsert(RunRow).values(row).on_conflict_do_nothing().returning(RunRow.run_id))
    if inserted is None:
        # another process stored it since we looked
        return not _is_stored(connection, record, content_hash)
    _insert(connection, CeilingRow, _ceiling_rows(record))
    _insert(connection, RunCaseRow, _run_case_rows(record, case_ids))
    _insert(connection, MeasurementRow, _measurement_rows(record, case_ids))
    _insert(connection, AccuracyRow, _accuracy_rows(record, case_ids))
    _insert(connection, TensorErrorRow, _tensor_error_rows(record, case_ids))
    _insert(connection, StaticFactRow, _static_fact_rows(record, case_ids))
    _insert(connection, CountersRow, _counters_rows(record, case_ids))
    _insert(connection, RunArtefactRow, artefact_rows(record))
    return True


def _without_columns(record: RunRecord) -> dict[str, Any]:
    """Fields that no query asks for, in the form in which an older version keeps them, which does not know them."""
    return {
        name: [part.model_dump(mode="json") for part in getattr(record, name)]
        for name in ("source_lines", "skipped")
        if getattr(record, name)
    }


def _is_stored(connection: Connection, record: RunRecord, content_hash: str) -> bool:
    stored = connection.scalar(select(RunRow.content_hash).where(RunRow.run_id == record.run_id))
    if stored is not None and stored != content_hash:
        raise ConflictError(
            f"{_name(record)}: a run with this id is stored with other content (sha256 {stored[:12]}…, this one "
            f"{content_hash[:12]}…); the stored one was kept. Measure again for a run with an id of its own"
        )
    return stored is not None


def _project_id(connection: Connection, name: str) -> int:
    connection.execute(upsert(ProjectRow).values(name=name).on_conflict_do_nothing())
    return connection.execute(select(ProjectRow.id).where(ProjectRow.name == name)).scalar_one()


def _environment_id(connection: Connection, environment: Environment) -> int:
    values = {name: getattr(environment, name) for name in Environment.model_fields}
    fingerprint = hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
    row = values | {"fingerprint": fingerprint, "runner_class": environment.runner_class}
    connection.execute(upsert(EnvironmentRow).values(row).on_conflict_do_nothing())
    found = select(EnvironmentRow.id).where(EnvironmentRow.fingerprint == fingerprint)
    return connection.execute(found).scalar_one()


def _commit_id(connection: Connection, project_id: int, record: RunRecord) -> int:
    commit = record.commit
    row = {
        "project_id": project_id,
        "sha": commit.sha,
        "parents": list(commit.parents),
        "first_parent_count": commit.first_parent_count,
        "committed_at": _utc(commit.committed_at),
        "author": commit.author,
        "subject": commit.subject,
    }
    new = upsert(CommitRow).values(row)
    larger = func.greatest(CommitRow.first_parent_count, new.excluded.first_parent_count)
    connection.execute(
        new.on_conflict_do_update(
            index_elements=[CommitRow.project_id, CommitRow.sha],
            set_={"first_parent_count": larger},
            where=CommitRow.first_parent_count < new.excluded.first_parent_count,
        )
    )
    found = select(CommitRow.id).where(CommitRow.project_id == project_id, CommitRow.sha == commit.sha)
    return connection.execute(found).scalar_one()


def _case_ids(connection: Connection, project_id: int, record: RunRecord) -> dict[str, int]:
    """Ids by the record's case_id."""
    if not record.cases:
        return {}
    rows = [
        {"project_id": project_id, "name": case.case_id, **_meaning(case)}
        for case in sorted(record.cases, key=lambda case: case.case_id)
    ]
    connection.execute(upsert(CaseRow).on_conflict_do_nothing(), rows)
    found = connection.execute(
        select(CaseRow.id, CaseRow.name, CaseRow.kernel, CaseRow.shape, CaseRow.dtype, CaseRow.direction).where(
            CaseRow.project_id == project_id, CaseRow.name.in_([case.case_id for case in record.cases])
        )
    )
    stored = {row.name: row for row in found}
    for case in record.cases:
        for field, value in _meaning(case).items():
            known = getattr(stored[case.case_id], field)
            if known != value:
                raise IngestError(
                    f"{_name(record)}: case {case.case_id!r} has {field} {value!r}, but earlier runs of the project "
                    f"gave it {known!r}; a case id means one thing for ever: give the new case an id of its own"
                )
    return {name: row.id for name, row in stored.items()}


def _meaning(case: CaseRecord) -> dict[str, Any]:
    return {"kernel": case.kernel, "shape": case.shape, "dtype": case.dtype, "direction": case.direction}


def _ceiling_rows(record: RunRecord) -> list[dict[str, Any]]:
    return [
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


def _run_case_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": record.run_id,
            "case_id": case_ids[case.case_id],
            "position": position,
            "family": case.family,
            "flop_count": case.flop_count,
            "memory_bytes": case.memory_bytes,
            "bus_bytes": case.bus_bytes,
            "tags": list(case.tags),
        }
        for position, case in enumerate(record.cases)
    ]


def _result(
    record: RunRecord, case_ids: Mapping[str, int], position: int, part: Measurement | Accuracy | StaticFacts
) -> dict[str, Any]:
    """The columns that every kind of result has."""
    return {
        "run_id": record.run_id,
        "case_id": case_ids[part.case_id],
        "implementation": part.implementation,
        "position": position,
        "outcome": part.outcome.value,
        "message": part.message,
    }


_BLOCK_COLUMNS = ("started_at", "samples_ns")
"""What of a block has columns of its own."""


def _document(part: Part, *without: str) -> dict[str, Any]:
    """What the part says beyond its defaults; what we do not know is kept with the run."""
    unknown = set(part.model_extra or ())
    return part.model_dump(mode="json", exclude_defaults=True, exclude={*without, *unknown})


def _measurement_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    cases = {case.case_id: case for case in record.cases}
    rows = []
    for position, measurement in enumerate(record.measurements):
        values = measured_values(measurement, cases[measurement.case_id])
        blocks = measurement.blocks
        low_ns, high_ns = measurement.quartiles_ns or (None, None)
        rows.append(
            _result(record, case_ids, position, measurement)
            | {
                "timer": measurement.timer.value,
                "cache": measurement.cache.value,
                "launches_per_sample": measurement.launches_per_sample,
                "samples_ns": list(measurement.samples_ns) if blocks else None,
                "block_lengths": [len(block.samples_ns) for block in blocks] if blocks else None,
                "block_started_at": [_utc(block.started_at) for block in blocks] if blocks else None,
                "median_ns": values.get("median_ns"),
                "q1_ns": low_ns,
                "q3_ns": high_ns,
                "flop_per_s": values.get("flop_per_s"),
                "memory_bytes_per_s": values.get("memory_bytes_per_s"),
                "bus_bytes_per_s": values.get("bus_bytes_per_s"),
                "utilisation": values.get("utilisation"),
                "joules_per_launch": values.get("joules_per_launch"),
                "bound": measurement.bound,
                "block_facts": [_document(block, *_BLOCK_COLUMNS) for block in blocks] if blocks else None,
                "memory": None if measurement.memory is None else _document(measurement.memory),
                "autotuning": [_document(one) for one in measurement.autotuning],
            }
        )
    return rows


def _accuracy_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        _result(record, case_ids, position, accuracy) | {"executor": accuracy.executor}
        for position, accuracy in enumerate(record.accuracies)
    ]


def _tensor_error_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": record.run_id,
            "case_id": case_ids[accuracy.case_id],
            "implementation": accuracy.implementation,
            "position": position,
            "tensor": tensor.tensor,
            "max_abs_error": tensor.max_abs_error,
            "rmse_ratio": tensor.rmse_ratio,
            "baseline_rmse_ratio": tensor.baseline_rmse_ratio,
            "passed": tensor.passed,
        }
        for accuracy in record.accuracies
        for position, tensor in enumerate(accuracy.tensors)
    ]


_STATIC_COLUMNS = (
    "configuration",
    "toolchain",
    "thread_count",
    "registers",
    "accumulation_registers",
    "scalar_registers",
    "spilled_registers",
    "spill_store_count",
    "spill_load_count",
    "local_bytes",
    "shared_bytes",
    "static_shared_bytes",
    "tensor_memory_columns",
    "theoretical_occupancy",
    "instruction_count",
    "instructions",
    "compile_ns",
    "code_bytes",
    "code_hash",
)


def _static_fact_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        _result(record, case_ids, position, facts)
        | {
            "function": facts.function,
            "target": facts.target,
            **{name: getattr(facts, name) for name in _STATIC_COLUMNS},
            "occupancy_limits": list(facts.occupancy_limits),
        }
        for position, facts in enumerate(record.static_facts)
    ]


def _counters_rows(record: RunRecord, case_ids: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": record.run_id,
            "case_id": case_ids[counters.case_id],
            "implementation": counters.implementation,
            "function": counters.function,
            "launch_index": counters.launch_index,
            "position": position,
            "source": counters.source,
            "values": counters.values,
            "findings": [_document(finding) for finding in counters.findings],
        }
        for position, counters in enumerate(record.counters)
    ]


def _insert(connection: Connection, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _utc(time: datetime) -> datetime:
    """Raises OverflowError for the few times at either end that have no year 1 to 9999 in UTC."""
    return time.astimezone(UTC)


def _name(record: RunRecord) -> str:
    return f"run {record.run_id} of {record.project}"


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


def _refusal(record: RunRecord, error: DBAPIError) -> StoreError:
    cause = error.orig
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if isinstance(cause, psycopg.DataError) or (state is not None and state[:2] in _REFUSED):
        return IngestError(f"{_name(record)}: the database refuses a value: {reason}; nothing of the run was stored")
    return StoreError(
        f"{_name(record)}: the database failed: {reason}; keep the record file and ingest it again, which is safe"
    )
