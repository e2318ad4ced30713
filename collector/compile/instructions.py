"""Counts the instructions in a kernel's machine code by kind, for example `global_load.128` or
`tensor.HGMMA`.

Each instruction has at most one kind. The part after the dot is the width of an access in bits, or
the name of a tensor-core instruction. Counts are static: how often an instruction runs does not
matter.

Sources: NVIDIA, CUDA Binary Utilities, instruction set reference; AMD, CDNA 3 and CDNA 4
instruction set architecture.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.cycles.parse import parse_amdgcn, parse_sass
from roofwatch.collector.compile.cycles.rates import RATES
from roofwatch.collector.compile.cycles.regions import Region, regions_of
from roofwatch.collector.compile.targets import parse_target

if TYPE_CHECKING:  # imports torch, which nobody needs to print instruction counts
    from roofwatch.collector.compile.launch import Compiled

Counts = dict[str, int]
TOTAL = "total"


@dataclass(frozen=True)
class AnalysedCode:
    """What a function's machine code consists of."""

    counts: Counts
    region: Region | None
    """Its loops; None for a target without a table of rates."""


_analysed: dict[tuple[bytes, str], AnalysedCode] = {}
"""By code and target."""

_SASS_LINE = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE
)
_GCN_LINE = re.compile(r"^\s+([a-z][a-z0-9]*_[a-z0-9_]+)([^\n;]*)", re.MULTILINE)

_TENSOR_SASS = re.compile(r"(UTC)?[A-Z]{0,4}MMA")
_SASS_KINDS = {
    "shared_load": ("LDS", "LDSM"),
    "shared_store": ("STS", "STSM"),
    "local_load": ("LDL",),
    "local_store": ("STL",),
    "tensor_memory": ("LDTM", "STTM", "UTCCP"),
    "tma": ("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKRED", "UBLKPF"),
    "atomic": ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDUX"),
    "barrier": ("BAR", "SYNCS", "UCGABAR_ARV", "UCGABAR_WAIT"),
    "special_function": ("MUFU",),
    "conversion": ("F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "FRND"),
}
_KIND_OF_SASS = {
    mnemonic: kind for kind, mnemonics in _SASS_KINDS.items() for mnemonic in mnemonics
}
_SASS_ACCESSES = {
    "LDG": "global_load",
    "LD": "global_load",  # generic: the address space is known only at run time
    "STG": "global_store",
    "ST": "global_store",
    "LDGSTS": "async_copy",
}
_SASS_WIDTHS = {
    "U8": 8,
    "S8": 8,
    "U16": 16,
    "S16": 16,
    "64": 64,
    "128": 128,
    "256": 256,
}

_GCN_ACCESS = re.compile(
    r"(?:global|buffer|flat)_(load|store)_(?:lds_)?"
    r"(ubyte|sbyte|byte|ushort|sshort|short|dwordx[234]|dword)"
)
_GCN_WIDTHS = {
    "ubyte": 8,
    "sbyte": 8,
    "byte": 8,
    "ushort": 16,
    "sshort": 16,
    "short": 16,
    "dword": 32,
}
_GCN_KINDS = (
    ("tensor.mfma", re.compile(r"v_mfma_")),
    ("tensor.smfmac", re.compile(r"v_smfmac_")),
    ("local_load", re.compile(r"scratch_load_")),
    ("local_store", re.compile(r"scratch_store_")),
    ("atomic", re.compile(r"(global|buffer|flat)_atomic_|ds_(add|sub|min|max|cmpst|and|or|xor)_")),
    ("shared_load", re.compile(r"ds_(read|load)")),
    ("shared_store", re.compile(r"ds_(write|store)")),
    ("barrier", re.compile(r"s_barrier")),
    ("special_function", re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")),
    ("conversion", re.compile(r"v_cvt_")),
)


def analyse_code(compiled: Sequence[Compiled], target: str) -> list[AnalysedCode]:
    """Count the instructions of each function and find its loops; code that this process has
    analysed before is not disassembled again.

    Raises:
        ToolchainError: the disassembler is missing or cannot read the code.
    """
    arch = parse_target(target).arch
    codes = [_code_of(function) for function in compiled]
    new: dict[bytes, Compiled] = {}
    for code, function in zip(codes, compiled, strict=True):
        if (code, target) not in _analysed:
            new.setdefault(code, function)
    listings = [function.assembly for function in new.values()]
    # AMD's compiler writes the assembly text itself: nothing to disassemble
    if new and isinstance(arch, int):
        listings = list(sass(list(new), arch))
    for (code, function), listing in zip(new.items(), listings, strict=True):
        assert listing is not None
        _analysed[code, target] = _analyse(listing, function, target)
    return [_analysed[code, target] for code in codes]


def _code_of(function: Compiled) -> bytes:
    if function.assembly is None:
        return instruction_bytes(function.binary)
    return function.assembly.encode()


def _analyse(listing: str, function: Compiled, target: str) -> AnalysedCode:
    """Count instructions of a listing, and find the loops if the target has rates."""
    rates = RATES.get(target)
    if function.assembly is None:
        counts = count_sass(listing)
        instructions = parse_sass(listing)
    else:
        counts = count_amdgcn(listing)
        instructions = parse_amdgcn(listing, function.symbol)
    region = None
    if rates is not None:
        region = regions_of(instructions, rates)
    return AnalysedCode(counts, region)


def count_sass(disassembly: str) -> dict[str, int]:
    """Count the instructions in the output of nvdisasm by kind; `total` counts all except NOPs."""
    mnemonics = (mnemonic for mnemonic in _SASS_LINE.findall(disassembly) if mnemonic != "NOP")
    return _counted(_kind_of_sass(mnemonic) for mnemonic in mnemonics)


def count_amdgcn(assembly: str) -> dict[str, int]:
    return _counted(
        _kind_of_gcn(mnemonic, operands) for mnemonic, operands in _GCN_LINE.findall(assembly)
    )


def _counted(kinds: Iterable[str | None]) -> dict[str, int]:
    """Number of instructions in all, and of each kind."""
    counts = Counter({TOTAL: 0})
    for kind in kinds:
        counts[TOTAL] += 1
        if kind is not None:
            counts[kind] += 1
    return dict(sorted(counts.items()))


def _kind_of_sass(mnemonic: str) -> str | None:
    """The kind of an NVIDIA instruction; None for one that is only part of the total."""
    name, *modifiers = mnemonic.split(".")
    if _TENSOR_SASS.fullmatch(name):
        return f"tensor.{name}"
    if name in _SASS_ACCESSES:
        width_bits = next((_SASS_WIDTHS[word] for word in modifiers if word in _SASS_WIDTHS), 32)
        return f"{_SASS_ACCESSES[name]}.{width_bits}"
    return _KIND_OF_SASS.get(name)


def _kind_of_gcn(mnemonic: str, operands: str) -> str | None:
    """The kind of an AMD instruction; None for one that is only part of the total."""
    access = _GCN_ACCESS.match(mnemonic)
    if access is not None:
        direction, size = access.groups()
        width_bits = _GCN_WIDTHS.get(size) or 32 * int(size[-1])
        to_lds = direction == "load" and ("_lds_" in mnemonic or operands.rstrip().endswith(" lds"))
        if to_lds:
            return f"async_copy.{width_bits}"
        return f"global_{direction}.{width_bits}"
    return next((kind for kind, pattern in _GCN_KINDS if pattern.match(mnemonic)), None)


def widths(counts: dict[str, int], kind: str) -> Iterator[tuple[int, int]]:
    """Yield the accesses of a kind as (width in bits, count), narrowest first."""
    yield from sorted(
        (int(key.split(".")[1]), count)
        for key, count in counts.items()
        if key.startswith(f"{kind}.")
    )
