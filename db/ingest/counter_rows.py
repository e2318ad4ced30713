"""Hardware counters of a record on their way into the store."""

from __future__ import annotations

from collections.abc import Mapping

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.column_bytes import Column, Same
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.shared_rows import as_json
from roofwatch.db.ingest.staging import Columns, Target

_COUNTERS = Target(
    "counters",
    {
        "run_number": "int4",
        "measured_on": "date",
        "case_id": "int4",
        "implementation": "text",
        "function": "text",
        "launch_index": "int8",
        "position": "int4",
        "source": "text",
        "values": "text",
        "findings": "text",
    },
)


def load_counters(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Columns:
    """The counters of a record, `case_ids` being those of its cases, by their names."""
    launches = record.counters
    values: list[Column] = [
        *map(Same, key),
        [case_ids[one.case_id] for one in launches],
        [one.implementation for one in launches],
        [one.function for one in launches],
        [one.launch_index for one in launches],
        range(len(launches)),
        [one.source for one in launches],
        [as_json(one.values) for one in launches],
        [
            as_json([finding.model_dump(mode="json", exclude_defaults=True) for finding in one.findings])
            for one in launches
        ],
    ]
    return Columns(_COUNTERS, values, len(launches))
