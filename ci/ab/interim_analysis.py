"""When to look at the blocks of a pair, and how sure each look must be so that looking often misleads no more. Pure.

Whoever measures until the interval is clear of the threshold looks again and again, and an interval that misses one
time in twenty at each look misses far more often at one of them. So the looks are laid down before anything is
measured, at 8, 12, 18, 27, 40 ... blocks, and the 5 % that all of them together may miss is spent ahead: half of what
is left at each. That the events may be of any dependence makes the sum valid whatever the noise; the interval of each
look needs to be valid alone, no more.

The level of a look depends on the number of blocks alone. So a record says by itself how often it may have been looked
at, and blocks of one commit pair that several jobs measured add up under the same promise.

Source: spending an error rate over planned looks is Lan and DeMets 1983 (Discrete sequential boundaries for clinical
trials); the sum in place of the joint distribution is Bonferroni's, which asks for no normal noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

ERROR_RATE = 0.05
"""How often the intervals of all looks together may miss the truth."""
FIRST_LOOK_BLOCKS = 8
GROWTH = 1.5
"""Each look has so many times the blocks of the one before: little is measured in vain, and the looks stay few."""


def look_number(block_count: int) -> int:
    """Which look so many blocks are at: 1 up to 8 blocks, 2 up to 12 and so on."""
    return next(number for number, blocks in enumerate(_looks(), start=1) if block_count <= blocks)


def error_rate_at(block_count: int) -> float:
    """How often the interval of this look may miss the truth."""
    return ERROR_RATE / 2.0 ** look_number(block_count)


def looks_after(block_count: int) -> Iterator[int]:
    """The numbers of blocks at which to look next, each with a level of its own; without end."""
    reached = look_number(block_count)
    return (blocks for number, blocks in enumerate(_looks(), start=1) if number > reached)


def _looks() -> Iterator[int]:
    blocks = FIRST_LOOK_BLOCKS
    while True:
        yield blocks
        blocks = math.floor(blocks * GROWTH)
