"""A standing as bytes, and findings as JSON: what the store keeps of them. Pure.

What says which code wrote them is `roofwatch.ci.history.method`: of other code nothing is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from roofwatch.ci.changepoint import state_bytes
from roofwatch.ci.history.dates import Nights
from roofwatch.ci.history.standing import BesideStanding, ErrorStanding, Standing, TimeStanding
from roofwatch.ci.history.trend_finding import TrendFinding

_Value = TypeVar("_Value")

_FINDINGS: TypeAdapter[list[TrendFinding]] = TypeAdapter(list[TrendFinding])
_LENGTH = struct.Struct("<I")


def to_bytes(standing: Standing) -> bytes:
    """Pack a standing: words as JSON, then each state of a series of times."""
    words = {
        "times": [
            [
                one.runner_class,
                one.timing,
                *one.last,
                one.looked_at,
                one.level_count,
                one.nights.first,
                f"{one.nights.bits:x}",
            ]
            for one in standing.times
        ],
        "errors": [astuple(one) for one in standing.errors],
        "code": standing.code,
        "is_failing": standing.is_failing,
        "beside": [astuple(one) for one in standing.beside],
    }
    parts = [orjson.dumps(words), *(state_bytes.to_bytes(one.state) for one in standing.times)]
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def from_bytes(packed: bytes) -> Standing:
    """Read what `to_bytes` packed.

    Raises:
        ValueError: it is not whole.
    """
    head, *states = _parts(packed)
    words = orjson.loads(head)
    return Standing(
        times=tuple(
            TimeStanding(
                runner_class=runner_class,
                timing=timing,
                last=(place, sha),
                state=state_bytes.from_bytes(state),
                looked_at=looked_at,
                level_count=level_count,
                nights=Nights(first_night, int(nights, 16)),
            )
            for (runner_class, timing, place, sha, looked_at, level_count, first_night, nights), state in zip(
                words["times"], states, strict=True
            )
        ),
        errors=tuple(ErrorStanding(*one) for one in words["errors"]),
        code=words["code"],
        is_failing=words["is_failing"],
        beside=tuple(BesideStanding(*one) for one in words["beside"]),
    )


def findings_to_json(findings: Sequence[TrendFinding]) -> list[Any]:
    stored: list[Any] = _FINDINGS.dump_python(list(findings), mode="json")
    return stored


def findings_from_json(stored: Sequence[Any], shared: dict[Any, Any]) -> list[TrendFinding]:
    """Read what `findings_to_json` gave.

    Args:
        stored: What it gave.
        shared: The commits and names of all that was read with it, each once. A driver that slows everything is told by
            each series, at the same few commits.
    """
    return [_sharing(finding, shared) for finding in _FINDINGS.validate_python(stored)]


def _sharing(finding: TrendFinding, shared: dict[Any, Any]) -> TrendFinding:
    def one(value: _Value) -> _Value:
        known: _Value = shared.setdefault(value, value)
        return known

    change, series = finding.change, finding.change.series
    named = replace(
        series,
        project=one(series.project),
        implementation=one(series.implementation),
        metric=one(series.metric),
        runner_class=one(series.runner_class),
    )
    at = replace(change, series=named, commit=one(change.commit), previous_commit=one(change.previous_commit))
    return replace(finding, change=at)


def _parts(packed: bytes) -> list[bytes]:
    parts, place = [], 0
    while place < len(packed):
        if place + _LENGTH.size > len(packed):
            raise ValueError(f"a standing of {len(packed)} bytes is not whole")
        (length,) = _LENGTH.unpack_from(packed, place)
        place += _LENGTH.size
        parts.append(packed[place : place + length])
        place += length
    if place != len(packed) or not parts:
        raise ValueError(f"a standing of {len(packed)} bytes is not whole")
    return parts
