"""Memory and disk that a job may use, and what it uses."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROCESSES = Path("/proc")
_GIB = 2**30
_HELD_MEMORY = ("RssAnon:", "RssShmem:")
"""What a process holds besides files that the kernel can read again."""
_PARENT = "PPid:"


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """The runner ends a job that uses more."""

    memory_bytes: float
    disk_bytes: float

    def exceeded(self, process_id: int, folder: Path) -> str | None:
        """Say which limit a process, all that it started, and its folder exceed."""
        memory_bytes = held_memory(process_id)
        if memory_bytes > self.memory_bytes:
            return _sentence(memory_bytes, "memory", self.memory_bytes, "--memory")
        disk_bytes = folder_size(folder)
        if disk_bytes > self.disk_bytes:
            return _sentence(disk_bytes, "the disk", self.disk_bytes, "--disk")
        return None


def _sentence(used_bytes: float, resource: str, limit_bytes: float, option: str) -> str:
    return (
        f"used {used_bytes / _GIB:.1f} GiB of {resource}, at most {limit_bytes / _GIB:.1f} GiB are "
        f"allowed ({option} of the runner)"
    )


def held_memory(process_id: int) -> float:
    """Bytes that a process and all of its descendants hold; memory that they share counts for
    each.
    """
    held_bytes: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in _PROCESSES.glob("[1-9]*"):
        # it may end while it is read
        with suppress(OSError):
            status = (entry / "status").read_text()
            parents[int(entry.name)], held_bytes[int(entry.name)] = _parent_and_memory(status)
    return sum(
        size_bytes
        for number, size_bytes in held_bytes.items()
        if _descends(number, process_id, parents)
    )


def _parent_and_memory(status: str) -> tuple[int, float]:
    parent = 0
    held_bytes = 0.0
    for line in status.splitlines():
        if line.startswith(_PARENT):
            parent = int(line.split()[1])
        elif line.startswith(_HELD_MEMORY):
            held_bytes += float(line.split()[1]) * 1024
    return parent, held_bytes


def _descends(process_id: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process_id and process_id != ancestor:
        process_id = parents.get(process_id, 0)
    return process_id == ancestor


def folder_size(folder: Path) -> float:
    """Bytes on the disk of all files in a folder; links are not followed."""
    size_bytes = 0.0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                # in units of 512 bytes on every Linux file system
                size_bytes += 512 * os.lstat(os.path.join(parent, name)).st_blocks  # noqa: PTH118  a walk of many files
    return size_bytes


def machine_memory() -> float:
    """Bytes of this machine's memory."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
