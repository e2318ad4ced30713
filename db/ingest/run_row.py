"""The row of a run, and what hangs on it in a few rows of their own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, insert, text

from roofwatch.collector.record.device_state import Telemetry
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import artefact_rows
from roofwatch.db.ingest.column_bytes import list_bytes
from roofwatch.db.ingest.content import Content
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.saying import say
from roofwatch.db.ingest.shared_rows import as_json, in_utc
from roofwatch.db.ingest.staging import Load, Target
from roofwatch.db.maintenance.as_sent import describe_as_sent
from roofwatch.db.schema.artefacts import RunArtefactRow

_ROW = Target(
    "run",
    {
        "number": "int4",
        "run_id": "uuid",
        "project_id": "int4",
        "commit_id": "int4",
        "environment_id": "int4",
        "content_hash": "text",
        "schema_version": "text",
        "harness_version": "text",
        "preset": "text",
        "branch": "text",
        "is_dirty": "bool",
        "pair_id": "uuid",
        "pair_side": "text",
        "started_at": "timestamptz",
        "finished_at": "timestamptz",
        "unread_fields": "text",
        "telemetry": "text",
        "spent_ns": "text",
        "outcome_counts": "text",
        "as_sent": "text",
        "case_version_ids": "bytea",
        "series_ids": "bytea",
        "launch_counts": "bytea",
        "degraded_series_ids": "bytea",
        "identity_sha256": "bytea",
        "facts_sha256": "bytea",
        "flags_sha256": "bytea",
    },
)
"""Lists are sent as the bytes that they are on the way: of thousands the driver would look at each."""
_DOCUMENTS = ("unread_fields", "spent_ns", "outcome_counts", "as_sent")
"""Written as SQLAlchemy writes them where it changes a row."""
_AT_THE_END: Mapping[str, Any] = {
    "content_hash": "",
    "unread_fields": {},
    "launch_counts": (),
    "degraded_series_ids": (),
    "flags_sha256": None,
}
"""What is known only when all of the record was said, and stands for it until then; nobody sees it."""
_COMPLETE = text(
    """
    UPDATE run SET content_hash = :content_hash, unread_fields = CAST(:unread_fields AS json),
        launch_counts = ARRAY(SELECT json_array_elements_text(CAST(:launch_counts AS json))::bigint),
        degraded_series_ids = ARRAY(SELECT json_array_elements_text(CAST(:degraded_series_ids AS json))::int),
        flags_sha256 = :flags_sha256
    WHERE number = :number
    """
)
_LISTS = {"case_version_ids": "int4", "series_ids": "int4", "launch_counts": "int8", "degraded_series_ids": "int4"}
_SAID_OF_CEILING = {
    "resource": "text",
    "level": "text",
    "dtype": "text",
    "per_s": "float8",
    "up_to_bytes": "int8",
    "method": "text",
    "source": "text",
}
_CEILINGS = Target("ceiling", {"run_id": "uuid", "position": "int4"} | _SAID_OF_CEILING)


def run_values(record: RunRecord) -> dict[str, Any]:
    """Columns of the run that the record alone decides, as far as they are known before all of it is said."""
    return {
        "run_id": record.run_id,
        "schema_version": record.schema_version,
        "harness_version": record.harness_version,
        "preset": record.preset,
        "branch": record.commit.branch,
        "is_dirty": record.commit.is_dirty,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": in_utc(record.started_at),
        "finished_at": in_utc(record.finished_at),
        "telemetry": None if record.telemetry is None else _document(record.telemetry),
        "spent_ns": record.spent_ns,
        "as_sent": describe_as_sent(record),
        "outcome_counts": dict(Counter(str(one.outcome) for one in record.measurements)),
    }


def load_run(key: RunKey, values: Mapping[str, Any]) -> Load:
    """The row of the run, without what `complete_run` adds to it."""
    row = {**_AT_THE_END, **values, "number": key.number}
    row |= {name: json.dumps(row[name]) for name in _DOCUMENTS}
    row |= {name: list_bytes(kind, row[name]) for name, kind in _LISTS.items()}
    return Load(_ROW, [[row[name] for name in _ROW.columns]])


def complete_run(
    connection: Connection,
    key: RunKey,
    record: RunRecord,
    content: Content,
    *,
    launch_counts: Sequence[int],
    degraded_series_ids: Sequence[int],
    flags_sha256: bytes,
) -> None:
    """Add to the row of the run what is known at the end."""
    values = {
        "number": key.number,
        "content_hash": content.hash,
        "unread_fields": json.dumps(_without_columns(record) | content.unread_fields),
        "launch_counts": as_json(launch_counts),
        "degraded_series_ids": as_json(degraded_series_ids),
        "flags_sha256": flags_sha256,
    }
    found = connection.execute(_COMPLETE, values).rowcount
    assert found == 1  # sent in this transaction


def load_ceilings(record: RunRecord) -> Load:
    """What the device can do at most; they come after the row of the run."""
    places = enumerate(record.ceilings)
    return Load(_CEILINGS, ((record.run_id, place, *map(vars(one).get, _SAID_OF_CEILING)) for place, one in places))


def store_artefacts(connection: Connection, record: RunRecord) -> None:
    """Store the names of the artefacts, which hang on the row of the run."""
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


def _document(telemetry: Telemetry) -> str:
    """What it says beyond its defaults; what we do not know is kept with the run."""
    said = {name: value for name, value in say(telemetry).items() if name not in (telemetry.model_extra or ())}
    return orjson.dumps(said, default=say, option=orjson.OPT_UTC_Z).decode()
