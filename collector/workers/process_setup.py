"""Memory limit and process group of a worker."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import torch
from torch import distributed

from roofwatch.collector.workers.protocol import RankPlace
from roofwatch.spec import UnsupportedError

_MEMORY_SHARE = 0.8
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def limit_memory(share: float) -> None:
    """Let an allocation beyond this process' share of the machine's memory fail here, before the system kills one of
    those that share it.
    """
    available = _available_memory_bytes()
    if available is None:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped_bytes = pages * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = mapped_bytes + int(available * _MEMORY_SHARE * share)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, so that a launch does not pay for new pages, or not, as chance has it.

    glibc gives large blocks back to the system and learns from frees when not to: whether a temporary of a megabyte
    costs 256 page faults then hangs on what was freed before, and blocks of one kernel differ by a factor of three.
    On a GPU torch's caching allocator does the same.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library, such as musl, has none
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


class Rank:
    """One rank of a group that runs on one machine.

    Args:
        place: Which one it is.
        device: `cpu` or `cuda`.
    """

    def __init__(self, place: RankPlace, device: str) -> None:
        self._place = place
        self._device = device

    @property
    def count(self) -> int:
        return self._place.count

    def join(self) -> None:
        """Form the group, which waits for the other ranks; once it is there, nothing.

        Raises:
            UnsupportedError: torch or the machine cannot serve that many ranks.
        """
        self._require_machine()
        if distributed.is_initialized():
            return
        if self._device == "cuda":
            torch.cuda.set_device(self._place.index)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # whatever this machine's name resolves to
        meeting_point = distributed.FileStore(  # type: ignore[attr-defined]  # torch's annotations leave it out
            str(self._place.rendezvous), self._place.count
        )
        distributed.init_process_group(
            "gloo" if self._device == "cpu" else "cpu:gloo,cuda:nccl",
            store=meeting_point,
            rank=self._place.index,
            world_size=self._place.count,
        )

    def align(self) -> None:
        """Wait for the other ranks: on the CPU here and now, on a GPU on its current stream.

        A sum of one number is the barrier. torch's own would hold up the host too, and a GPU that waits for its host
        would time the launch.
        """
        distributed.all_reduce(torch.zeros(1, device=self._device))

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest of all ranks' times, which each of them gets: what they decide by it they decide alike."""
        longest = torch.tensor([elapsed_ns], dtype=torch.float64)
        distributed.all_reduce(longest, distributed.ReduceOp.MAX)
        return float(longest)

    def _require_machine(self) -> None:
        if not distributed.is_available():
            raise UnsupportedError("needs torch.distributed, which this torch was built without")
        if self._device == "cpu":
            return
        if not distributed.is_nccl_available():
            raise UnsupportedError("needs NCCL, which this torch was built without")
        gpu_count = torch.cuda.device_count()
        if gpu_count < self._place.count:
            raise UnsupportedError(f"needs {self._place.count} GPUs, one for each rank; torch sees {gpu_count}")
