"""How many instructions of each kind compiled functions have, those of NVIDIA read together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from roofwatch.collector.compile.binary import instruction_bytes
from roofwatch.collector.compile.cache import DiskCache, digest_of
from roofwatch.collector.compile.disassembly import sass
from roofwatch.collector.compile.instructions import count_amdgcn, count_sass
from roofwatch.collector.compile.launches import Compiled
from roofwatch.collector.compile.targets import parse_target

Counts = dict[str, int]


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
