"""Device memory that one launch takes, by what torch's caching allocator counts."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from roofwatch.collector.record.measurement import MemoryUse
from roofwatch.collector.timing.stopwatch import Launch

Statistics = Mapping[str, int]
"""As `torch.cuda.memory_stats` gives them."""


@dataclass(frozen=True)
class MemoryFloor:
    """What a process holds before a case is there: what an earlier case left is not this one's."""

    allocated_bytes: int
    reserved_bytes: int


def memory_floor(device: str) -> MemoryFloor | None:
    """What is held now, with all given back that nobody uses; None where torch does not count."""
    if not device.startswith("cuda"):
        return None
    _give_back()
    statistics = torch.cuda.memory_stats()
    return MemoryFloor(statistics["allocated_bytes.all.current"], statistics["reserved_bytes.all.current"])


def measure_memory(launch: Launch, floor: MemoryFloor) -> MemoryUse:
    """What one launch takes beyond the floor, its inputs among it.

    It is launched once before, so that compiling, autotuning and a library's workspace are not counted as requests.
    """
    launch()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    result = launch()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    del result  # held until here: what it holds is in use
    return memory_use(floor, before, after)


def memory_use(floor: MemoryFloor, before: Statistics, after: Statistics) -> MemoryUse:
    """From the allocator's statistics right before and right after a launch, peaks counted from before. Pure.

    Source: torch.cuda.memory_stats. Inactive split blocks are the free parts of segments that are still in use.
    """
    reserved_bytes = after["reserved_bytes.all.current"]
    return MemoryUse(
        peak_allocated_bytes=max(0, after["allocated_bytes.all.peak"] - floor.allocated_bytes),
        peak_reserved_bytes=max(0, after["reserved_bytes.all.peak"] - floor.reserved_bytes),
        allocation_count=after["allocation.all.allocated"] - before["allocation.all.allocated"],
        fragmentation=after["inactive_split_bytes.all.current"] / reserved_bytes if reserved_bytes else None,
    )


def _give_back() -> None:
    gc.collect()
    torch.cuda.synchronize()
    # matmuls of earlier cases keep a workspace, which the next one would otherwise find and not pay for
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
