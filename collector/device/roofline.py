"""How near a measured case comes to the ceilings of its device, over all and level by level of its memory.

Only ceilings that were measured in the run judge; the datasheet's stand beside them.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009); for the levels Yang, Kurth, Williams, Hierarchical
Roofline Analysis for GPUs (Concurrency and Computation 32(20), 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.measurement import CacheState, CaseRecord

INVALID_ABOVE = {"cpu": 2.0, "cuda": 1.05, "hip": 1.05}
"""A time under the roof by more than this factor is not believed. A GPU's ceilings repeat to a few per cent. A CPU's
are measured on shared cores whose clock and caches move: only a factor that no neighbour explains counts."""

HOLDERS: Mapping[str, tuple[str, ...]] = {
    "float8_e4m3fn": ("float16", "bfloat16", "float32"),
    "float8_e5m2": ("float16", "bfloat16", "float32"),
    "int8": ("float16", "bfloat16", "float32"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
}
"""Dtypes that hold every value of a narrower one, so that a product of it may be computed in them: its roof is that of
the fastest.
"""
TF32 = "tf32"
"""float32 operands that the tensor cores round to ten bits of mantissa."""
TF32_PRODUCTS = 3
"""As many of them restore the precision of float32. Source: Ootomo, Yokota, Recovering single precision accuracy from
Tensor Cores (IJHPCA 36(4), 2022)."""


@dataclass(frozen=True)
class RooflinePosition:
    bound: Literal["memory", "compute"]
    least_ns: float
    """The time that the binding ceiling allows."""
    utilisation: float
    """least_ns / median_ns."""
    excess: float
    """The time that the most generous ceilings allow / median_ns: what is held against `INVALID_ABOVE`. Data may turn
    out to lie in a cache, and float32 operands may be rounded."""


@dataclass(frozen=True)
class Roof:
    """The ceilings that bind a case, and the least time at each; None where there is no such ceiling or no work."""

    memory: Ceiling | None
    memory_ns: float | None
    compute: Ceiling | None
    compute_ns: float | None

    @property
    def least_ns(self) -> float | None:
        return max((time for time in (self.memory_ns, self.compute_ns) if time is not None), default=None)

    @property
    def bound(self) -> Literal["memory", "compute"] | None:
        """The ceiling that takes longer."""
        if self.least_ns is None:
            return None
        return "compute" if self.least_ns == self.compute_ns else "memory"

    @property
    def ridge(self) -> float | None:
        """FLOP per byte from which on arithmetic takes longer than memory."""
        return None if self.memory is None or self.compute is None else self.compute.per_s / self.memory.per_s


def roof_of(case: CaseRecord, ceilings: Sequence[Ceiling], cache: CacheState = CacheState.HOT) -> Roof:
    """The ceilings that bind a case.

    Args:
        case: What it costs by its model.
        ceilings: Of the run.
        cache: What a launch finds: a hot cache alone can serve a case's reads.
    """
    measured = _measured(ceilings)
    by_level = {ceiling.level: ceiling for ceiling in measured if ceiling.resource == "memory"}
    memory = by_level.get("dram")
    if cache is CacheState.HOT and _fits(case, by_level.get("cache")):
        memory = by_level["cache"]
    compute = _compute_ceiling(case.dtype, measured)
    return Roof(memory, _ns(case.memory_bytes, memory), compute, _ns(case.flop_count, compute))


def position(
    case: CaseRecord, median_ns: float, ceilings: Sequence[Ceiling], cache: CacheState = CacheState.HOT
) -> RooflinePosition | None:
    """Where a measured case stands under the roof; None where no ceiling applies."""
    roof = roof_of(case, ceilings, cache)
    if roof.least_ns is None or roof.bound is None:
        return None
    generous = max(_ns(case.memory_bytes, _fastest_memory(case, ceilings)) or 0.0, _fastest_ns(case, ceilings) or 0.0)
    return RooflinePosition(roof.bound, roof.least_ns, roof.least_ns / median_ns, generous / median_ns)


# --- level by level


@dataclass(frozen=True)
class LevelPosition:
    """What one level of the memory had to do with a case."""

    level: Literal["dram", "l2", "l1"]
    byte_count: float
    intensity: float
    """FLOP per byte that the level moved; 0 for a case without arithmetic."""
    utilisation: float | None
    """Of the level's ceiling; None where none is measured."""


_LEVELS: tuple[tuple[Literal["dram", "l2", "l1"], str, Literal["dram", "cache"] | None], ...] = (
    ("dram", "dram_bytes", "dram"),
    ("l2", "l2_bytes", "cache"),
    ("l1", "l1_bytes", None),
)
"""Of each its counter and its ceiling; a GPU's last-level cache is its L2."""


def level_positions(
    case: CaseRecord, counted: Mapping[str, float], median_ns: float, ceilings: Sequence[Ceiling]
) -> tuple[LevelPosition, ...]:
    """How busy each level of the memory was, by what the hardware counted; the levels that were counted, DRAM first.

    Args:
        case: Its `flop_count` is that of the model.
        counted: Bytes of one call, all its kernels together: any of `dram_bytes`, `l2_bytes`, `l1_bytes`.
        median_ns: Of one call, from a run that counted nothing.
        ceilings: Of the same run as the time.
    """
    measured = {ceiling.level: ceiling for ceiling in _measured(ceilings) if ceiling.resource == "memory"}
    found = []
    for level, counter, of_level in _LEVELS:
        byte_count = counted.get(counter)
        if byte_count is None or byte_count <= 0:
            continue
        ceiling = None if of_level is None else measured.get(of_level)
        least_ns = _ns(byte_count, ceiling)
        utilisation = None if least_ns is None else least_ns / median_ns
        found.append(LevelPosition(level, byte_count, case.flop_count / byte_count, utilisation))
    return tuple(found)


def binding_level(positions: Sequence[LevelPosition]) -> LevelPosition | None:
    """The level that is nearest to its ceiling; None where no level has one."""
    known = [place for place in positions if place.utilisation is not None]
    return max(known, key=lambda place: place.utilisation or 0.0, default=None)


# --- ceilings


def _measured(ceilings: Sequence[Ceiling]) -> list[Ceiling]:
    return [ceiling for ceiling in ceilings if ceiling.source == "measured"]


def _ns(work: float, ceiling: Ceiling | None) -> float | None:
    return work / ceiling.per_s * 1e9 if ceiling is not None and work else None


def _fits(case: CaseRecord, cache: Ceiling | None) -> bool:
    return cache is not None and case.memory_bytes <= (cache.up_to_bytes or 0)


def _fastest_memory(case: CaseRecord, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    memory = [ceiling for ceiling in _measured(ceilings) if ceiling.resource == "memory"]
    usable = [ceiling for ceiling in memory if ceiling.level == "dram" or _fits(case, ceiling)]
    return max(usable, key=lambda ceiling: ceiling.per_s, default=None)


def _fastest_ns(case: CaseRecord, ceilings: Sequence[Ceiling]) -> float | None:
    """Least time of the arithmetic, were float32 operands rounded to TF32."""
    measured = _measured(ceilings)
    compute = _compute_ceiling(case.dtype, measured)
    rounded = next((ceiling for ceiling in measured if ceiling.dtype == TF32), None)
    if compute is not None and rounded is not None and case.dtype == "float32" and rounded.per_s > compute.per_s:
        compute = rounded
    return _ns(case.flop_count, compute)


def _compute_ceiling(dtype: str, measured: Sequence[Ceiling]) -> Ceiling | None:
    """The fastest way to compute with operands of a dtype at full precision. A dtype that nothing is known of gets the
    fastest of all: a roof that is too high judges mildly, one that is too low calls an honest time impossible.
    """
    compute = {ceiling.dtype or "": ceiling for ceiling in measured if ceiling.resource == "compute"}
    rounded = compute.pop(TF32, None)
    if rounded is not None and "float32" in compute:
        in_three = rounded.model_copy(
            update={
                "dtype": "float32",
                "per_s": rounded.per_s / TF32_PRODUCTS,
                "method": f"{rounded.method}; {TF32_PRODUCTS} TF32 products for one of float32",
            }
        )
        compute["float32"] = max(compute["float32"], in_three, key=lambda ceiling: ceiling.per_s)
    ways = [compute[name] for name in (dtype, *HOLDERS.get(dtype, ())) if name in compute]
    return max(ways or compute.values(), key=lambda ceiling: ceiling.per_s, default=None)
