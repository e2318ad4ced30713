"""The last-level cache of a device, and how a launch comes to find nothing of its data in it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.measurement import CacheState

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
