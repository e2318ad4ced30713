"""Facts read from compiled code: NVIDIA's cubin, by the tools that come with Triton too, and AMD's hsaco."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from roofwatch.collector.errors import ToolchainError

_PROGRAM_DATA = 1
"""ELF's type of a section whose bytes are in the file."""
_NVIDIA_CODE = re.compile(r"\.text|\.nv\.constant[1-9]|\.nv\.global\.init")
_AMD_CODE = re.compile(r"\.text|\.rodata")
_LINKER_VERSION = re.compile(rb"LLD (\d+\.\d+\.\d+)(?: \(\S+ ([0-9a-f]{8})[0-9a-f]*\))?")

_SYSTEM_SHARED_BYTES = 1024
"""CUDA C++ Programming Guide, compute capability 9.0, shared memory."""

_DESCRIPTOR_BYTES = 64
_ENTRY_OFFSET = slice(16, 24)
"""In a kernel descriptor: how far away its code is, which hangs on the length of the kernel's name.
Source: LLVM, User Guide for AMDGPU Backend, kernel descriptor."""

_RESOURCE_USAGE = re.compile(
    r"Function (?P<symbol>\S+):\s*REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)"
)
_PTXAS_RELEASE = re.compile(r"V(\d+\.\d+\.\d+)")
_BLACKWELL = 100
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")
_INSTRUCTION_BYTES = 16
"""Of every NVIDIA GPU since Volta."""


@dataclass(frozen=True)
class Resources:
    """What one thread and one block take; `StaticFacts` in collector/record/record.py says the units."""

    registers: int
    local_bytes: int
    static_shared_bytes: int
    spilled_registers: int | None = None
    accumulation_registers: int | None = None
    scalar_registers: int | None = None


def nvidia_resources(cubin: bytes, symbol: str | None = None) -> Resources:
    """Registers, local and static shared memory of a function of a cubin; of its first one if none is named.

    Raises:
        ToolchainError: cuobjdump is not there or cannot read the cubin.
        ValueError: the cubin has no such function.
    """
    usage = resource_usage(cubin)
    name = next(iter(usage)) if symbol is None else symbol
    if name not in usage:
        raise ValueError(f"the cubin has no function {name}, but {', '.join(usage)}")
    registers, local_bytes = usage[name]
    # spilled registers live on the stack; cuobjdump counts bytes only
    return Resources(registers, local_bytes=local_bytes, static_shared_bytes=static_shared_bytes(cubin, name))


def amd_resources(assembly: str) -> Resources:
    """Registers, spills, scratch and LDS by the directives and metadata that the assembler text carries."""

    def directive(name: str, default: int | None = None) -> int:
        found = re.search(rf"^[\s-]*\.{name}:?\s+(\d+)\s*$", assembly, re.MULTILINE)
        if found is not None:
            return int(found[1])
        if default is None:
            raise ValueError(f"the amdgcn text has no .{name}")
        return default

    return Resources(
        # what a wavefront is given: from gfx90a on the accumulation registers are a part of it
        directive("vgpr_count"),
        local_bytes=directive("private_segment_fixed_size"),
        static_shared_bytes=directive("group_segment_fixed_size", 0),
        spilled_registers=directive("vgpr_spill_count") + directive("sgpr_spill_count"),
        accumulation_registers=directive("agpr_count", 0),
        scalar_registers=directive("sgpr_count"),
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


def linker_version(hsaco: bytes) -> str | None:
    """Of the LLVM that linked an hsaco, with the commit where it says it: `23.0.0 (1f126a6d)`. A cubin says none."""
    comment = next((section.content for section in _sections(hsaco) if section.name == ".comment"), b"")
    found = _LINKER_VERSION.search(comment)
    if found is None:
        return None
    version, commit = found.groups(default=b"")
    return f"{version.decode()} ({commit.decode()})" if commit else version.decode()


def machine_code(binary: bytes) -> bytes:
    """The instructions, constants and, on AMD, kernel descriptors of a cubin or hsaco, in file order and without the
    names, symbols and notes around them.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.

    Source: ELF-64 object file format, version 1.5; section names by cuobjdump and llvm-readelf.
    """
    sections = list(_sections(binary))
    is_nvidia = any(section.name.startswith(".nv") for section in sections)
    kept = _NVIDIA_CODE if is_nvidia else _AMD_CODE
    descriptors = [] if is_nvidia else list(_descriptor_addresses(sections))
    return b"".join(
        _without_entry_offsets(section, descriptors)
        for section in sections
        if section.kind == _PROGRAM_DATA and kept.match(section.name)
    )


def instruction_bytes(cubin: bytes) -> bytes:
    """The instructions of a cubin's functions, one after the other.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
    """
    return b"".join(section.content for section in _sections(cubin) if section.name.startswith(".text"))


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    address: int
    content: bytes
    """Empty where the file has no bytes of it."""
    size: int


def _sections(binary: bytes) -> Iterator[_Section]:
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table_offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, entry_count, names_index = struct.unpack_from("<HHH", binary, 0x3A)

    def entry(index: int) -> tuple[int, int, int, int, int]:
        name, kind, _, address, offset, size = struct.unpack_from("<IIQQQQ", binary, table_offset + index * entry_size)
        return name, kind, address, offset, size

    *_, names_offset, _ = entry(names_index)
    for index in range(entry_count):
        name_offset, kind, address, offset, size = entry(index)
        start = names_offset + name_offset
        name = binary[start : binary.index(b"\0", start)].decode()
        yield _Section(name, kind, address, binary[offset : offset + size], size)


def _descriptor_addresses(sections: list[_Section]) -> Iterator[int]:
    contents = {section.name: section.content for section in sections}
    names = contents.get(".strtab", b"")
    for name_offset, _, _, _, address, size in struct.iter_unpack("<IBBHQQ", contents.get(".symtab", b"")):
        if size == _DESCRIPTOR_BYTES and names[name_offset : names.index(b"\0", name_offset)].endswith(b".kd"):
            yield address


def _without_entry_offsets(section: _Section, descriptors: list[int]) -> bytes:
    code = bytearray(section.content)
    for address in descriptors:
        if section.address <= address < section.address + section.size:
            start = address - section.address
            code[start + _ENTRY_OFFSET.start : start + _ENTRY_OFFSET.stop] = bytes(8)
    return bytes(code)


# --- NVIDIA's tools


def resource_usage(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Registers per thread, and bytes per thread of stack and local memory, by function: what the driver would report
    after loading.

    Raises:
        ToolchainError: cuobjdump is not there or cannot read the cubin.
    """
    listing = _run("cuobjdump", ("-res-usage",), cubin)
    found = {
        match["symbol"]: (int(match["registers"]), int(match["stack"]) + int(match["local"]))
        for match in _RESOURCE_USAGE.finditer(listing)
    }
    if not found:
        raise ToolchainError(f"cuobjdump gave no resource usage but {listing[:200]!r}")
    return found


def sass(codes: Sequence[bytes], arch: int) -> list[str]:
    """The instructions of each piece of machine code as text, a line each.

    One start of nvdisasm reads all of them: it takes a third of a second, which is as long as reading many kernels.

    Args:
        codes: Instructions alone, as `binary.instruction_bytes` has them.
        arch: For which all of them are.

    Raises:
        ToolchainError: nvdisasm is not there or cannot read the code.
    """
    # the flow of data is worked out for drawings of it, and takes half of the time
    listing = _run("nvdisasm", ("--no-dataflow", "--binary", f"SM{arch}"), b"".join(codes))
    ends = list(accumulate(map(len, codes)))
    lines: list[list[str]] = [[] for _ in codes]
    for line in listing.splitlines():
        address = _ADDRESS.match(line)
        if address is not None:
            lines[bisect_right(ends, int(address[1], 16))].append(line)
    for code, own in zip(codes, lines, strict=True):
        if len(own) * _INSTRUCTION_BYTES != len(code):
            raise ToolchainError(f"nvdisasm read {len(own)} instructions in {len(code)} bytes of code for sm_{arch}")
    return ["\n".join(own) for own in lines]


@lru_cache
def ptxas_version(arch: int) -> str:
    """Of the ptxas that Triton runs for an architecture: Blackwell has its own.

    Raises:
        ToolchainError: it is not there.
    """
    path = _tool("ptxas_blackwell" if arch >= _BLACKWELL else "ptxas")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    release = _PTXAS_RELEASE.search(said)
    if release is None:
        raise ToolchainError(f"{path} --version says no version but {said[:200]!r}")
    return release[1]


def _run(name: str, options: tuple[str, ...], content: bytes) -> str:
    path = _tool(name)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        done = subprocess.run([path, *options, file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{path} cannot read what was compiled: {done.stderr.strip()[:500]}")
    return done.stdout


def _tool(name: str) -> str:
    import triton

    knobs = triton.knobs.nvidia
    try:
        return str(getattr(knobs, name).path)
    except RuntimeError as error:
        raise ToolchainError(
            f"{name.replace('_', '-')}, which comes with Triton, is not there: install Triton again with pip install "
            f"--force-reinstall triton, or let TRITON_{name.upper()}_PATH name one ({error})"
        ) from error
