"""How near a measured case comes to the ceilings of its device.

Source: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collector.case_record import CaseRecord
from collector.machine import Ceiling

INVALID_ABOVE = {"cpu": 2.0, "cuda": 1.05, "hip": 1.05}
"""A time under the roof by more than this factor is not believed. A GPU's ceilings repeat to a few per cent. A CPU's
are measured on shared cores whose clock and caches move: only a factor that no neighbour explains counts."""


@dataclass(frozen=True)
class RooflinePosition:
    bound: Literal["memory", "compute"]
    least_ns: float
    """The time that the binding ceiling allows."""
    utilisation: float
    """least_ns / median_ns."""


def position(case: CaseRecord, median_ns: float, ceilings: Sequence[Ceiling]) -> RooflinePosition | None:
    """Where a measured case stands under the roof; None where no ceiling applies."""
    allowed: list[tuple[float, Literal["memory", "compute"]]] = []
    memory = _memory_ceiling(case, ceilings)
    if memory and case.memory_bytes:
        allowed.append((case.memory_bytes / memory.per_s * 1e9, "memory"))
    compute = _compute_ceiling(case, ceilings)
    if compute and case.flop_count:
        allowed.append((case.flop_count / compute.per_s * 1e9, "compute"))
    if not allowed:
        return None
    least_ns, bound = max(allowed)
    return RooflinePosition(bound, least_ns, least_ns / median_ns)


def _memory_ceiling(case: CaseRecord, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """The cache's where the working set may lie in it, the DRAM's otherwise."""
    by_level = {ceiling.level: ceiling for ceiling in ceilings if ceiling.resource == "memory"}
    cache = by_level.get("cache")
    if cache is not None and case.memory_bytes <= (cache.up_to_bytes or 0):
        return cache
    return by_level.get("dram")


def _compute_ceiling(case: CaseRecord, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    compute = {ceiling.dtype: ceiling for ceiling in ceilings if ceiling.resource == "compute"}
    if case.dtype not in compute or not compute:
        return compute.get("float32")
    # a dtype that the device computes in float32 anyway must not get a lower roof than float32
    return max((compute[case.dtype], compute.get("float32", compute[case.dtype])), key=lambda c: c.per_s)
