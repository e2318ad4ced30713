"""GPU targets that kernels are compiled for, the limits of their multiprocessors, and theoretical
occupancy.

Sources: NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability, and
CUDA C++ Best Practices Guide, "Calculating Occupancy"; AMD, CDNA 3 and CDNA 4 instruction set
architecture guides, and the allocation units of LLVM's AMDGPU usage guide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roofwatch.model.errors import CollectorError

DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")


class TargetError(CollectorError):
    """The target is unknown."""


@dataclass(frozen=True)
class Target:
    backend: str
    arch: int | str
    warp_size: int


def parse_target(name: str) -> Target:
    """Parse `sm_90` or `gfx942`.

    Raises:
        TargetError: neither an NVIDIA nor an AMD target.
    """
    if re.fullmatch(r"sm_\d{2,3}", name):
        return Target(
            backend="cuda",
            arch=int(name.removeprefix("sm_")),
            warp_size=32,
        )
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", name):
        warp_size = 32
        # CDNA is gfx9, RDNA is newer
        if name.startswith("gfx9"):
            warp_size = 64
        return Target(
            backend="hip",
            arch=name,
            warp_size=warp_size,
        )
    raise TargetError(f"target {name!r} is not known; use for example {', '.join(DEFAULT_TARGETS)}")


_TARGETS_OF_DEVICES = (
    (r"A100|A800|A30\b", "sm_80"),
    (r"A10\b|A10G|A40\b|A16\b|RTX A\d|RTX 30\d\d", "sm_86"),
    (r"L4\b|L20\b|L40|RTX 40\d\d|RTX \d000 Ada", "sm_89"),
    (r"H100|H200|H800|H20\b|GH200", "sm_90"),
    (r"B100|B200", "sm_100"),
    (r"B300", "sm_103"),
    (r"RTX 50\d\d|RTX PRO \d000", "sm_120"),
    (r"MI2[15]0", "gfx90a"),
    (r"MI300|MI308|MI325", "gfx942"),
    (r"MI350|MI355", "gfx950"),
    (r"RX 79\d\d|PRO W7[89]00", "gfx1100"),
    (r"RX 90[67]0|R9700", "gfx1201"),
)
"""Sources: NVIDIA, CUDA GPUs (compute capability by product); LLVM, AMDGPU usage, processors."""


def target_of_device(name: str) -> str | None:
    """Find the target of a product by its name, `NVIDIA_H100_80GB_HBM3` or `gfx942` for example."""
    words = name.replace("_", " ")
    named = re.search(r"\b(gfx[0-9a-f]{3,4}|sm \d{2,3})\b", words)
    if named is not None:
        return named[1].replace(" ", "_")
    for pattern, target in _TARGETS_OF_DEVICES:
        if re.search(rf"\b(?:{pattern})", words):
            return target
    return None


# --- occupancy

_REGISTER_UNIT = 8
"""Allocation unit of registers per thread."""
_SCHEDULER_COUNT = 4
"""Each has an equal share of registers and warps."""


@dataclass(frozen=True, kw_only=True)
class ProcessorLimits:
    """Resources of one multiprocessor, or of AMD's compute unit with its wavefronts as warps and
    LDS as shared.
    """

    warp_threads: int
    max_warps: int
    max_blocks: int
    max_one_warp_blocks: int
    """Blocks of a single warp need no barrier."""
    registers: int
    """Of 32 bits."""
    shared_bytes: int
    shared_unit_bytes: int
    """Allocation unit per block."""
    reserved_shared_bytes: int
    """Taken by the system from each block."""


def _nvidia(max_warps: int, max_blocks: int, shared_kib: int) -> ProcessorLimits:
    return ProcessorLimits(
        warp_threads=32,
        max_warps=max_warps,
        max_blocks=max_blocks,
        max_one_warp_blocks=max_blocks,
        registers=65_536,
        shared_bytes=shared_kib * 1024,
        shared_unit_bytes=128,
        reserved_shared_bytes=1024,
    )


def _amd(shared_kib: int, shared_unit_bytes: int) -> ProcessorLimits:
    return ProcessorLimits(
        warp_threads=64,
        max_warps=32,  # 8 on each of 4 SIMDs
        max_blocks=16,  # number of barriers
        max_one_warp_blocks=32,
        registers=4 * 512 * 64,
        shared_bytes=shared_kib * 1024,
        shared_unit_bytes=shared_unit_bytes,
        reserved_shared_bytes=0,
    )


LIMITS: Mapping[str, ProcessorLimits] = {
    "sm_80": _nvidia(max_warps=64, max_blocks=32, shared_kib=164),
    "sm_90": _nvidia(max_warps=64, max_blocks=32, shared_kib=228),
    "sm_100": _nvidia(max_warps=64, max_blocks=32, shared_kib=228),
    "sm_120": _nvidia(max_warps=48, max_blocks=24, shared_kib=100),
    "gfx942": _amd(64, 512),
    "gfx950": _amd(160, 1280),
    # by name only: not compiled unless asked for
    "sm_86": _nvidia(max_warps=48, max_blocks=16, shared_kib=100),
    "sm_89": _nvidia(max_warps=48, max_blocks=24, shared_kib=100),
    "gfx90a": _amd(64, 512),
}


def theoretical_occupancy(
    limits: ProcessorLimits,
    *,
    threads: int,
    registers: int,
    shared_bytes: int,
) -> tuple[float, tuple[str, ...]]:
    """Compute the occupancy of a kernel: resident warps / maximum resident warps.

    Threads and shared memory (static and dynamic) are per block, registers per thread; AMD's
    accumulation registers count too.

    Returns:
        0 to 1, 0 if no block fits; and which of `registers`, `shared memory`, `warps`, `blocks`
        allow no further block.

    Raises:
        ValueError: a block has no threads.
    """
    if threads < 1:
        raise ValueError(f"a block has {threads} threads; it takes at least one")
    warps = -(-threads // limits.warp_threads)
    max_blocks = limits.max_blocks
    if warps == 1:
        max_blocks = limits.max_one_warp_blocks
    blocks_by = {
        "warps": limits.max_warps // warps,
        "blocks": max_blocks,
    }
    # registers are allotted to warps of a scheduler
    if registers:
        registers_per_warp = _round_up(registers, _REGISTER_UNIT) * limits.warp_threads
        warps_per_scheduler = limits.registers // _SCHEDULER_COUNT // registers_per_warp
        blocks_by["registers"] = warps_per_scheduler * _SCHEDULER_COUNT // warps
    # each block also takes what the driver reserves
    if shared_bytes:
        per_block = _round_up(shared_bytes + limits.reserved_shared_bytes, limits.shared_unit_bytes)
        blocks_by["shared memory"] = limits.shared_bytes // per_block
    blocks = min(blocks_by.values())
    limited_by = tuple(resource for resource, count in blocks_by.items() if count == blocks)
    return blocks * warps / limits.max_warps, limited_by


def _round_up(count: int, unit: int) -> int:
    return -(-count // unit) * unit
