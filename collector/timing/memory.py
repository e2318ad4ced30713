"""Device memory and caches around a launch: last-level cache state, and memory use from torch's
allocator.
"""

import ctypes
import gc
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from roofwatch.collector.timing.stopwatch import Launch
from roofwatch.model.errors import TimerError
from roofwatch.model.measurement import CacheState, MemoryUse
from roofwatch.spec import UnsupportedError

_INFINITY_CACHE_BYTES = 256 * 2**20
"""Memory-side cache of AMD's Instinct MI300, which does not report it. Source: AMD CDNA 3
architecture, white paper.
"""
_CUDA_SUCCESS = 0
_CUDA_ERROR_NOT_SUPPORTED = 801
_PERSISTING_L2_LIMIT = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE."""
_MAX_COPIES = 4_096
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, so that a launch does not pay for page faults by chance.

    Otherwise glibc returns large blocks to the system depending on earlier frees, and blocks of one
    kernel differ by up to a factor of three. On a GPU, torch's caching allocator does the same.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def last_level_cache_bytes(device: str) -> int:
    """Size of the last-level cache, as the system reports it; on a shared CPU an upper bound.

    Raises:
        TimerError: the size is unknown.
    """
    if device.startswith("cuda"):
        l2_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
        if torch.version.hip:
            return max(l2_bytes, _INFINITY_CACHE_BYTES)
        return l2_bytes
    sizes = [
        path.read_text().strip()
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    if not sizes:
        raise TimerError(
            "this machine does not report its cache size; only --cache hot is available"
        )
    units = {
        "K": 2**10,
        "M": 2**20,
        "G": 2**30,
    }
    sizes_bytes: list[int] = []
    for size in sizes:
        number, unit = size[:-1], size[-1]
        sizes_bytes.append(int(number) * units[unit])
    return max(sizes_bytes)


def cache_preparation(state: CacheState, device: str) -> Callable[[], None]:
    """Function that establishes the cache state before each launch, outside the timed section."""
    if state is CacheState.COLD:
        return CacheFlush(device)
    if device.startswith("cuda"):
        release_persisting_lines()
    return lambda: None


class CacheFlush:
    """Leaves the last-level cache full of clean lines that no kernel uses: overwrites twice its
    size, then reads twice its size from other memory; releases persisting lines.

    Without the reading, the timed kernel pays for writing the overwritten lines back: up to the
    whole cache, which can be as much as a small kernel reads.

    Source: twice the queried size as in SOL-ExecBench and flashinfer. A carve-out left by an
    earlier kernel made one appear 4 times faster than memory (karpathy/llm.c#851).
    """

    def __init__(self, device: str) -> None:
        self._is_gpu = device.startswith("cuda")
        float_count = 2 * last_level_cache_bytes(device) // torch.float32.itemsize
        self._overwritten = torch.zeros(float_count, device=device)
        self._read = torch.zeros(float_count, device=device)
        self._sum = torch.zeros((), device=device)

    def __call__(self) -> None:
        if self._is_gpu:
            release_persisting_lines()
        self._overwritten.zero_()
        torch.sum(self._read, dim=0, out=self._sum)


def release_persisting_lines() -> None:
    """Release the part of the current GPU's L2 that is set aside for persisting accesses.

    Raises:
        TimerError: the driver refuses.

    Source: CUDA driver API, cuCtxResetPersistingL2Cache. It may wait for the device, so it is
    called only if the context has set aside a part.
    """
    if torch.version.hip:
        return
    limit_bytes = ctypes.c_size_t()
    status = _driver().cuCtxGetLimit(ctypes.byref(limit_bytes), _PERSISTING_L2_LIMIT)
    if status == _CUDA_SUCCESS and limit_bytes.value == 0:
        return
    status = _driver().cuCtxResetPersistingL2Cache()
    if status not in (_CUDA_SUCCESS, _CUDA_ERROR_NOT_SUPPORTED):
        raise TimerError(f"the driver cannot reset the persisting L2 cache: CUDA error {status}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@dataclass(frozen=True)
class Copies:
    """Makes further calls that do the same work on separate memory."""

    make: Callable[[], Launch]
    touched_bytes: float
    """Bytes that one launch reads and writes."""


def copy_count(touched_bytes: float, cache_bytes: int) -> int:
    """Number of copies for a rotation: at least two, together twice the cache.

    Raises:
        UnsupportedError: too many.

    Source: NVIDIA/cutlass:media/docs/cpp/gemm_performance_measurement_methodology_guidelines.md.
    """
    count = 2
    if touched_bytes:
        count = max(2, math.ceil(2 * cache_bytes / touched_bytes))
    if count > _MAX_COPIES:
        raise UnsupportedError(
            f"a launch touches {touched_bytes:.0f} bytes: rotation needs {count} copies to exceed "
            f"twice the last-level "
            f"cache of {cache_bytes} bytes, and {_MAX_COPIES} is the maximum; use --cache hot or "
            f"cold"
        )
    return count


class Rotation:
    """Calls several launches in turn, and keeps each result until its launch is called again.

    Kept results prevent the allocator from giving the same output memory to successive launches.
    """

    def __init__(self, launches: list[Launch]) -> None:
        self.count = len(launches)
        self._waiting = deque(launches)
        self._results: deque[object] = deque(maxlen=self.count - 1)

    def __call__(self) -> object:
        launch = self._waiting[0]
        self._waiting.rotate(-1)
        result = launch()
        self._results.append(result)
        return result


MemoryStats = Mapping[str, int]
"""As from `torch.cuda.memory_stats`."""


def memory_floor(device: str) -> MemoryStats | None:
    """Memory in use before a case is loaded, after emptying torch's cache; None on a CPU."""
    if not device.startswith("cuda"):
        return None
    gc.collect()
    torch.cuda.synchronize()
    # matmuls of earlier cases keep a workspace, which would not be counted again
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_stats()


def measure_memory(launch: Launch, floor: MemoryStats) -> MemoryUse:
    """Memory that one launch uses above the floor, including its inputs.

    The first launch is not counted: it compiles, autotunes and allocates library workspaces.
    """
    launch()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    stats_before = torch.cuda.memory_stats()
    result = launch()
    torch.cuda.synchronize()
    stats_after = torch.cuda.memory_stats()
    del result  # its memory counts as used
    return memory_use(floor, stats_before, stats_after)


def memory_use(floor: MemoryStats, before: MemoryStats, after: MemoryStats) -> MemoryUse:
    """Memory use above the floor, from the statistics before and after a launch.

    Inactive split blocks are the free parts of segments in use.
    """
    reserved_bytes = after["reserved_bytes.all.current"]
    fragmentation = None
    if reserved_bytes:
        fragmentation = after["inactive_split_bytes.all.current"] / reserved_bytes
    peak_allocated_bytes = after["allocated_bytes.all.peak"] - floor["allocated_bytes.all.current"]
    peak_reserved_bytes = after["reserved_bytes.all.peak"] - floor["reserved_bytes.all.current"]
    return MemoryUse(
        # memory of the floor may have been freed in the meantime
        peak_allocated_bytes=max(0, peak_allocated_bytes),
        peak_reserved_bytes=max(0, peak_reserved_bytes),
        allocation_count=after["allocation.all.allocated"] - before["allocation.all.allocated"],
        fragmentation=fragmentation,
    )
