"""Facts of machine code of a record on their way into the store: what other runs found too is stored once."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, text

from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.ingest.copy import stage_rows
from roofwatch.db.ingest.shared_rows import as_json, fingerprint

_FACTS = {
    "implementation": "text",
    "function": "text",
    "target": "text",
    "outcome": "text",
    "message": "text",
    "configuration": "json",
    "toolchain": "json",
    "thread_count": "int8",
    "registers": "int8",
    "accumulation_registers": "int8",
    "scalar_registers": "int8",
    "spilled_registers": "int8",
    "spill_store_count": "int8",
    "spill_load_count": "int8",
    "local_bytes": "int8",
    "shared_bytes": "int8",
    "static_shared_bytes": "int8",
    "tensor_memory_columns": "int8",
    "theoretical_occupancy": "float8",
    "occupancy_limits": "text[]",
    "instruction_count": "int8",
    "instructions": "json",
    "code_bytes": "int8",
    "code_hash": "text",
}
"""All that is said of the code, by column."""
_SORTED = sorted(_FACTS)
_values_of = itemgetter(*_SORTED)
_DOCUMENTS = frozenset(name for name, kind in _FACTS.items() if kind == "json")
_STAGED = {
    "case_id": "int4",
    "fingerprint": "text",
    **{name: "text" if kind == "json" else kind for name, kind in _FACTS.items()},
}
_NAMED = ", ".join(_FACTS)
_VALUES = ", ".join(f"{name}::json" if name in _DOCUMENTS else name for name in _FACTS)
_KNOWN = text(
    """
    SELECT known.id
    FROM ROWS FROM (
        json_array_elements_text(CAST(:case_ids AS json)), json_array_elements_text(CAST(:fingerprints AS json))
    ) WITH ORDINALITY wanted (case_id, fingerprint, place)
    LEFT JOIN static_fact known ON known.case_id = wanted.case_id::int AND known.fingerprint = wanted.fingerprint
    ORDER BY wanted.place
    """
)
_STORE_NEW = text(
    f"""
    INSERT INTO static_fact (case_id, fingerprint, {_NAMED})
    SELECT case_id, fingerprint, {_VALUES}
    FROM staged_static_fact staged
    WHERE NOT EXISTS (
        SELECT FROM static_fact known
        WHERE known.case_id = staged.case_id AND known.fingerprint = staged.fingerprint
    )
    ORDER BY case_id, fingerprint
    ON CONFLICT DO NOTHING
    """
)


def fact_ids(connection: Connection, record: RunRecord, case_ids: Mapping[str, int]) -> list[int]:
    """Ids of the facts of a record, in its order; `case_ids` are those of its cases, by their names."""
    if not record.static_facts:
        return []
    fingerprints = [fingerprint(_columns(facts)) for facts in record.static_facts]
    keys = {
        "case_ids": as_json([case_ids[facts.case_id] for facts in record.static_facts]),
        "fingerprints": as_json(fingerprints),
    }
    known = _known(connection, keys)
    missing = [place for place, fact_id in enumerate(known) if fact_id is None]
    if missing:
        new = [(fingerprints[place], record.static_facts[place]) for place in missing]
        rows = ((case_ids[facts.case_id], own, *_row(facts)) for own, facts in new)
        stage_rows(connection, "staged_static_fact", _STAGED, rows)
        connection.execute(_STORE_NEW)
        known = _known(connection, keys)
    return [fact_id for fact_id in known if fact_id is not None]


def _known(connection: Connection, keys: Mapping[str, str]) -> list[int | None]:
    """Ids of those that are stored, by their case and fingerprint."""
    return list(connection.scalars(_KNOWN, keys).all())


def _row(facts: StaticFacts) -> list[object]:
    """What is said of the code, by column."""
    said = _columns(facts) | {"occupancy_limits": list(facts.occupancy_limits)}
    return [said[name] for name in _FACTS]


def _columns(facts: StaticFacts) -> dict[str, Any]:
    """The same by the names of columns, which are in order: what is hashed is sorted by them."""
    said: dict[str, Any] = dict(zip(_SORTED, _values_of(facts.__dict__), strict=True))
    # as text: that keeps the order of the keys, which is told apart too
    for name in _DOCUMENTS:
        said[name] = as_json(said[name])
    return said
