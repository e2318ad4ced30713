"""How likely each commit of a range is the one that matters before anything is measured: by what it is made from. Pure.

What a series is made from is compared with the last commit before that can be loaded. Where every source that it may
use is equal, nothing can have changed, in those in between neither. Where only the machine code is equal, the host's
part may launch it otherwise, which is not likely: such a commit is jumped over, and looked at only where all others
are ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SAME_SOURCES = "nothing that it is made from changed"
SAME_CODE = "its machine code is the same"
SAME_CODE_WEIGHT = 0.01
"""Of a commit with other sources and the same machine code, beside 1 of one with other machine code."""


@dataclass(frozen=True)
class MadeFrom:
    """What a series is made from at a commit."""

    sources: str | None = None
    """Digest of all that it may use; None where it cannot be told."""
    machine_code: str | None = None
    """Digest of what is compiled of it; None where nothing is, or it was not."""
    trouble: str = ""
    """Why the commit cannot be measured; empty where nothing speaks against it."""


@dataclass(frozen=True)
class Weight:
    weight: float
    reason: str = ""
    """Why it is below 1."""


def weigh(made: Sequence[MadeFrom]) -> list[Weight]:
    """The weight of each commit.

    Args:
        made: Of the good end, then of each commit up to the bad end.

    Returns:
        One for each commit but the good end; all 1 where by their sources none could matter.
    """
    weights: list[Weight] = []
    last, broken = made[0], 0
    for one in made[1:]:
        if one.trouble:
            broken += 1
            continue
        weights += [_beside(last, one)] * (broken + 1)
        last, broken = one, 0
    weights += [Weight(1.0)] * broken
    return weights if any(each.weight for each in weights) else [Weight(1.0)] * len(weights)


def _beside(before: MadeFrom, now: MadeFrom) -> Weight:
    if now.sources is not None and now.sources == before.sources:
        return Weight(0.0, SAME_SOURCES)
    if now.machine_code is not None and now.machine_code == before.machine_code:
        return Weight(SAME_CODE_WEIGHT, SAME_CODE)
    return Weight(1.0)
