"""Nsight Compute's metrics under one name and unit each, whichever page or version they come from.

Durations in ns, sizes in bytes (ncu's kilobyte has 1000), rates in bytes/s, frequencies in Hz; anything else keeps its
unit. Source: Nsight Compute documentation, metrics reference; `Kbyte` and its kin are decimal in ncu's own output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FACTS: Mapping[str, tuple[str, ...]] = {
    "duration_ns": ("Duration", "gpu__time_duration.sum"),
    "dram_bytes": ("dram__bytes.sum",),
    "dram_throughput_pct": (
        "DRAM Throughput",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "memory_throughput_pct": (
        "Memory Throughput",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "sm_throughput_pct": ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "achieved_occupancy_pct": ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "theoretical_occupancy_pct": ("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    "registers_per_thread": ("Registers Per Thread", "launch__registers_per_thread"),
    "static_shared_memory_per_block_bytes": (
        "Static Shared Memory Per Block",
        "launch__shared_mem_per_block_static",
    ),
    "dynamic_shared_memory_per_block_bytes": (
        "Dynamic Shared Memory Per Block",
        "launch__shared_mem_per_block_dynamic",
    ),
    "l1_throughput_pct": ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed",),
    "l2_throughput_pct": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "tensor_pipe_pct": ("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",),
}
"""Our name of a fact, and what the details page and the raw page call it."""

_SECONDS = {
    "nsecond": 1,
    "usecond": 10**3,
    "msecond": 10**6,
    "second": 10**9,
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
}
_BYTES = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12}
_HERTZ = {
    "hz": 1,
    "Khz": 10**3,
    "Mhz": 10**6,
    "Ghz": 10**9,
    "cycle/second": 1,
    "cycle/usecond": 10**6,
    "cycle/nsecond": 10**9,
}


@dataclass(frozen=True)
class Metric:
    """A value in a normalised unit; None where ncu wrote none."""

    value: float | None
    unit: str


def normalised(value: float | None, unit: str) -> Metric:
    """The value in our unit.

    Args:
        value: As ncu gives it, or None.
        unit: As ncu writes it; versions differ (`nsecond`, `ns`).
    """
    quantity, _, per = unit.partition("/")
    factor, name = 1, unit
    if unit in _SECONDS:
        factor, name = _SECONDS[unit], "ns"
    elif _capitalised(unit) in _HERTZ:
        factor, name = _HERTZ[_capitalised(unit)], "hz"
    elif quantity in _BYTES and per in {"second", "s"}:
        factor, name = _BYTES[quantity], "byte/s"
    elif quantity in _BYTES:
        factor, name = _BYTES[quantity], "byte" + (f"/{per}" if per else "")
    return Metric(None if value is None else value * factor, name)


def _capitalised(unit: str) -> str:
    return unit[:1] + unit[1:].lower() if unit[-2:].lower() == "hz" and unit.lower() != "hz" else unit.lower()


def number(text: str) -> float | None:
    """A number as ncu prints it; None for `n/a`, `nan` and nothing, which are absent values and never 0."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and "." not in text else value


def facts(metrics: Mapping[str, Sequence[Metric]]) -> dict[str, Any]:
    """Those of `FACTS` that a kernel has a number for; where one name has a share of the peak and a rate, the share."""
    found: dict[str, Any] = {}
    for fact, names in FACTS.items():
        candidates = [metric for name in names for metric in metrics.get(name, ()) if metric.value is not None]
        if fact.endswith("_pct"):
            candidates = [metric for metric in candidates if metric.unit in {"%", ""}]
        if candidates:
            found[fact] = candidates[0].value
    return found
