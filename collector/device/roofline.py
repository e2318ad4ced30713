"""Roofline model: how close a measured case comes to the measured ceilings of its device.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009); for the memory levels Yang,
Kurth, Williams, Hierarchical Roofline Analysis for GPUs (Concurrency and Computation 32(20), 2020).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import CacheState, CaseRecord

INVALID_ABOVE = {
    "cpu": 2.0,
    "cuda": 1.05,
    "hip": 1.05,
}
"""Times shorter than the ceilings allow by more than this factor are invalid. A GPU's ceilings
repeat within a few per cent; on a CPU, clock and caches are shared with other processes."""

WIDER_DTYPES: Mapping[str, tuple[str, ...]] = {
    "float8_e4m3fn": ("float16", "bfloat16", "float32"),
    "float8_e5m2": ("float16", "bfloat16", "float32"),
    "int8": ("float16", "bfloat16", "float32"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
}
"""Dtypes that represent every value of a narrower one; the fastest of them is its roof."""
TF32 = "tf32"
"""float32 operands rounded to ten bits of mantissa by tensor cores."""
TF32_PRODUCTS = 3
"""TF32 products that restore the precision of one in float32. Source: Ootomo, Yokota, Recovering
single precision accuracy from Tensor Cores (IJHPCA 36(4), 2022)."""


@dataclass(frozen=True)
class Roof:
    """The ceilings of a case and its time at each; None if there is no ceiling or no work."""

    memory: Ceiling | None
    memory_ns: float | None
    compute: Ceiling | None
    compute_ns: float | None
    least_ns: float
    """Time at the highest possible ceilings, which `INVALID_ABOVE` applies to. It assumes that data
    is cached and that float32 operands are rounded to TF32."""

    @property
    def ideal_ns(self) -> float | None:
        """Time at the binding ceiling."""
        times_ns = [time_ns for time_ns in (self.memory_ns, self.compute_ns) if time_ns is not None]
        return max(times_ns, default=None)

    @property
    def bound(self) -> Literal["memory", "compute"] | None:
        """The ceiling that limits the ideal time; None if there is no ideal time."""
        if self.ideal_ns is None:
            return None
        # Equal times are rare, and then both are true.
        if self.ideal_ns == self.compute_ns:
            return "compute"
        return "memory"

    @property
    def binding(self) -> Ceiling | None:
        if self.bound == "compute":
            return self.compute
        return self.memory

    @property
    def ridge(self) -> float | None:
        """Ridge point in FLOP/byte: above it a case is compute-bound."""
        if self.memory is None or self.compute is None:
            return None
        return self.compute.per_s / self.memory.per_s


def roof_of(
    case: CaseRecord,
    ceilings: Sequence[Ceiling],
    cache: CacheState = CacheState.HOT,
) -> Roof:
    """The measured ceilings that bind a case; only a hot cache can serve reads."""
    memory = _memory_ceilings(ceilings)
    ceiling = memory.get("dram")
    if cache is CacheState.HOT and _fits(case, memory.get("cache")):
        ceiling = memory["cache"]
    compute = _compute_ceiling(case.dtype, ceilings)
    levels: list[Ceiling] = []
    for ceiling_of_level in memory.values():
        is_dram = ceiling_of_level.level == "dram"
        if is_dram or _fits(case, ceiling_of_level):
            levels.append(ceiling_of_level)
    fastest_memory = max(levels, key=lambda level: level.per_s, default=None)
    # A user may round float32 operands to TF32, which needs a single product.
    tf32_products = TF32_PRODUCTS
    if case.dtype == "float32":
        tf32_products = 1
    fastest_compute = _compute_ceiling(case.dtype, ceilings, tf32_products)
    least_memory_ns = _ns(case.memory_bytes, fastest_memory) or 0.0
    least_compute_ns = _ns(case.flop_count, fastest_compute) or 0.0
    return Roof(
        memory=ceiling,
        memory_ns=_ns(case.memory_bytes, ceiling),
        compute=compute,
        compute_ns=_ns(case.flop_count, compute),
        least_ns=max(least_memory_ns, least_compute_ns),
    )


@dataclass(frozen=True)
class LevelPosition:
    level: Literal["dram", "l2", "l1"]
    byte_count: float
    utilisation: float | None
    """Relative to the level's ceiling; None if it is not measured."""


_LEVELS: tuple[tuple[Literal["dram", "l2", "l1"], str | None], ...] = (
    ("dram", "dram"),
    ("l2", "cache"),
    ("l1", None),
)
"""Memory levels and their ceilings; a GPU's last-level cache is its L2."""


def level_positions(
    counted: Mapping[str, float],
    median_ns: float,
    ceilings: Sequence[Ceiling],
) -> tuple[LevelPosition, ...]:
    """Utilisation of each memory level, DRAM first.

    Counted are any of `dram_bytes`, `l2_bytes`, `l1_bytes` of one call; its time was measured
    without counters.
    """
    memory = _memory_ceilings(ceilings)
    positions: list[LevelPosition] = []
    for level, ceiling_level in _LEVELS:
        byte_count = counted.get(f"{level}_bytes", 0)
        # A counter that was not read says nothing of its level.
        if byte_count <= 0:
            continue
        ideal_ns = _ns(byte_count, memory.get(ceiling_level or ""))
        utilisation = None
        if ideal_ns is not None:
            utilisation = ideal_ns / median_ns
        positions.append(
            LevelPosition(
                level=level,
                byte_count=byte_count,
                utilisation=utilisation,
            )
        )
    return tuple(positions)


def binding_level(positions: Sequence[LevelPosition]) -> LevelPosition | None:
    """The level closest to its ceiling; None if no level has one."""
    with_ceiling = [position for position in positions if position.utilisation is not None]
    return max(
        with_ceiling,
        key=lambda position: position.utilisation or 0.0,
        default=None,
    )


def _memory_ceilings(ceilings: Sequence[Ceiling]) -> dict[str, Ceiling]:
    measured = _measured(ceilings, "memory")
    return {ceiling.level or "": ceiling for ceiling in measured}


def _measured(ceilings: Sequence[Ceiling], resource: str) -> list[Ceiling]:
    return [
        ceiling
        for ceiling in ceilings
        if ceiling.source == "measured" and ceiling.resource == resource
    ]


def _compute_ceiling(
    dtype: str,
    ceilings: Sequence[Ceiling],
    tf32_products: int = TF32_PRODUCTS,
) -> Ceiling | None:
    """The fastest way to compute with operands of a dtype.

    An unknown dtype gets the fastest of all: a roof that is too low would reject valid times.
    """
    measured = _measured(ceilings, "compute")
    compute = {ceiling.dtype or "": ceiling for ceiling in measured}
    tf32 = compute.pop(TF32, None)
    if tf32 is not None and "float32" in compute:
        # float32 by several products of tensor cores may be faster than without them.
        method = f"{tf32.method}; {tf32_products} TF32 products per float32 product"
        emulated = tf32.model_copy(
            update={
                "dtype": "float32",
                "per_s": tf32.per_s / tf32_products,
                "method": method,
            }
        )
        compute["float32"] = max(compute["float32"], emulated, key=_rate)
    usable_dtypes = (dtype, *WIDER_DTYPES.get(dtype, ()))
    usable = [compute[name] for name in usable_dtypes if name in compute]
    return max(usable or compute.values(), key=_rate, default=None)


def _rate(ceiling: Ceiling) -> float:
    return ceiling.per_s


def _ns(work: float, ceiling: Ceiling | None) -> float | None:
    if ceiling is None or not work:
        return None
    return work / ceiling.per_s * 1e9


def _fits(case: CaseRecord, cache: Ceiling | None) -> bool:
    return cache is not None and case.memory_bytes <= (cache.up_to_bytes or 0)
