"""Memory settings and process group of a worker."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import torch
from torch import distributed

from roofwatch.collector.timing.stopwatch import Ranks
from roofwatch.collector.workers.protocol import RankPlace
from roofwatch.spec import UnsupportedError

_MEMORY_SHARE = 0.8
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def limit_memory(share: float) -> None:
    """Make allocations beyond this process's share of memory fail before the system kills a process."""
    available_bytes = _available_memory_bytes()
    if available_bytes is None:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + int(available_bytes * _MEMORY_SHARE * share)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, so that a launch does not pay for page faults by chance.

    Otherwise glibc returns large blocks to the system depending on earlier frees, and blocks of one kernel differ by up
    to a factor of three. On a GPU, torch's caching allocator does the same.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _available_memory_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists() and (text := group.read_text().strip()).isdigit():
        found.append(int(text))
    return min(found, default=None)


class Rank(Ranks):
    """One rank of a process group on one machine.

    Args:
        place: Its place in the group.
        device: `cpu` or `cuda`.
    """

    def __init__(self, place: RankPlace, device: str) -> None:
        self._place = place
        self._device = device

    @property
    def count(self) -> int:
        return self._place.count

    def join(self) -> None:
        """Form the process group if it does not exist yet.

        Raises:
            UnsupportedError: torch or the machine cannot run that many ranks.
        """
        self._require_support()
        if distributed.is_initialized():
            return
        if self._device == "cuda":
            torch.cuda.set_device(self._place.index)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve
        store = distributed.FileStore(  # type: ignore[attr-defined]  # missing from torch's annotations
            str(self._place.rendezvous), self._place.count
        )
        distributed.init_process_group(
            "gloo" if self._device == "cpu" else "cpu:gloo,cuda:nccl",
            store=store,
            rank=self._place.index,
            world_size=self._place.count,
        )

    def align(self) -> None:
        """Wait for the other ranks: on a CPU at once, on a GPU on its current stream.

        Unlike torch's barrier, an all-reduce does not block the host, whose delay would be timed.
        """
        distributed.all_reduce(torch.zeros(1, device=self._device))

    def slowest_ns(self, elapsed_ns: float) -> float:
        """Longest time of all ranks; the same on each."""
        longest = torch.tensor([elapsed_ns], dtype=torch.float64)
        distributed.all_reduce(longest, distributed.ReduceOp.MAX)
        return float(longest)

    def _require_support(self) -> None:
        if not distributed.is_available():
            raise UnsupportedError("needs torch.distributed, which this torch was built without")
        if self._device == "cpu":
            return
        if not distributed.is_nccl_available():
            raise UnsupportedError("needs NCCL, which this torch was built without")
        gpu_count = torch.cuda.device_count()
        if gpu_count < self._place.count:
            raise UnsupportedError(f"needs {self._place.count} GPUs, one per rank; torch sees {gpu_count}")
