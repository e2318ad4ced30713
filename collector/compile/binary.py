"""Reads compiled GPU code: NVIDIA cubins, with the tools that Triton ships,
and AMD code objects.
"""

import re
import struct
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from roofwatch.model.errors import ToolchainError

_SHT_PROGBITS = 1
_NVIDIA_CODE = re.compile(r"\.text|\.nv\.constant[1-9]|\.nv\.global\.init")
_AMD_CODE = re.compile(r"\.text|\.rodata")

_RESERVED_SHARED_BYTES = 1024
"""Source: CUDA C++ Programming Guide, compute capability 9.0, shared memory."""
_DESCRIPTOR_BYTES = 64
_ENTRY_OFFSET = slice(16, 24)
"""Distance from a kernel descriptor to its code, which depends on the length of the kernel's name.
Source: LLVM, User Guide for AMDGPU Backend, kernel descriptor."""

_RESOURCE_USAGE = re.compile(
    r"Function (?P<symbol>\S+):\s*REG:(?P<registers>\d+) STACK:(?P<stack>\d+) "
    r".*?LOCAL:(?P<local>\d+)"
)
_SASS_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")
_INSTRUCTION_BYTES = 16
"""On every NVIDIA GPU since Volta."""


def nvidia_resources(cubin: bytes, symbol: str | None = None) -> dict[str, int]:
    """Read registers, local and static shared memory of a function in a cubin; default its first
    function.

    Returns:
        Values by the names of `StaticFacts`.

    Raises:
        ToolchainError: cuobjdump is missing or cannot read the cubin.
        ValueError: the cubin has no such function.
    """
    listing = _run(
        tool="cuobjdump",
        options=("-res-usage",),
        content=cubin,
    )
    usage = {match["symbol"]: match for match in _RESOURCE_USAGE.finditer(listing)}
    if not usage:
        raise ToolchainError(f"cuobjdump printed no resource usage but {listing[:200]!r}")
    if symbol is None:
        name = next(iter(usage))
    else:
        name = symbol
    if name not in usage:
        raise ValueError(f"the cubin has no function {name}, but {', '.join(usage)}")
    sizes = {section.name: section.size for section in _sections(cubin)}
    shared_bytes = sizes.get(f".nv.shared.{name}", 0)
    if (
        shared_bytes and ".nv.shared.reserved.0" in sizes
    ):  # from sm_90 on the system's part comes first
        shared_bytes -= _RESERVED_SHARED_BYTES
    function_usage = usage[name]
    # spilled registers live on the stack; cuobjdump counts bytes only
    return {
        "registers": int(function_usage["registers"]),
        "local_bytes": int(function_usage["stack"]) + int(function_usage["local"]),
        "static_shared_bytes": shared_bytes,
    }


def amd_resources(assembly: str) -> dict[str, int]:
    """Read registers, spills, scratch and LDS from the metadata in AMD assembly text, as
    `nvidia_resources` does.

    Raises:
        ValueError: a required value is missing.
    """

    def directive(name: str, default: int | None = None) -> int:
        """The number of a directive such as `.vgpr_count`."""
        match = re.search(rf"^[\s-]*\.{name}:?\s+(\d+)\s*$", assembly, re.MULTILINE)
        if match is not None:
            return int(match[1])
        if default is None:
            raise ValueError(f"the amdgcn text has no .{name}")
        return default

    return {
        "registers": directive("vgpr_count"),  # includes the accumulation registers from gfx90a on
        "local_bytes": directive("private_segment_fixed_size"),
        "static_shared_bytes": directive("group_segment_fixed_size", 0),
        "spilled_registers": directive("vgpr_spill_count") + directive("sgpr_spill_count"),
        "accumulation_registers": directive("agpr_count", 0),
        "scalar_registers": directive("sgpr_count"),
    }


# --- ELF files
# Source: ELF-64 object file format, version 1.5; section names as cuobjdump and llvm-readelf print
# them.


def machine_code(binary: bytes) -> bytes:
    """Return instructions, constants and AMD kernel descriptors in file order, without names,
    symbols and notes.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
    """
    sections = list(_sections(binary))
    is_nvidia = any(section.name.startswith(".nv") for section in sections)
    code_name = _NVIDIA_CODE if is_nvidia else _AMD_CODE
    descriptors = []
    if not is_nvidia:
        descriptors = list(_descriptor_addresses(sections))
    return b"".join(
        _without_entry_offsets(section, descriptors)
        for section in sections
        if section.kind == _SHT_PROGBITS and code_name.match(section.name)
    )


def instruction_bytes(cubin: bytes) -> bytes:
    """Return the instructions of all functions of a cubin.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
    """
    return b"".join(
        section.content for section in _sections(cubin) if section.name.startswith(".text")
    )


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    address: int
    content: bytes
    """Empty for sections without bytes in the file."""
    size: int


def _sections(binary: bytes) -> Iterator[_Section]:
    """The sections of an ELF file: header at 0, table of sections at the offset it names."""
    # both vendors write 64-bit little-endian files
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table_offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, entry_count, names_index = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQ", binary, table_offset + index * entry_size)
        for index in range(entry_count)
    ]
    names_offset = headers[names_index][4]
    for name_offset, kind, _, address, offset, size in headers:
        start = names_offset + name_offset
        name = binary[start : binary.index(b"\0", start)].decode()
        yield _Section(
            name=name,
            kind=kind,
            address=address,
            content=binary[offset : offset + size],
            size=size,
        )


def _descriptor_addresses(sections: list[_Section]) -> Iterator[int]:
    """Addresses of the kernel descriptors of an AMD object, named `KERNEL.kd`."""
    contents = {section.name: section.content for section in sections}
    names = contents.get(".strtab", b"")
    for name_offset, _, _, _, address, size in struct.iter_unpack(
        "<IBBHQQ", contents.get(".symtab", b"")
    ):
        if size == _DESCRIPTOR_BYTES and names[
            name_offset : names.index(b"\0", name_offset)
        ].endswith(b".kd"):
            yield address


def _without_entry_offsets(section: _Section, descriptors: list[int]) -> bytes:
    """Clear the distance from each descriptor to its code, which changes with the layout."""
    code = bytearray(section.content)
    for address in descriptors:
        start = address - section.address
        if 0 <= start < section.size:
            code[start + _ENTRY_OFFSET.start : start + _ENTRY_OFFSET.stop] = bytes(8)
    return bytes(code)


# --- NVIDIA's tools


def sass(codes: Sequence[bytes], arch: int) -> list[str]:
    """Disassemble several pieces of code with one start of nvdisasm, which takes a third of a
    second.

    Returns:
        Text of each piece, one instruction per line.

    Raises:
        ToolchainError: nvdisasm is missing or cannot read the code.
    """
    # data flow is only needed for graphs and takes half of the time
    listing = _run(
        tool="nvdisasm",
        options=("--no-dataflow", "--binary", f"SM{arch}"),
        content=b"".join(codes),
    )
    ends = list(accumulate(map(len, codes)))
    lines: list[list[str]] = [[] for _ in codes]
    for line in listing.splitlines():
        address = _SASS_ADDRESS.match(line)
        if address is not None:
            lines[bisect_right(ends, int(address[1], 16))].append(line)
    for code, code_lines in zip(codes, lines, strict=True):
        # a listing with a gap would count too few instructions
        if len(code_lines) * _INSTRUCTION_BYTES != len(code):
            raise ToolchainError(
                f"nvdisasm read {len(code_lines)} instructions in {len(code)} bytes of code "
                f"for sm_{arch}"
            )
    return ["\n".join(code_lines) for code_lines in lines]


def _run(tool: str, options: tuple[str, ...], content: bytes) -> str:
    """The output of one of CUDA's binary tools."""
    path = _tool(tool)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        done = subprocess.run(
            [path, *options, file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise ToolchainError(f"{path} cannot read the compiled code: {done.stderr.strip()[:500]}")
    return done.stdout


def _tool(name: str) -> str:
    """The path of a tool that comes with Triton."""
    import triton

    try:
        return str(getattr(triton.knobs.nvidia, name).path)
    except RuntimeError as error:
        raise ToolchainError(
            f"{name.replace('_', '-')}, which comes with Triton, is missing: install Triton again "
            f"with pip install "
            f"--force-reinstall triton, or set TRITON_{name.upper()}_PATH ({error})"
        ) from error
