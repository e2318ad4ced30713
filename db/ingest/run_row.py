"""The row of a run, its ceilings and the names of its artefacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, insert

from roofwatch.collector.record.machine import Telemetry
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import artefact_rows
from roofwatch.db.ingest.shared_rows import in_utc
from roofwatch.db.schema.runs import CeilingRow, RunArtefactRow, RunRow


class RunKey(NamedTuple):
    """What the rows of a run's results begin with."""

    number: int
    measured_on: date
    """The day in UTC, by which the tables are partitioned."""


class SharedIds(NamedTuple):
    """Ids of what a run shares with others."""

    project: int
    environment: int
    commit: int
    cases: dict[str, int]
    """By name."""
    case_versions: Sequence[int]
    """In the order of the record, as what follows."""
    series: Sequence[int]
    static_facts: Sequence[int]


def store_run(connection: Connection, record: RunRecord, content_hash: str, ids: SharedIds) -> RunKey:
    """Store the run itself."""
    measured = list(zip(record.measurements, ids.series, strict=True))
    values = {
        "run_id": record.run_id,
        "project_id": ids.project,
        "commit_id": ids.commit,
        "environment_id": ids.environment,
        "content_hash": content_hash,
        "schema_version": record.schema_version,
        "harness_version": record.harness_version,
        "preset": record.preset,
        "branch": record.commit.branch,
        "is_dirty": record.commit.is_dirty,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": in_utc(record.started_at),
        "finished_at": in_utc(record.finished_at),
        "unread_fields": _without_columns(record),
        "telemetry": None if record.telemetry is None else _document(record.telemetry),
        "spent_ns": record.spent_ns,
        "as_sent": _describe_as_sent(record),
        "outcome_counts": dict(Counter(str(one.outcome) for one in record.measurements)),
        "case_version_ids": list(ids.case_versions),
        "series_ids": list(ids.series),
        "launch_counts": [
            sum(len(block.samples_ns) for block in one.blocks) * one.launches_per_sample for one, _ in measured
        ],
        "degraded_series_ids": [
            series
            for one, series in measured
            if any(block.device_state is not None and block.device_state.degraded_by for block in one.blocks)
        ],
    }
    key = connection.execute(insert(RunRow).values(values).returning(RunRow.number, RunRow.measured_on)).one()
    if record.ceilings:
        rows = [
            {"run_id": record.run_id, "position": position, **ceiling.model_dump(include=_CEILING_FIELDS)}
            for position, ceiling in enumerate(record.ceilings)
        ]
        connection.execute(insert(CeilingRow), rows)
    if artefacts := artefact_rows(record):
        connection.execute(insert(RunArtefactRow), artefacts)
    return RunKey._make(key)


_CEILING_FIELDS = {column.key for column in CeilingRow.__table__.columns} - {"run_id", "position"}


def _without_columns(record: RunRecord) -> dict[str, Any]:
    """Fields that no query asks for."""
    return {
        name: [part.model_dump(mode="json") for part in getattr(record, name)]
        for name in ("source_lines", "skipped")
        if getattr(record, name)
    }


def _document(telemetry: Telemetry) -> dict[str, Any]:
    """What it says beyond its defaults, times in UTC; unknown fields are kept with the run."""
    said = telemetry.model_dump(exclude_defaults=True, exclude=set(telemetry.model_extra or ()))
    document: dict[str, Any] = orjson.loads(orjson.dumps(said, option=orjson.OPT_UTC_Z))
    return document


def _describe_as_sent(record: RunRecord) -> dict[str, Any]:
    """What `load_as_sent` needs beyond what the tables hold; kept with the run."""
    first_block = next((block for one in record.measurements for block in one.blocks), None)
    times = {
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "blocks": record.started_at if first_block is None else first_block.started_at,
    }
    offsets = {name: (time.utcoffset() or timedelta()).total_seconds() for name, time in times.items()}
    return {
        "commit": record.commit.model_dump(mode="json"),
        "utc_offsets_s": {name: offset_s for name, offset_s in offsets.items() if offset_s},
    }
