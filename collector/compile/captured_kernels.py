"""Compiler output of the Triton kernels that a profiled program used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.binary import Resources, amd_resources, nvidia_resources
from roofwatch.collector.errors import ToolchainError

_FROM_EVENT = ("name", "hash", "backend", "arch", "warps", "stages", "shared_bytes", "was_cached", "compile_ns")


@dataclass(frozen=True)
class CapturedKernel:
    """One compiled variant of a kernel. The last three fields are per thread; None if they cannot be read."""

    name: str
    hash: str
    backend: str
    arch: str
    warps: int | None
    stages: int | None
    shared_bytes: int | None
    was_cached: bool
    compile_ns: dict[str, int]
    """By stage; for a cached kernel the time to read it."""
    registers: int | None = None
    spill_bytes: int | None = None
    spilled_registers: int | None = None
    """AMD only."""


def captured_kernels(events: Iterable[dict[str, Any]], folder: Path) -> tuple[CapturedKernel, ...]:
    """Return each kernel that a program compiled or took from Triton's cache once, sorted by name.

    Args:
        events: Events that the recorder wrote.
        folder: Where it put the machine code.
    """
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        # the event of the process that compiled it has the compile times
        if event["event"] == "kernel" and (event["hash"] not in found or not event["was_cached"]):
            found[event["hash"]] = event
    return tuple(_kernel(event, folder) for event in sorted(found.values(), key=lambda one: (one["name"], one["hash"])))


def _kernel(event: dict[str, Any], folder: Path) -> CapturedKernel:
    kernel = CapturedKernel(**{name: event[name] for name in _FROM_EVENT})
    try:
        found = _resources(event, folder)
    except (OSError, ToolchainError, ValueError, KeyError):
        return kernel
    return replace(
        kernel,
        registers=found.registers,
        spill_bytes=found.local_bytes,
        spilled_registers=found.spilled_registers,
    )


def _resources(event: dict[str, Any], folder: Path) -> Resources:
    binaries = event["binaries"]
    if "cubin" in binaries:
        return nvidia_resources((folder / binaries["cubin"]).read_bytes(), event["name"])
    return amd_resources((folder / binaries["amdgcn"]).read_text())
