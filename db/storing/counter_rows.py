"""Hardware counters of a record on their way into the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import orjson
from sqlalchemy import Connection, text

from collector.record import RunRecord
from db.storing.staging import Stage, stage_rows

_COUNTERS = Stage(
    "staged_counters",
    {
        "position": "int4",
        "case_position": "int4",
        "implementation": "text",
        "function": "text",
        "launch_index": "int8",
        "source": "text",
        "read": "text",
        "findings": "text",
    },
)
_STORE = text(
    """
    INSERT INTO counters
        (run_number, case_id, implementation, function, launch_index, measured_on, position, source, values, findings)
    SELECT :run_number, of_case.id, implementation, function, launch_index, :measured_on, position, source,
        read::json, findings::json
    FROM staged_counters
    JOIN unnest(CAST(:case_ids AS int[])) WITH ORDINALITY of_case (id, number) ON number = case_position + 1
    """
)


def store_counters(
    connection: Connection, record: RunRecord, run_number: int, measured_on: date, case_ids: Sequence[int]
) -> None:
    """Store the counters of a record, `case_ids` being those of its cases, in their order."""
    if not record.counters:
        return
    of_case = {case.case_id: position for position, case in enumerate(record.cases)}
    rows = (
        (
            position,
            of_case[one.case_id],
            one.implementation,
            one.function,
            one.launch_index,
            one.source,
            orjson.dumps(one.values).decode(),
            orjson.dumps([finding.model_dump(mode="json", exclude_defaults=True) for finding in one.findings]).decode(),
        )
        for position, one in enumerate(record.counters)
    )
    stage_rows(connection, _COUNTERS, rows)
    connection.execute(_STORE, {"run_number": run_number, "measured_on": measured_on, "case_ids": list(case_ids)})
