"""Facts of machine code of a record on their way into the store: what other runs found too is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import orjson
from sqlalchemy import Connection, text

from collector.record import RunRecord
from collector.results import StaticFacts
from db.storing.shared_rows import fingerprint
from db.storing.staging import Stage, stage_rows

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
_DOCUMENTS = frozenset(name for name, kind in _FACTS.items() if kind == "json")
_STAGED = Stage(
    "staged_static_fact",
    {
        "position": "int4",
        "case_position": "int4",
        "compile_ns": "text",
        "fingerprint": "text",
        **{name: "text" if kind == "json" else kind for name, kind in _FACTS.items()},
    },
)
_COLUMNS = ", ".join(_FACTS)
_VALUES = ", ".join(f"{name}::json" if name in _DOCUMENTS else name for name in _FACTS)
_OF_CASES = """
    staged_static_fact staged
    JOIN unnest(CAST(:case_ids AS int[])) WITH ORDINALITY of_case (id, number) ON number = staged.case_position + 1
"""
_STORE_NEW = text(
    f"""
    INSERT INTO static_fact (case_id, fingerprint, {_COLUMNS})
    SELECT of_case.id, fingerprint, {_VALUES}
    FROM {_OF_CASES}
    WHERE NOT EXISTS (
        SELECT FROM static_fact known WHERE known.case_id = of_case.id AND known.fingerprint = staged.fingerprint
    )
    ORDER BY of_case.id, fingerprint
    ON CONFLICT DO NOTHING
    """
)
_STORE_COMPILATIONS = text(
    f"""
    INSERT INTO compilation (run_number, position, measured_on, static_fact_id, compile_ns)
    SELECT :run_number, staged.position, :measured_on, known.id, staged.compile_ns::json
    FROM {_OF_CASES}
    JOIN static_fact known ON known.case_id = of_case.id AND known.fingerprint = staged.fingerprint
    """
)


def store_static_facts(
    connection: Connection, record: RunRecord, run_number: int, measured_on: date, case_ids: Sequence[int]
) -> None:
    """Store the static facts of a record, `case_ids` being those of its cases, in their order."""
    if not record.static_facts:
        return
    of_case = {case.case_id: position for position, case in enumerate(record.cases)}
    rows = (
        (position, of_case[facts.case_id], orjson.dumps(facts.compile_ns).decode(), *_values(facts))
        for position, facts in enumerate(record.static_facts)
    )
    stage_rows(connection, _STAGED, rows)
    connection.execute(_STORE_NEW, {"case_ids": list(case_ids)})
    connection.execute(
        _STORE_COMPILATIONS, {"run_number": run_number, "measured_on": measured_on, "case_ids": list(case_ids)}
    )


def _values(facts: StaticFacts) -> tuple[object, ...]:
    """The fingerprint, then the columns."""
    said = {name: getattr(facts, name) for name in _FACTS}
    # as text: that keeps the order of the keys, which is told apart too
    said |= {name: orjson.dumps(said[name]).decode() for name in _DOCUMENTS}
    said |= {"outcome": facts.outcome.value, "occupancy_limits": list(facts.occupancy_limits)}
    return fingerprint(said), *said.values()
