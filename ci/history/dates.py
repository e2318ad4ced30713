"""The nights in which something was measured, as bits: a year takes 46 bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Nights:
    first: int = 0
    """Ordinal of the day that the lowest bit stands for."""
    bits: int = 0

    @classmethod
    def of(cls, nights: Iterable[date]) -> Nights:
        ordinals = {night.toordinal() for night in nights}
        first = min(ordinals, default=0)
        return cls(first, sum(1 << (ordinal - first) for ordinal in ordinals))

    def with_night(self, night: date) -> Nights:
        ordinal = night.toordinal()
        if not self.bits:
            return Nights(ordinal, 1)
        if ordinal < self.first:
            return Nights(ordinal, self.bits << (self.first - ordinal) | 1)
        return Nights(self.first, self.bits | 1 << (ordinal - self.first))

    def without(self, other: Nights) -> Nights:
        """Those that are not among the other ones."""
        if not other.bits:
            return self
        shift = other.first - self.first
        return Nights(self.first, self.bits & ~(other.bits << shift if shift >= 0 else other.bits >> -shift))

    def __iter__(self) -> Iterator[date]:
        bits, ordinal = self.bits, self.first
        while bits:
            if bits & 1:
                yield date.fromordinal(ordinal)
            bits >>= 1
            ordinal += 1
