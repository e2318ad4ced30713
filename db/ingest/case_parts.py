"""What a record says of its cases in parts that have parts, on its way into the store: checks with what they found of
each tensor, and profiles with what they saw. A row is whose it is, its place among its kind, and its fields by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter

import numpy as np
from pydantic import BaseModel

from roofwatch.collector.record.case_profile import CaseProfile
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy
from roofwatch.db.ingest.column_bytes import Column, Same
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.staging import Columns, Target

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

_Part = Accuracy | CaseProfile


def part_loads(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Iterator[Columns]:
    """Checks and tensors, profiles and what they saw, of which the record has any, `case_ids` being those of its cases,
    by their names.
    """
    if checks := record.accuracies:
        yield _own("accuracy", _CHECKS, key, case_ids, checks)
        yield _inner("tensor_error", _TENSORS, key, case_ids, checks, [check.tensors for check in checks])
    if profiles := record.profiles:
        yield _own("profile", _PROFILES, key, case_ids, profiles)
        yield _inner("profile_row", _PROFILE_ROWS, key, case_ids, profiles, [profile.rows for profile in profiles])


def _own(
    table: str, fields: Mapping[str, str], key: RunKey, case_ids: Mapping[str, int], parts: Sequence[_Part]
) -> Columns:
    """What parts say themselves."""
    whose = ([case_ids[part.case_id] for part in parts], [part.implementation for part in parts], range(len(parts)))
    return _columns(table, fields, key, whose, parts)


def _inner(
    table: str,
    fields: Mapping[str, str],
    key: RunKey,
    case_ids: Mapping[str, int],
    parts: Sequence[_Part],
    inner: Sequence[Sequence[BaseModel]],
) -> Columns:
    """What the parts in each of them say."""
    counts = [len(some) for some in inner]
    case_of_each = np.repeat([case_ids[part.case_id] for part in parts], counts)
    implementations = chain.from_iterable(map(repeat, (part.implementation for part in parts), counts))
    places = chain.from_iterable(map(range, counts))
    whose = (case_of_each, list(implementations), list(places))
    return _columns(table, fields, key, whose, list(chain.from_iterable(inner)))


def _columns(
    table: str, fields: Mapping[str, str], key: RunKey, whose: tuple[Column, ...], parts: Sequence[BaseModel]
) -> Columns:
    said = zip(*map(itemgetter(*fields), map(vars, parts)), strict=True) if parts else repeat((), len(fields))
    return Columns(Target(table, _WHOSE | dict(fields)), (*map(Same, key), *whose, *said), len(parts))
