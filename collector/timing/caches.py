"""The last-level cache: overwrite it, or rotate through copies, so that a launch finds none of its data there."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.timing.stopwatch import Launch
from roofwatch.spec import UnsupportedError

_INFINITY_CACHE_BYTES = 256 * 2**20
"""Behind the L2 of AMD's Instinct MI300, which does not report it. Source: AMD CDNA 3 architecture, white paper."""
_CUDA_SUCCESS, _CUDA_ERROR_NOT_SUPPORTED = 0, 801


def last_level_cache_bytes(device: str) -> int:
    """Size of the cache nearest to memory, as the system reports it.

    On a shared host the CPU's is an upper bound: neighbours use it too.

    Raises:
        TimerError: nobody says how large it is.
    """
    if device.startswith("cuda"):
        l2_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
        return max(l2_bytes, _INFINITY_CACHE_BYTES) if torch.version.hip else l2_bytes
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    if not sizes:
        raise TimerError("this machine does not say how large its caches are: nothing but --cache hot can be promised")
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return max(int(size[:-1]) * units[size[-1]] for size in sizes)


def cache_preparation(state: CacheState, device: str) -> Callable[[], None]:
    """What is done before each launch, outside what is timed, so that it meets the cache state."""
    if state is CacheState.COLD:
        return CacheFlush(device)
    if device.startswith("cuda"):
        release_persisting_lines()
    return _leave_it


class CacheFlush:
    """Overwrites twice the last-level cache, and frees what a kernel before has set aside in it.

    Source: twice the queried size as in SOL-ExecBench and flashinfer; a carve-out that an earlier kernel left made
    one 4 times faster than its memory (karpathy/llm.c#851).
    """

    def __init__(self, device: str) -> None:
        self._has_carve_out = device.startswith("cuda")
        self._buffer = torch.empty(2 * last_level_cache_bytes(device), dtype=torch.int8, device=device)

    def __call__(self) -> None:
        if self._has_carve_out:
            release_persisting_lines()
        self._buffer.zero_()


def release_persisting_lines() -> None:
    """Give back what was set aside of the current GPU's L2 for persisting accesses.

    Raises:
        TimerError: the driver refuses.

    Source: CUDA driver API, cuCtxResetPersistingL2Cache.
    """
    if torch.version.hip:
        return
    status = _driver().cuCtxResetPersistingL2Cache()
    if status not in (_CUDA_SUCCESS, _CUDA_ERROR_NOT_SUPPORTED):
        raise TimerError(f"the driver cannot reset the persisting L2 cache: CUDA error {status}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _leave_it() -> None:
    pass


_MOST_COPIES = 4_096
"""A graph holds a launch of each: more take longer to make than to time."""
_CACHES_EXCEEDED_BY = 2


@dataclass(frozen=True)
class Copies:
    """How to come by more calls that do the same, each on memory of its own."""

    make: Callable[[], Launch]
    """Makes one."""
    touched_bytes: float
    """What one launch reads and writes of its own."""


def copy_count(touched_bytes: float, cache_bytes: int) -> int:
    """How many copies a rotation takes: at least two, together twice the cache.

    Raises:
        UnsupportedError: so many that nobody can wait for them.

    Source: NVIDIA/cutlass:media/docs/cpp/gemm_performance_measurement_methodology_guidelines.md.
    """
    count = max(2, math.ceil(_CACHES_EXCEEDED_BY * cache_bytes / touched_bytes)) if touched_bytes else 2
    if count > _MOST_COPIES:
        raise UnsupportedError(
            f"a launch touches {touched_bytes:.0f} bytes, so that {count} copies of them are twice the "
            f"last-level cache of {cache_bytes} bytes; up to {_MOST_COPIES} are made: --cache hot or cold, as the "
            "timer has it"
        )
    return count


class Rotation:
    """Calls one of several launches after the other. Each result is kept until its launch comes round again, so that
    results do not take turns on the same memory either.
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
