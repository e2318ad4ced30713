"""Intervals of integers, and the arithmetic of Triton's integer operations on them."""

import itertools
import math
import operator
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
        low = min(self.low, right.low)
        high = max(self.high, right.high)
        return Interval(low, high)

    def within(self, limits: "Interval") -> bool:
        reaches_below = self.low < limits.low
        reaches_above = self.high > limits.high
        return not reaches_below and not reaches_above

    def clamped(self, limits: "Interval") -> "Interval":
        """Intersect; if nothing is common, the nearest limit, as that code does not run."""
        low = max(self.low, limits.low)
        high = min(self.high, limits.high)
        if low <= high:
            return Interval(low, high)
        if self.high < limits.low:
            return Interval(limits.low, limits.low)
        return Interval(limits.high, limits.high)

    def plus(self, right: "Interval") -> "Interval":
        low = self.low + right.low
        high = self.high + right.high
        return Interval(low, high)

    def minus(self, right: "Interval") -> "Interval":
        low = self.low - right.high
        high = self.high - right.low
        return Interval(low, high)

    def times(self, right: "Interval") -> "Interval":
        return _of_corners(self, right, operator.mul)

    def smaller(self, right: "Interval") -> "Interval":
        """Bound the minimum of a value of each."""
        low = min(self.low, right.low)
        high = min(self.high, right.high)
        return Interval(low, high)

    def larger(self, right: "Interval") -> "Interval":
        """Bound the maximum of a value of each."""
        low = max(self.low, right.low)
        high = max(self.high, right.high)
        return Interval(low, high)


# Wider than 32 bits, so a wrap shows; far from the ends of 64 bits, so sums stay exact.
UNBOUNDED = Interval(-(2**62), 2**62)


def of_width(bits: int) -> Interval:
    """The range of a signed integer; 1 bit is a boolean."""
    if bits == 1:
        return Interval(0, 1)
    return Interval(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _of_corners(x: Interval, y: Interval, compute: Callable[[int, int], int]) -> Interval:
    """Results of an operation that only grows or only falls in each operand."""
    # Each computation is monotonic in both operands, so its extremes lie at the ends.
    corners: list[int] = []
    for a, b in itertools.product((x.low, x.high), (y.low, y.high)):
        corners.append(compute(a, b))
    return Interval(min(corners), max(corners))


def _truncated(x: int, y: int) -> int:
    # Python rounds to minus infinity, a GPU to zero.
    quotient = abs(x) // abs(y)
    has_same_signs = (x < 0) == (y < 0)
    if has_same_signs:
        return quotient
    return -quotient


def _divide(x: Interval, y: Interval) -> Interval:
    """All quotients, rounded towards zero as C does."""
    # The extremes are at the ends of the divisor, or at 1 and -1 if it contains them.
    quotients: list[int] = []
    for divisor in (y.low, y.high, -1, 1):
        if divisor == 0 or not y.low <= divisor <= y.high:
            continue
        quotients.append(_truncated(x.low, divisor))
        quotients.append(_truncated(x.high, divisor))
    # A dividend of 0 gives 0; a division by 0 only is undefined, and 0 stands for it.
    if not quotients or x.low <= 0 <= x.high:
        quotients.append(0)
    return Interval(min(quotients), max(quotients))


def _remainder(x: Interval, y: Interval) -> Interval:
    """All remainders, with the sign of the dividend as in C."""
    # The result has the sign of the dividend, and is smaller than the divisor.
    largest = max(abs(y.low), abs(y.high)) - 1
    if x.low < 0:
        low = max(x.low, -largest)
        high = min(max(x.high, 0), max(largest, 0))
        return Interval(low, high)
    if y.is_one and y.low > 0:
        # Without a multiple of the divisor in between, the remainder only grows.
        has_same_quotient = x.low // y.low == x.high // y.low
        if has_same_quotient:
            return Interval(x.low % y.low, x.high % y.low)
    return Interval(0, max(0, min(x.high, largest)))


def _shift_left(x: Interval, y: Interval) -> Interval:
    if y.low < 0 or y.high > 62:
        return UNBOUNDED
    return x.times(Interval(2**y.low, 2**y.high))


def _shift_right(x: Interval, y: Interval) -> Interval:
    """All results of a shift that keeps the sign."""
    if y.low < 0:
        return UNBOUNDED
    # A shift by more than 62 bits leaves what 62 leave: the sign.
    shift = Interval(min(y.low, 62), min(y.high, 62))
    return _of_corners(x, shift, operator.rshift)


def _and(x: Interval, y: Interval) -> Interval:
    """All results of a bitwise and."""
    # Only the bits of both remain: the result is at most each operand that is not negative.
    highs = [interval.high for interval in (x, y) if interval.low >= 0]
    if highs:
        return Interval(0, min(highs))
    power = _next_power(x, y)
    return Interval(-power, power - 1)


def _or(x: Interval, y: Interval) -> Interval:
    """All results of a bitwise or, or of an exclusive or."""
    power = _next_power(x, y)
    is_negative_possible = x.low < 0 or y.low < 0
    if is_negative_possible:
        return Interval(-power, power - 1)
    return Interval(0, power - 1)


def _floor_divide(x: Interval, y: Interval) -> Interval:
    """All quotients, rounded down."""
    truncated = _divide(x, y)
    # Rounding down lowers a negative quotient by at most 1.
    if x.low < 0:
        return Interval(truncated.low - 1, truncated.high)
    return truncated


def _ceil_divide(x: Interval, y: Interval) -> Interval:
    truncated = _divide(x, y)
    return Interval(truncated.low, truncated.high + 1)


def _next_power(x: Interval, y: Interval) -> int:
    ends = (x.low, x.high, y.low, y.high)
    largest = max(map(abs, ends))
    return 1 << largest.bit_length()


ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "arith.addi": Interval.plus,
    "arith.subi": Interval.minus,
    "arith.muli": Interval.times,
    "arith.divsi": _divide,
    "arith.divui": _divide,
    "arith.floordivsi": _floor_divide,
    "arith.ceildivsi": _ceil_divide,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.minsi": Interval.smaller,
    "arith.minui": Interval.smaller,
    "arith.maxsi": Interval.larger,
    "arith.maxui": Interval.larger,
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
    # A step that may be 0 or negative bounds nothing.
    if step.low < 1:
        return 2**62
    longest_distance = stop.high - start.low
    return max(0, math.ceil(longest_distance / step.low))
