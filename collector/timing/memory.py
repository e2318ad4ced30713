"""Device memory of one launch, from torch's caching allocator."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from roofwatch.collector.record.measurement import MemoryUse
from roofwatch.collector.timing.stopwatch import Launch

Statistics = Mapping[str, int]
"""As returned by `torch.cuda.memory_stats`."""


@dataclass(frozen=True)
class MemoryFloor:
    """Memory allocated before a case is loaded."""

    allocated_bytes: int
    reserved_bytes: int


def memory_floor(device: str) -> MemoryFloor | None:
    """Allocated memory after emptying the cache; None if torch does not count it."""
    if not device.startswith("cuda"):
        return None
    _give_back()
    statistics = torch.cuda.memory_stats()
    return MemoryFloor(statistics["allocated_bytes.all.current"], statistics["reserved_bytes.all.current"])


def measure_memory(launch: Launch, floor: MemoryFloor) -> MemoryUse:
    """Memory that one launch uses above the floor, including its inputs.

    A first launch is not counted: it compiles, autotunes and allocates library workspaces.
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
    """Memory use from allocator statistics before and after a launch.

    Source: torch.cuda.memory_stats. Inactive split blocks are the free parts of segments in use.
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
