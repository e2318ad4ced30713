"""Hardware counters of a record on their way into the store."""

from __future__ import annotations

from collections.abc import Mapping

from collector.record import RunRecord
from db.storing.run_key import RunKey
from db.storing.shared_rows import as_json
from db.storing.staging import Load, Target

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


def load_counters(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Load:
    """The counters of a record, `case_ids` being those of its cases, by their names."""
    rows = (
        (
            *key,
            case_ids[one.case_id],
            one.implementation,
            one.function,
            one.launch_index,
            position,
            one.source,
            as_json(one.values),
            as_json([finding.model_dump(mode="json", exclude_defaults=True) for finding in one.findings]),
        )
        for position, one in enumerate(record.counters)
    )
    return Load(_COUNTERS, rows)
