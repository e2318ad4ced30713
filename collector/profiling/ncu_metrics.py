"""Nsight Compute's metrics under one name and unit each, whichever page or version they come from.

Durations in ns, sizes in bytes (ncu's kilobyte has 1000), rates in bytes/s, frequencies in Hz; anything else keeps its
unit. Source: Nsight Compute documentation, metrics reference; `Kbyte` and its kin are decimal in ncu's own output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FACTS: Mapping[str, tuple[str, ...]] = {
    "duration_ns": ("Duration", "gpu__time_duration.sum"),
    "sm_clock_hz": ("SM Frequency", "gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second"),
    "dram_bytes": ("dram__bytes.sum",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_write_bytes": ("dram__bytes_write.sum",),
    "l2_bytes": ("lts__t_bytes.sum",),
    "l1_bytes": ("l1tex__t_bytes.sum",),
    "dram_throughput_pct": (
        "DRAM Throughput",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "memory_throughput_pct": (
        "Memory Throughput",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_throughput_pct": ("L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    "l1_throughput_pct": (
        "L1/TEX Cache Throughput",
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_hit_rate_pct": ("L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
    "l1_hit_rate_pct": ("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"),
    "sm_throughput_pct": ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "tensor_pipe_pct": (
        # Blackwell's fifth generation of tensor cores has a pipe of its own
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",
        # since Ampere; Volta and Turing have one for each type of operand
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "achieved_occupancy_pct": ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "theoretical_occupancy_pct": ("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    "waves_per_multiprocessor": ("Waves Per SM", "launch__waves_per_multiprocessor"),
    "registers_per_thread": ("Registers Per Thread", "launch__registers_per_thread"),
    "static_shared_memory_per_block_bytes": (
        "Static Shared Memory Per Block",
        "launch__shared_mem_per_block_static",
    ),
    "dynamic_shared_memory_per_block_bytes": (
        "Dynamic Shared Memory Per Block",
        "launch__shared_mem_per_block_dynamic",
    ),
}
"""Our name of a fact, its unit in it, and what the details page and the raw page call it: the first that has a number
counts. Architectures and versions differ in their names; what one page shows as its own comes first.
"""

_STALLS = (
    re.compile(r"smsp__average_warps_issue_stalled_(?P<reason>\w+)_per_issue_active\.ratio"),
    re.compile(r"smsp__pcsamp_warps_issue_stalled_(?P<reason>\w+?)(?P<variant>_not_issued)?"),
)
"""Cycles of a warp for each instruction that is issued, by what the warp waits for; and the same from samples."""
_ISSUING = "selected"
"""In the list of reasons, and none: the warp issued its instruction."""

_MOST_WHOLE = 2**63
"""Of whole numbers in JSON."""
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
    return Metric(None if value is None else _as_json_has_it(value * factor), name)


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
    return int(value) if value.is_integer() and "." not in text and abs(value) < _MOST_WHOLE else value


def _as_json_has_it(value: float) -> float | None:
    """Readers of JSON take no whole number of more than 64 bits, and no infinite one."""
    if not math.isfinite(value):
        return None
    return value if abs(value) < _MOST_WHOLE else float(value)


def facts(metrics: Mapping[str, Sequence[Metric]]) -> dict[str, Any]:
    """Those of `FACTS` that a kernel has a number for, and `stalls` where it has those.

    Where one name has a share of the peak and a rate, the share counts. `dram_bytes` is the sum of what was read and
    written where the file has the two alone.
    """
    found: dict[str, Any] = {}
    for fact, names in FACTS.items():
        candidates = [metric for name in names for metric in metrics.get(name, ()) if metric.value is not None]
        if fact.endswith("_pct"):
            candidates = [metric for metric in candidates if metric.unit in {"%", ""}]
        if candidates:
            found[fact] = candidates[0].value
    parts = [found.get("dram_read_bytes"), found.get("dram_write_bytes")]
    if "dram_bytes" not in found and None not in parts:
        found["dram_bytes"] = sum(parts)
    stalls = stall_shares(metrics)
    return found | ({"stalls": stalls} if stalls else {})


def stall_shares(metrics: Mapping[str, Sequence[Metric]]) -> dict[str, float]:
    """Share of a warp's time between two instructions that it waits for each reason, from 0 to 1, the largest first.

    Issuing counts towards the whole and is no reason to wait. Counters are taken before samples.
    """
    for pattern in _STALLS:
        cycles = {
            match["reason"]: values[0].value
            for name, values in metrics.items()
            if (match := pattern.fullmatch(name)) is not None
            and not match.groupdict().get("variant")
            and values
            and values[0].value is not None
        }
        whole = sum(cycles.values())
        if whole > 0:
            reasons = sorted(cycles, key=lambda reason: (-cycles[reason], reason))
            return {reason: cycles[reason] / whole for reason in reasons if reason != _ISSUING and cycles[reason] > 0}
    return {}
