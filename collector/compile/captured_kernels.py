"""What the compiler made of every Triton kernel that a profiled program used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.binary import Resources, amd_resources, nvidia_resources
from roofwatch.collector.errors import ToolchainError

_FROM_EVENT = ("name", "hash", "backend", "arch", "warps", "stages", "shared_bytes", "was_cached", "compile_ns")


@dataclass(frozen=True)
class CapturedKernel:
    """One compiled variant: the same source for other types or tiles is another one."""

    name: str
    hash: str
    backend: str
    arch: str
    warps: int | None
    stages: int | None
    shared_bytes: int | None
    registers: int | None
    """Per thread; None where the machine code could not be read."""
    spill_bytes: int | None
    """Per thread, of local memory."""
    spilled_registers: int | None
    """Per thread, where the compiler counts them, which AMD's does."""
    was_cached: bool
    """It was compiled before the program ran."""
    compile_ns: dict[str, int]
    """By stage; of what was cached, the time to read it."""


def captured_kernels(events: Iterable[dict[str, Any]], folder: Path) -> tuple[CapturedKernel, ...]:
    """The kernels that a program compiled or took from Triton's cache, each once, by name.

    Args:
        events: As the capture wrote them, among events of other kinds.
        folder: Where it put the machine code.
    """
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        # a process that compiles comes before those that find it in the cache
        if event["event"] == "kernel" and (event["hash"] not in found or not event["was_cached"]):
            found[event["hash"]] = event
    return tuple(_kernel(found[key], folder) for key in sorted(found, key=lambda key: (found[key]["name"], key)))


def _kernel(event: dict[str, Any], folder: Path) -> CapturedKernel:
    resources = _resources(event, folder)
    return CapturedKernel(
        **{name: event[name] for name in _FROM_EVENT},
        registers=None if resources is None else resources.registers,
        spill_bytes=None if resources is None else resources.local_bytes,
        spilled_registers=None if resources is None else resources.spilled_registers,
    )


def _resources(event: dict[str, Any], folder: Path) -> Resources | None:
    binaries = event["binaries"]
    try:
        if "cubin" in binaries:
            return nvidia_resources((folder / binaries["cubin"]).read_bytes(), event["name"])
        if "amdgcn" in binaries:
            return amd_resources((folder / binaries["amdgcn"]).read_text())
    except (OSError, ToolchainError, ValueError):
        return None
    return None
