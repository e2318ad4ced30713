"""Machine code read by one start of the disassembler for each architecture: a start takes a third of a second, which is
as long as it takes to read many kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from roofwatch.collector.compile import static
from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.instructions import TOTAL, Counts, count_sass, instruction_counts
from roofwatch.collector.compile.launches import Compiled
from tests.kernels.disassembly import instructions, mnemonics


class ReadTogether:
    """Keeps what `compile_case` would have had disassembled case by case, until it is read.

    Args:
        patch: Puts it in the place of the disassembler.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unread: dict[str, dict[bytes, Compiled]] = {}
        """By target and code, what was compiled."""

        def keep(compiled: Sequence[Compiled], target: str) -> list[Counts]:
            if not target.startswith("sm_"):
                return instruction_counts(compiled, target)
            self.unread.setdefault(target, {}).update({instruction_bytes(one.binary): one for one in compiled})
            return [{TOTAL: 0} for _ in compiled]

        patch.setattr(static, "instruction_counts", keep)

    def read(self, folder: Path) -> None:
        """Read all that was kept, every instruction of it, and of each target the shortest by another tool too."""
        for target, kept in self.unread.items():
            listings = dict(zip(kept, sass(list(kept), int(target.removeprefix("sm_"))), strict=True))
            for listing in listings.values():
                assert 0 < count_sass(listing)[TOTAL] <= len(listing.splitlines()), f"{target}: {listing}"
            shortest = min(kept, key=len)
            assert mnemonics(listings[shortest]) == instructions(kept[shortest].binary, folder), target
