"""Machine code read by one start of the disassembler for each architecture: a start takes a third of a second, which is
as long as it takes to read many kernels.
"""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import triton

from collector.machine_code import binary, static
from collector.machine_code.disassembly import sass
from collector.machine_code.instructions import TOTAL, count_sass
from collector.machine_code.launches import Compiled

_INSTRUCTION_BYTES = 16
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")


class ReadTogether:
    """Keeps the cubins that `compile_case` would have had disassembled one by one, until they are read.

    Args:
        patch: Puts it in the place of the disassembler.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._unread: dict[str, dict[bytes, None]] = {}
        """Cubins by target."""
        facts_of_code, instructions = static._facts_of_code, static._instructions

        def of_target(compiled: Compiled, target: str) -> dict[str, Any]:
            def kept(compiled: Compiled) -> dict[str, int]:
                if compiled.assembly is not None:
                    return instructions(compiled)
                self._unread.setdefault(target, {})[compiled.binary] = None
                return {TOTAL: 0}

            patch.setattr(static, "_instructions", kept)
            return facts_of_code(compiled, target)

        patch.setattr(static, "_facts_of_code", of_target)

    def read(self, folder: Path) -> None:
        """Read all that was kept; every instruction of it, and as `compile_case` reads a cubin alone."""
        for target, kept in self._unread.items():
            cubins = list(kept)
            listings = disassembled(cubins, target, folder)
            for cubin, listing in zip(cubins, listings, strict=True):
                lines = listing.splitlines()
                assert len(lines) * _INSTRUCTION_BYTES == len(_code(cubin)), f"{target}: {lines}"
                assert 0 < count_sass(listing)[TOTAL] <= len(lines), f"{target}: {lines}"
            smallest = min(range(len(cubins)), key=lambda index: len(cubins[index]))
            assert count_sass(listings[smallest]) == count_sass(sass(cubins[smallest])), target


def disassembled(cubins: list[bytes], target: str, folder: Path) -> list[str]:
    """The instructions of each cubin for a target, a line each."""
    file = folder / f"{target}.bin"
    codes = [_code(cubin) for cubin in cubins]
    file.write_bytes(b"".join(codes))
    listing = subprocess.run(
        [triton.knobs.nvidia.nvdisasm.path, "--no-dataflow", "--binary", target.replace("sm_", "SM"), str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ends = list(accumulate(map(len, codes)))
    lines: list[list[str]] = [[] for _ in cubins]
    for line in listing.splitlines():
        address = _ADDRESS.match(line)
        if address is not None:
            lines[bisect_right(ends, int(address[1], 16))].append(line)
    return ["\n".join(of_one) for of_one in lines]


def _code(cubin: bytes) -> bytes:
    return b"".join(section.content for section in binary._sections(cubin) if section.name.startswith(".text"))
