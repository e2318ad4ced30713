"""Which hardware counters moved between two records, the most first. Pure, and without a judgement: that a counter
grows is neither good nor bad by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from roofwatch.collector.record.results import Counters

_SHARE = "_share"
_LEAST_SHARE = 0.01
"""A share that stays below it on both sides, such as a stall that nearly never happens, is left out."""


@dataclass(frozen=True)
class CounterMove:
    """One counter of one kernel, base against head."""

    case_id: str
    implementation: str
    function: str
    launch_index: int
    name: str
    """With its unit, as in the record."""
    base: float
    head: float

    @property
    def relative_change(self) -> float:
        """(head − base) / base; infinite where there was nothing at the base."""
        if self.base == self.head:
            return 0.0
        return (self.head - self.base) / self.base if self.base else math.copysign(math.inf, self.head)

    @property
    def size(self) -> float:
        """The same for a doubling as for a halving: the absolute logarithm of the ratio."""
        if self.base == self.head:
            return 0.0
        is_ratio = self.base > 0 and self.head > 0
        return abs(math.log(self.head / self.base)) if is_ratio else math.inf


def rank_moves(
    base: Iterable[Counters], head: Iterable[Counters], *, least_change: float = 0.02
) -> tuple[CounterMove, ...]:
    """The counters that moved, the most first.

    Kernels are paired by case, implementation, name and how many of that name went before in the call, so that a kernel
    more or less in between moves nothing. What one side alone has, is no move.

    Args:
        base: Of the record to compare against.
        head: Of the new record.
        least_change: Relative change below which a counter has not moved: two runs of one kernel differ by as much.
    """
    limit = math.log1p(least_change)
    before = dict(_numbered(base))
    moves = [
        CounterMove(
            *(new.case_id, new.implementation, new.function, new.launch_index),
            name=name,
            base=old.values[name],
            head=new.values[name],
        )
        for key, new in _numbered(head)
        if (old := before.get(key)) is not None
        for name in new.values
        if name in old.values and not _is_nothing(name, (old.values[name], new.values[name]))
    ]
    return tuple(sorted((move for move in moves if move.size >= limit), key=_rank))


def _numbered(counters: Iterable[Counters]) -> Iterator[tuple[tuple[str, str, str, int], Counters]]:
    seen: dict[tuple[str, str, str], int] = {}
    for each in sorted(counters, key=lambda each: each.launch_index):
        kernel = (each.case_id, each.implementation, each.function)
        seen[kernel] = seen.get(kernel, -1) + 1
        yield (*kernel, seen[kernel]), each


def _is_nothing(name: str, values: Sequence[float]) -> bool:
    return name.endswith(_SHARE) and max(values) < _LEAST_SHARE


def _rank(move: CounterMove) -> tuple[float, str, str, int, str]:
    return -move.size, move.case_id, move.implementation, move.launch_index, move.name
