"""The memory of a worker on a CPU: how much it may take, and what becomes of what it frees."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

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
