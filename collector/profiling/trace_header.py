"""What the document of a trace says beside its events: of which devices, and in which group of processes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

_DEVICE_FIELDS = (
    "id",
    "name",
    "totalGlobalMem",
    "computeMajor",
    "computeMinor",
    "maxThreadsPerBlock",
    "numSms",
    "warpSize",
)


_MOST_LEVELS = 8
"""Of lists and objects in each other. A reader of JSON takes a thousand, what goes through them after it does not."""


def plain(value: Any, *, levels: int = _MOST_LEVELS) -> Any:
    """As JSON has it; None for numbers that are not finite, or whole and of more than 64 bits, and for what lies deeper
    than so many levels.
    """
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        number = float(value) if isinstance(value, Decimal) else value
        return number if abs(number) < 2**63 or (isinstance(number, float) and math.isfinite(number)) else None
    if not isinstance(value, (list, dict)):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [plain(each, levels=levels - 1) for each in value]
    return {name: plain(each, levels=levels - 1) for name, each in value.items()}


def declared_devices(properties: Any) -> list[dict[str, Any]]:
    declared = properties if isinstance(properties, list) else []
    return [
        {name: plain(device[name]) for name in _DEVICE_FIELDS if name in device}
        for device in declared
        if isinstance(device, dict)
    ]


def distributed_info(info: Any) -> dict[str, Any] | None:
    if not isinstance(info, dict):
        return None
    return {
        name: plain(info[name])
        for name in ("backend", "rank", "world_size", "pg_count", "nccl_version")
        if name in info
    }
