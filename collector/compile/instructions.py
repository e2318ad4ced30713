"""What a kernel's machine code consists of, counted from its disassembly.

An instruction belongs to at most one kind; a kind has a detail after a dot where it matters: the width of an access in
bits, the name of a tensor-core instruction. Counts are of instructions in the code, not of how often they run.

Sources: NVIDIA, CUDA Binary Utilities, instruction set reference; AMD, CDNA 3 and CDNA 4 instruction set architecture.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.cache import DiskCache, digest_of
from roofwatch.collector.compile.launches import Compiled
from roofwatch.collector.compile.targets import parse_target

Counts = dict[str, int]
TOTAL = "total"

_SASS_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
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
_KIND_OF_SASS = {mnemonic: kind for kind, mnemonics in _SASS_KINDS.items() for mnemonic in mnemonics}
_SASS_ACCESSES = {
    "LDG": "global_load",
    "LD": "global_load",  # generic: may turn out to be another space
    "STG": "global_store",
    "ST": "global_store",
    "LDGSTS": "async_copy",
}
_SASS_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}

_GCN_ACCESS = re.compile(
    r"(?:global|buffer|flat)_(load|store)_(?:lds_)?(ubyte|sbyte|byte|ushort|sshort|short|dwordx[234]|dword)"
)
_GCN_WIDTHS = {"ubyte": 8, "sbyte": 8, "byte": 8, "ushort": 16, "sshort": 16, "short": 16, "dword": 32}
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


def instruction_counts(compiled: Sequence[Compiled], target: str, toolchain: str) -> dict[str, Counts]:
    """The counts of each function by its identity, as `instructions` has them.

    Each piece of code is read once: a disassembler takes longer than to look its result up.

    Args:
        compiled: For the target, all of them.
        target: `sm_90` or `gfx942`.
        toolchain: Its digest; of another toolchain nothing holds that was read before.

    Raises:
        ToolchainError: the disassembler is not there, or cannot read the code.
    """
    counts = {one.identity: count_amdgcn(one.assembly) for one in compiled if one.assembly is not None}
    codes = {one.identity: instruction_bytes(one.binary) for one in compiled if one.assembly is None}
    of_codes = _of_codes(list(dict.fromkeys(codes.values())), target, toolchain)
    return counts | {identity: dict(of_codes[code]) for identity, code in codes.items()}


def _of_codes(codes: Sequence[bytes], target: str, toolchain: str) -> dict[bytes, Counts]:
    store = DiskCache.of_user()
    keys = {code: digest_of(hashlib.sha256(code).hexdigest(), target, toolchain) for code in codes}
    kept = {code: store.get("instructions", key) for code, key in keys.items()}
    known = {code: counts for code, counts in kept.items() if counts is not None}
    unread = [code for code in codes if code not in known]
    for code, listing in zip(unread, _listings(unread, target), strict=True):
        known[code] = counts = count_sass(listing)
        store.put("instructions", keys[code], counts)
    return known


def _listings(codes: Sequence[bytes], target: str) -> list[str]:
    if not codes:
        return []
    arch = parse_target(target).arch
    assert isinstance(arch, int), "AMD's code comes with its own text"
    return sass(codes, arch)


def count_sass(disassembly: str) -> dict[str, int]:
    """Count the instructions of `nvdisasm`'s text by kind; `total` has all of them but NOPs, which fill up lines."""
    mnemonics = (mnemonic for mnemonic in _SASS_LINE.findall(disassembly) if mnemonic != "NOP")
    return _counted(_kind_of_sass(mnemonic) for mnemonic in mnemonics)


def count_amdgcn(assembly: str) -> dict[str, int]:
    """Count the instructions of the `amdgcn` text that Triton keeps, by kind."""
    return _counted(_kind_of_gcn(mnemonic, operands) for mnemonic, operands in _GCN_LINE.findall(assembly))


def _counted(kinds: Iterable[str | None]) -> dict[str, int]:
    counts = Counter({TOTAL: 0})
    for kind in kinds:
        counts[TOTAL] += 1
        if kind is not None:
            counts[kind] += 1
    return dict(sorted(counts.items()))


def _kind_of_sass(mnemonic: str) -> str | None:
    name, *modifiers = mnemonic.split(".")
    if _TENSOR_SASS.fullmatch(name):
        return f"tensor.{name}"
    if name in _SASS_ACCESSES:
        width_bits = next((_SASS_WIDTHS[word] for word in modifiers if word in _SASS_WIDTHS), 32)
        return f"{_SASS_ACCESSES[name]}.{width_bits}"
    return _KIND_OF_SASS.get(name)


def _kind_of_gcn(mnemonic: str, operands: str) -> str | None:
    access = _GCN_ACCESS.match(mnemonic)
    if access is not None:
        direction, size = access.groups()
        width_bits = _GCN_WIDTHS.get(size) or 32 * int(size[-1])
        to_lds = direction == "load" and ("_lds_" in mnemonic or operands.rstrip().endswith(" lds"))
        return f"{'async_copy' if to_lds else f'global_{direction}'}.{width_bits}"
    return next((kind for kind, pattern in _GCN_KINDS if pattern.match(mnemonic)), None)


def widths(counts: dict[str, int], kind: str) -> Iterator[tuple[int, int]]:
    """The accesses of a kind as (width in bits, count), narrowest first."""
    found = [(int(key.split(".")[1]), count) for key, count in counts.items() if key.startswith(f"{kind}.")]
    yield from sorted(found)
