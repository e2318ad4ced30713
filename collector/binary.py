"""Facts read from what a compiler wrote: a cubin of NVIDIA's, an hsaco of AMD's."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

_RESOURCE_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)")
_PROGRAM_DATA = 1
"""ELF's type of a section whose bytes are in the file."""

_SYSTEM_SHARED_BYTES = 1024
"""CUDA C++ Programming Guide, compute capability 9.0, shared memory."""


@dataclass(frozen=True)
class Resources:
    """What one thread takes; `StaticFacts` in collector/record.py says the units."""

    registers: int
    local_bytes: int
    spilled_registers: int | None = None


def nvidia_resources(cubin: bytes) -> Resources:
    """Registers and local memory by `cuobjdump -res-usage`: what the driver would report after loading."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = _RESOURCE_USAGE.search(listing)
    if found is None:
        raise ValueError(f"cuobjdump gave no resource usage but {listing[:200]!r}")
    # spilled registers live on the stack; cuobjdump counts bytes only
    return Resources(int(found["registers"]), local_bytes=int(found["stack"]) + int(found["local"]))


def amd_resources(assembly: str) -> Resources:
    """Registers, spills and scratch by the directives and metadata that the assembler text carries."""

    def directive(name: str) -> int:
        found = re.search(rf"^\s*\.{name}:?\s+(\d+)\s*$", assembly, re.MULTILINE)
        if found is None:
            raise ValueError(f"the amdgcn text has no .{name}")
        return int(found[1])

    return Resources(
        directive("vgpr_count"),
        local_bytes=directive("private_segment_fixed_size"),
        spilled_registers=directive("vgpr_spill_count") + directive("sgpr_spill_count"),
    )


def static_shared_bytes(cubin: bytes, symbol: str) -> int:
    """Shared memory that a function of a cubin declares.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
    """
    sizes = {section.name: section.size for section in _sections(cubin)}
    declared = sizes.get(f".nv.shared.{symbol}", 0)
    # from sm_90 on it starts with what the system keeps for itself
    return declared - _SYSTEM_SHARED_BYTES if declared and ".nv.shared.reserved.0" in sizes else declared


def machine_code(binary: bytes) -> bytes:
    """The instructions and constants of a cubin or hsaco: its `.text*` and bank-2-and-up `.nv.constant*` sections in
    file order, without the names, symbols and notes around them.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.

    Source: ELF-64 object file format, version 1.5; section names by cuobjdump and llvm-readelf.
    """
    return b"".join(
        binary[section.offset : section.offset + section.size]
        for section in _sections(binary)
        if section.kind == _PROGRAM_DATA and re.match(r"\.text|\.nv\.constant[1-9]", section.name)
    )


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int


def _sections(binary: bytes) -> Iterator[_Section]:
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table_offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, entry_count, names_index = struct.unpack_from("<HHH", binary, 0x3A)

    def entry(index: int) -> tuple[int, int, int, int]:
        name, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", binary, table_offset + index * entry_size)
        return name, kind, offset, size

    _, _, names_offset, _ = entry(names_index)
    for index in range(entry_count):
        name_offset, kind, offset, size = entry(index)
        start = names_offset + name_offset
        yield _Section(binary[start : binary.index(b"\0", start)].decode(), kind, offset, size)
