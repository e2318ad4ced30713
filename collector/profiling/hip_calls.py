"""What a trace of an AMD GPU says at the call and not at what it started: the shape of a launch, the bytes of a copy.

Kernels carry their shape in traces of newer versions alone; before, it stands at the call, also in traces whose kernels
have nothing in common with their calls but an `External id`.

Sources: pytorch/kineto RoctracerActivity_inl.h, of which each version names these fields otherwise; HIP's reference, by
which two of the calls count threads where the others count blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.collector.profiling.launch_shape import launch_of

_SHAPE_FIELDS = {
    "grid": "grid",
    "grid dim": "grid",
    "block": "block",
    "block dim": "block",
    "shared memory": "shared_memory_bytes",
    "shared size": "shared_memory_bytes",
}
_MOST_DIGITS = 18
"""Of a number of bytes: no memory is larger."""
_COUNT_THREADS = {"hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"}


def launch_said_by(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of the launch that a call of HIP made, its grid in blocks; empty where it says none."""
    if not name.startswith("hip"):
        return {}
    said = launch_of(arguments, _SHAPE_FIELDS)
    if name in _COUNT_THREADS and "grid" in said and "block" in said:
        said["grid"] = _in_blocks(said["grid"], said["block"])
    return said


def bytes_said_by(name: str, arguments: Mapping[str, Any]) -> int:
    """The bytes that a call of HIP copies, which stand there as text; 0 where it says none."""
    size = str(arguments.get("size", "")) if name.startswith("hipMemcpy") else ""
    return int(size) if size.isdecimal() and len(size) <= _MOST_DIGITS else 0


def _in_blocks(threads: Sequence[int], block: Sequence[int]) -> list[int]:
    if 0 in block:
        return list(threads)
    # rounded up, in whole numbers
    return [-(-each // length) for each, length in zip(threads, block, strict=False)]
