"""Intervals of integers, and the arithmetic of Triton's integer operations on them."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """All integers from `low` to `high`."""

    low: int
    high: int

    @property
    def is_one(self) -> bool:
        return self.low == self.high

    def union(self, right: "Interval") -> "Interval":
        return Interval(min(self.low, right.low), max(self.high, right.high))

    def within(self, limits: "Interval") -> bool:
        return limits.low <= self.low and self.high <= limits.high

    def clamped(self, limits: "Interval") -> "Interval":
        """Intersect; if nothing is common, the nearest limit, as that code does not run."""
        low, high = max(self.low, limits.low), min(self.high, limits.high)
        if low <= high:
            return Interval(low, high)
        nearest = limits.low if self.high < limits.low else limits.high
        return Interval(nearest, nearest)

    def plus(self, right: "Interval") -> "Interval":
        return Interval(self.low + right.low, self.high + right.high)

    def times(self, right: "Interval") -> "Interval":
        return _of_corners(self, right, lambda x, y: x * y)


UNBOUNDED = Interval(-(2**62), 2**62)


def of_width(bits: int) -> Interval:
    """The range of a signed integer; 1 bit is a boolean."""
    if bits == 1:
        return Interval(0, 1)
    return Interval(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _of_corners(x: Interval, y: Interval, compute: Callable[[int, int], int]) -> Interval:
    corners = [compute(a, b) for a, b in itertools.product((x.low, x.high), (y.low, y.high))]
    return Interval(min(corners), max(corners))


def _truncated(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _divide(x: Interval, y: Interval) -> Interval:
    divisors = [value for value in (y.low, y.high, -1, 1) if y.low <= value <= y.high and value]
    quotients = [_truncated(a, b) for a in (x.low, x.high) for b in divisors] or [0]
    if x.low <= 0 <= x.high:
        quotients.append(0)
    return Interval(min(quotients), max(quotients))


def _remainder(x: Interval, y: Interval) -> Interval:
    largest = max(abs(y.low), abs(y.high)) - 1
    if x.low >= 0:
        if y.is_one and y.low > 0 and x.low // y.low == x.high // y.low:
            return Interval(x.low % y.low, x.high % y.low)
        return Interval(0, max(0, min(x.high, largest)))
    return Interval(max(x.low, -largest), min(max(x.high, 0), max(largest, 0)))


def _shift_left(x: Interval, y: Interval) -> Interval:
    if y.low < 0 or y.high > 62:
        return UNBOUNDED
    return x.times(Interval(2**y.low, 2**y.high))


def _shift_right(x: Interval, y: Interval) -> Interval:
    if y.low < 0:
        return UNBOUNDED
    return _of_corners(x, Interval(min(y.low, 62), min(y.high, 62)), lambda a, b: a >> b)


def _and(x: Interval, y: Interval) -> Interval:
    highs = [interval.high for interval in (x, y) if interval.low >= 0]
    if highs:
        return Interval(0, min(highs))
    return Interval(-_next_power(x, y), _next_power(x, y) - 1)


def _or(x: Interval, y: Interval) -> Interval:
    power = _next_power(x, y)
    return Interval(0 if x.low >= 0 and y.low >= 0 else -power, power - 1)


def _next_power(x: Interval, y: Interval) -> int:
    largest = max(abs(x.low), abs(x.high), abs(y.low), abs(y.high))
    return 1 << largest.bit_length()


ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "arith.addi": Interval.plus,
    "arith.subi": lambda x, y: Interval(x.low - y.high, x.high - y.low),
    "arith.muli": Interval.times,
    "arith.divsi": _divide,
    "arith.divui": _divide,
    "arith.floordivsi": lambda x, y: _divide(x, y).plus(Interval(-1 if x.low < 0 else 0, 0)),
    "arith.ceildivsi": lambda x, y: _divide(x, y).plus(Interval(0, 1)),
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.minsi": lambda x, y: Interval(min(x.low, y.low), min(x.high, y.high)),
    "arith.minui": lambda x, y: Interval(min(x.low, y.low), min(x.high, y.high)),
    "arith.maxsi": lambda x, y: Interval(max(x.low, y.low), max(x.high, y.high)),
    "arith.maxui": lambda x, y: Interval(max(x.low, y.low), max(x.high, y.high)),
    "arith.shli": _shift_left,
    "arith.shrsi": _shift_right,
    "arith.shrui": _shift_right,
    "arith.andi": _and,
    "arith.ori": _or,
    "arith.xori": _or,
}
"""Exact results, before they are cut to the width of their type."""


def trip_count(start: Interval, stop: Interval, step: Interval) -> int:
    """The largest number of iterations of `range(start, stop, step)` with a positive step."""
    if step.low < 1:
        return 2**62
    return max(0, math.ceil((stop.high - start.low) / step.low))
