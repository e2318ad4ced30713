"""How a kernel was launched, as the events of a trace say it; what is no shape and no number there is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.collector.profiling.trace_header import plain

FIELDS = {
    "grid": "grid",
    "block": "block",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "blocks per SM": "blocks_per_sm",
    "warps per SM": "warps_per_sm",
    "est. achieved occupancy %": "est_achieved_occupancy_pct",
    "est. achieved occupancy": "est_achieved_occupancy_pct",
}
"""Of a kernel, by Kineto's words, and ours for them."""
_SHAPES = frozenset({"grid", "block"})


def launch_of(arguments: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Those of `fields` that hold what they should: a grid and a block whole numbers, everything else a number."""
    found = {ours: plain(arguments[theirs]) for theirs, ours in fields.items() if theirs in arguments}
    return {name: value for name, value in found.items() if (_is_shape if name in _SHAPES else _is_number)(value)}


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) for each in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
