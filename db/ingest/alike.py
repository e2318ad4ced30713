"""What makes two runs alike: nearly every run has the cases and the series of one before it, in the same order, and
many have its machine code, so that their ids need not be looked up one by one. No such row is ever removed but with
its project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from operator import itemgetter

import orjson

from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import StaticFacts

_of_code = itemgetter(*(name for name in StaticFacts.model_fields if name != "compile_ns"))


def identity_sha256(record: RunRecord) -> bytes:
    """Of all that decides which cases, which versions of them, and which series a record of a project is of: two that
    have it in common have the same ids of these, in the same order, and mean the same by each case.
    """
    measurements = record.measurements
    identities = [
        record.environment.runner_class,
        list(map(vars, record.cases)),
        [one.case_id for one in measurements],
        [one.implementation for one in measurements],
        [one.timer for one in measurements],
        [one.cache for one in measurements],
    ]
    return hashlib.sha256(orjson.dumps(identities)).digest()


def facts_sha256(record: RunRecord) -> bytes | None:
    """Of all that is said of the machine code of a record's cases, but how long it took to compile; None where nothing
    is. Two records of a project that have it in common have the same ids of that, in the same order.
    """
    if not record.static_facts:
        return None
    return hashlib.sha256(orjson.dumps([_of_code(vars(facts)) for facts in record.static_facts])).digest()


def flags_sha256(are_there: Mapping[str, Sequence[bool]]) -> bytes:
    """Of which values each measurement has, by flag of series (`FLAGS` of `series_rows.py`): where it is that of an
    alike run, the series say so already.
    """
    return hashlib.sha256(b"".join(bytes(are_there[flag]) for flag in sorted(are_there))).digest()
