"""The cases of a record in the store, and what it says of them: found, or stored by the first run that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, text

from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError
from roofwatch.db.ingest.copy import stage_rows
from roofwatch.db.ingest.shared_rows import as_json, fingerprint

_STAGED = {
    "name": "text",
    "kernel": "text",
    "shape": "text",
    "dtype": "text",
    "direction": "text",
    "fingerprint": "text",
    "family": "text",
    "flop_count": "float8",
    "memory_bytes": "float8",
    "bus_bytes": "float8",
    "tags": "text[]",
}
_KNOWN = text(
    """
    SELECT known.id AS case_id, known.kernel, known.shape::text AS shape, known.dtype, known.direction,
        version.id AS version_id
    FROM ROWS FROM (
        json_array_elements_text(CAST(:names AS json)), json_array_elements_text(CAST(:fingerprints AS json))
    ) WITH ORDINALITY wanted (name, fingerprint, place)
    LEFT JOIN "case" known ON known.project_id = :project_id AND known.name = wanted.name
    LEFT JOIN case_version version ON version.case_id = known.id AND version.fingerprint = wanted.fingerprint
    ORDER BY wanted.place
    """
)
# what is stored already is left alone before a conflict could use up an id
_NEW_CASES = text(
    """
    INSERT INTO "case" (project_id, name, kernel, shape, dtype, direction)
    SELECT :project_id, name, kernel, shape::json, dtype, direction FROM staged_case
    WHERE NOT EXISTS (SELECT FROM "case" known WHERE known.project_id = :project_id AND known.name = staged_case.name)
    ORDER BY name
    ON CONFLICT DO NOTHING
    """
)
_NEW_VERSIONS = text(
    """
    INSERT INTO case_version (case_id, fingerprint, family, flop_count, memory_bytes, bus_bytes, tags)
    SELECT known.id, fingerprint, family, flop_count, memory_bytes, bus_bytes, tags
    FROM staged_case staged JOIN "case" known ON known.project_id = :project_id AND known.name = staged.name
    WHERE NOT EXISTS (
        SELECT FROM case_version version
        WHERE version.case_id = known.id AND version.fingerprint = staged.fingerprint
    )
    ORDER BY known.id
    ON CONFLICT DO NOTHING
    """
)


class _Known(NamedTuple):
    """What the store has of a case; all None where it has nothing."""

    case_id: int | None
    kernel: str
    shape: str
    dtype: str
    direction: str
    version_id: int | None


def case_ids(connection: Connection, project: int, record: RunRecord) -> tuple[list[int], list[int]]:
    """Ids of cases and of what is said of them, in the order of the record.

    Raises:
        IngestError: a case id meant something else in earlier runs.
    """
    if not record.cases:
        return [], []
    fingerprints = [_fingerprint(case) for case in record.cases]
    known = _known(connection, project, record, fingerprints)
    missing = [place for place, row in enumerate(known) if row.version_id is None]
    if missing:
        rows = (_row(record.cases[place], fingerprints[place]) for place in missing)
        stage_rows(connection, "staged_case", _STAGED, rows)
        connection.execute(_NEW_CASES, {"project_id": project})
        connection.execute(_NEW_VERSIONS, {"project_id": project})
        known = _known(connection, project, record, fingerprints)
    return [_stored(row.case_id) for row in known], [_stored(row.version_id) for row in known]


def _known(connection: Connection, project: int, record: RunRecord, fingerprints: Sequence[str]) -> list[_Known]:
    """What is stored, in the order of the record."""
    names = [case.case_id for case in record.cases]
    parameters = {"project_id": project, "names": as_json(names), "fingerprints": as_json(fingerprints)}
    known = [_Known._make(row) for row in connection.execute(_KNOWN, parameters).all()]
    for case, row in zip(record.cases, known, strict=True):
        if row.case_id is not None:
            _check_meaning(record, case, row)
    return known


def _check_meaning(record: RunRecord, case: CaseRecord, known: _Known) -> None:
    meant = {"kernel": known.kernel, "dtype": known.dtype, "direction": known.direction}
    if known.shape != as_json(case.shape):
        meant["shape"] = orjson.loads(known.shape)  # which may be written otherwise
    for field, meaning in meant.items():
        value = getattr(case, field)
        if value != meaning:
            raise IngestError(
                f"run {record.run_id} of {record.project}: case {case.case_id!r} has {field} {value!r}, but earlier "
                f"runs of the project gave it {meaning!r}; a case id means one thing for ever: give the new case "
                "an id of its own"
            )


def _fingerprint(case: CaseRecord) -> str:
    return fingerprint(
        {
            "family": case.family,
            "flop_count": case.flop_count,
            "memory_bytes": case.memory_bytes,
            "bus_bytes": case.bus_bytes,
            "tags": case.tags,
        }
    )


def _row(case: CaseRecord, fingerprint: str) -> tuple[object, ...]:
    meaning = (case.case_id, case.kernel, as_json(case.shape), case.dtype, case.direction)
    return *meaning, fingerprint, case.family, case.flop_count, case.memory_bytes, case.bus_bytes, list(case.tags)


def _stored(row_id: int | None) -> int:
    assert row_id is not None  # stored by us, or by who was quicker
    return row_id
