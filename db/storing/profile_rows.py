"""Profiles of cases in a record on their way into the store."""

from __future__ import annotations

from collections.abc import Mapping

from collector.record import RunRecord
from db.storing.run_key import RunKey
from db.storing.staging import Load, Target

_OF_CASE = {"run_number": "int4", "measured_on": "date", "case_id": "int4", "implementation": "text"}
_LISTS = ("grid", "block")
_PROFILES = Target(
    "profile",
    _OF_CASE
    | {
        "position": "int4",
        "source": "text",
        "call_count": "int8",
        "span_ns": "int8",
        "busy_ns": "int8",
        "launch_delay_ns": "float8",
        "left_out_count": "int8",
        "left_out_ns": "int8",
    },
)
_ROWS = Target(
    "profile_row",
    _OF_CASE
    | {
        "position": "int4",
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
    }
    | dict.fromkeys(_LISTS, "int8[]"),
)
_OF_PROFILE = tuple(_PROFILES.columns)[len(_OF_CASE) + 1 :]
_OF_ROW = tuple(_ROWS.columns)[len(_OF_CASE) + 1 : -len(_LISTS)]


def load_profiles(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Load:
    """The profiles of a record without their rows, `case_ids` being those of its cases, by their names."""
    rows = (
        (
            *key,
            case_ids[one.case_id],
            one.implementation,
            position,
            *(getattr(one, column) for column in _OF_PROFILE),
        )
        for position, one in enumerate(record.profiles)
    )
    return Load(_PROFILES, rows)


def load_profile_rows(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Load:
    """What the profiles saw."""
    rows = (
        (
            *key,
            case_ids[one.case_id],
            one.implementation,
            position,
            *(getattr(row, column) for column in _OF_ROW),
            *(list(getattr(row, column)) for column in _LISTS),
        )
        for one in record.profiles
        for position, row in enumerate(one.rows)
    )
    return Load(_ROWS, rows)
