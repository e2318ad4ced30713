"""What a record says of its cases in parts that have parts, on its way into the store: checks with what they found of
each tensor, and profiles with what they saw. A row is whose it is, its place among its kind, and its fields by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collector.case_profile import CaseProfile
from collector.record import RunRecord
from collector.results import Accuracy
from db.storing.run_key import RunKey
from db.storing.staging import Load, Target

_WHOSE = {"run_number": "int4", "measured_on": "date", "case_id": "int4", "implementation": "text", "position": "int4"}
_CHECKS = {"executor": "text", "outcome": "text", "message": "text"}
_TENSORS = {
    "tensor": "text",
    "max_abs_error": "float8",
    "rmse_ratio": "float8",
    "baseline_rmse_ratio": "float8",
    "passed": "bool",
}
_PROFILES = {
    "source": "text",
    "call_count": "int8",
    "span_ns": "int8",
    "busy_ns": "int8",
    "launch_delay_ns": "float8",
    "left_out_count": "int8",
    "left_out_ns": "int8",
}
_PROFILE_ROWS = {
    "kind": "text",
    "name": "text",
    "device": "text",
    "count": "int8",
    "total_ns": "int8",
    "max_ns": "int8",
    "bytes": "int8",
    "registers": "int8",
    "shared_bytes": "int8",
    "estimated_occupancy": "float8",
    "configuration_count": "int8",
    "grid": "int8[]",
    "block": "int8[]",
}

_Placed = tuple[Accuracy | CaseProfile, int, Any]
"""A part of the record, and it or a part of it, with its place."""


def part_loads(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Iterator[Load]:
    """Checks and tensors, profiles and what they saw, of which the record has any, `case_ids` being those of its cases,
    by their names.
    """

    def load(table: str, fields: Mapping[str, str], placed: Iterable[_Placed]) -> Load:
        rows = (
            (*key, case_ids[one.case_id], one.implementation, at, *(_sent(getattr(part, field)) for field in fields))
            for one, at, part in placed
        )
        return Load(Target(table, _WHOSE | dict(fields)), rows)

    if checks := record.accuracies:
        yield load("accuracy", _CHECKS, ((one, at, one) for at, one in enumerate(checks)))
        yield load("tensor_error", _TENSORS, ((one, at, part) for one in checks for at, part in enumerate(one.tensors)))
    if profiles := record.profiles:
        yield load("profile", _PROFILES, ((one, at, one) for at, one in enumerate(profiles)))
        yield load(
            "profile_row", _PROFILE_ROWS, ((one, at, part) for one in profiles for at, part in enumerate(one.rows))
        )


def _sent(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
