"""GPU targets that kernels are compiled for, the limits of their multiprocessors, and theoretical occupancy.

Sources: NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability, and CUDA C++ Best
Practices Guide, "Calculating Occupancy"; AMD, CDNA 3 and CDNA 4 instruction set architecture guides, and the allocation
units of LLVM's AMDGPU usage guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roofwatch.collector.errors import CollectorError

DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")


class TargetError(CollectorError):
    """Not a target that this version knows."""


@dataclass(frozen=True)
class Target:
    backend: str
    arch: int | str
    warp_size: int


def parse_target(name: str) -> Target:
    """Read `sm_90` or `gfx942`.

    Raises:
        TargetError: neither an NVIDIA nor an AMD target.
    """
    if re.fullmatch(r"sm_\d{2,3}", name):
        return Target("cuda", int(name.removeprefix("sm_")), 32)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", name):
        # CDNA (gfx9) has wavefronts of 64 threads, RDNA of 32
        return Target("hip", name, 64 if name.startswith("gfx9") else 32)
    raise TargetError(f"target {name!r} is not known; use for example {', '.join(DEFAULT_TARGETS)}")


# --- occupancy


@dataclass(frozen=True, kw_only=True)
class ProcessorLimits:
    """What one multiprocessor (NVIDIA) or compute unit (AMD) has.

    Args:
        warp_threads: Threads of a warp (NVIDIA) or wavefront (AMD).
        max_warps: Resident at once.
        max_blocks: Resident at once.
        max_one_warp_blocks: The same for blocks of a single warp, which have nobody to wait for.
        registers: 32-bit registers, one for each thread that has it.
        register_unit: They are handed to a warp in multiples of this many per thread.
        partitions: Warps are spread evenly over so many schedulers, each with its share of the registers.
        shared_bytes: Of shared memory, LDS on AMD.
        shared_unit_bytes: Handed to a block in multiples of this.
        reserved_shared_bytes: Taken by the system from each block's.
    """

    warp_threads: int
    max_warps: int
    max_blocks: int
    max_one_warp_blocks: int
    registers: int
    register_unit: int
    partitions: int
    shared_bytes: int
    shared_unit_bytes: int
    reserved_shared_bytes: int


def _nvidia(max_warps: int, max_blocks: int, shared_kib: int) -> ProcessorLimits:
    return ProcessorLimits(
        warp_threads=32,
        max_warps=max_warps,
        max_blocks=max_blocks,
        max_one_warp_blocks=max_blocks,
        registers=65_536,
        register_unit=8,  # 256 per warp
        partitions=4,
        shared_bytes=shared_kib * 1024,
        shared_unit_bytes=128,
        reserved_shared_bytes=1024,
    )


def _amd(shared_kib: int, shared_unit_bytes: int) -> ProcessorLimits:
    return ProcessorLimits(
        warp_threads=64,
        max_warps=32,  # 8 on each of 4 SIMDs
        max_blocks=16,  # barriers
        max_one_warp_blocks=32,  # take none
        registers=4 * 512 * 64,
        register_unit=8,
        partitions=4,
        shared_bytes=shared_kib * 1024,
        shared_unit_bytes=shared_unit_bytes,
        reserved_shared_bytes=0,
    )


LIMITS: Mapping[str, ProcessorLimits] = {
    "sm_80": _nvidia(64, 32, 164),
    "sm_90": _nvidia(64, 32, 228),
    "sm_100": _nvidia(64, 32, 228),
    "sm_120": _nvidia(48, 24, 100),
    "gfx942": _amd(64, 512),
    "gfx950": _amd(160, 1280),
}


@dataclass(frozen=True)
class Occupancy:
    """Warps that can be resident over those that there are slots for.

    Args:
        share: 0 … 1; 0 where not one block fits.
        blocks: Resident on one multiprocessor.
        limited_by: What allows no further block: any of `registers`, `shared memory`, `warps`, `blocks`.
    """

    share: float
    blocks: int
    limited_by: tuple[str, ...]


def theoretical_occupancy(limits: ProcessorLimits, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a kernel.

    Args:
        limits: Of the target.
        threads: Per block.
        registers: Per thread; on AMD vector and accumulation registers together.
        shared_bytes: Per block, static and dynamic.

    Raises:
        ValueError: a block without threads.
    """
    if threads < 1:
        raise ValueError(f"a block has {threads} threads; it takes at least one")
    warps = _divided_up(threads, limits.warp_threads)
    blocks_by = {
        "warps": limits.max_warps // warps,
        "blocks": limits.max_one_warp_blocks if warps == 1 else limits.max_blocks,
    }
    if registers:
        blocks_by["registers"] = _blocks_by_registers(limits, warps, registers)
    if shared_bytes:
        blocks_by["shared memory"] = _blocks_by_shared(limits, shared_bytes)
    blocks = min(blocks_by.values())
    return Occupancy(
        share=blocks * warps / limits.max_warps,
        blocks=blocks,
        limited_by=tuple(what for what, count in blocks_by.items() if count == blocks),
    )


def _blocks_by_registers(limits: ProcessorLimits, warps: int, registers: int) -> int:
    per_warp = _rounded_up(registers, limits.register_unit) * limits.warp_threads
    warps_that_fit = limits.registers // limits.partitions // per_warp * limits.partitions
    return warps_that_fit // warps


def _blocks_by_shared(limits: ProcessorLimits, shared_bytes: int) -> int:
    taken = _rounded_up(shared_bytes + limits.reserved_shared_bytes, limits.shared_unit_bytes)
    return limits.shared_bytes // taken


def _divided_up(count: int, unit: int) -> int:
    return -(-count // unit)


def _rounded_up(count: int, unit: int) -> int:
    return _divided_up(count, unit) * unit
