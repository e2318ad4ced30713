"""The row of a run, and what hangs on it in a few rows of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, Connection, Text, bindparam, cast, insert

from collector.device_state import Telemetry
from collector.record import RunRecord
from db.artefacts import artefact_rows
from db.keeping.as_sent import describe_as_sent
from db.storing.run_key import RunKey
from db.storing.shared_rows import as_json, in_utc
from db.tables.artefacts import RunArtefactRow
from db.tables.records import CeilingRow, RunRow

# written by us: a run of an hour has half a million readings, for which the standard library takes ten times as long
_STORE_RUN = insert(RunRow).values(telemetry=cast(bindparam("telemetry_document", type_=Text), JSON))


def run_values(record: RunRecord, said: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the run that the record alone decides; `said` is what it says of itself."""
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
        "telemetry_document": None if record.telemetry is None else _document(record.telemetry, said["telemetry"]),
        "spent_ns": record.spent_ns,
        "as_sent": describe_as_sent(record),
        "outcome_counts": dict(Counter(str(one.outcome) for one in record.measurements)),
    }


def store_run(connection: Connection, key: RunKey, record: RunRecord, values: dict[str, Any]) -> None:
    """Store the row of all its columns, the ceilings and the names of the artefacts."""
    connection.execute(_STORE_RUN, values | {"number": key.number})
    ceilings = _ceilings(record)
    if ceilings:
        connection.execute(insert(CeilingRow), ceilings)
    artefacts = artefact_rows(record)
    if artefacts:
        connection.execute(insert(RunArtefactRow), artefacts)


def _without_columns(record: RunRecord) -> dict[str, Any]:
    """Fields that no query asks for, in the form in which an older version keeps them, which does not know them."""
    return {
        name: [part.model_dump(mode="json") for part in getattr(record, name)]
        for name in ("source_lines", "skipped")
        if getattr(record, name)
    }


def _ceilings(record: RunRecord) -> list[dict[str, Any]]:
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


def _document(telemetry: Telemetry, said: Mapping[str, Any]) -> str:
    """What it says beyond its defaults; what we do not know is kept with the run."""
    return as_json({name: value for name, value in said.items() if name not in (telemetry.model_extra or ())})
