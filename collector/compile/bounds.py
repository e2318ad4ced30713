"""What is known about a launch and about a value of a Triton function under it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.ir import Operation, Value
from roofwatch.collector.compile.shared_axes import Axes


class TooComplexError(Exception):
    """The values of a function take too long to bound."""


@dataclass(frozen=True)
class Launch:
    """What is known about one launch."""

    arguments: Mapping[str, int]
    """Values of integer arguments, by name."""
    grid: tuple[int, int, int]
    ranges: Mapping[str, Interval]
    """Of the integers behind pointer arguments, by name."""


@dataclass(frozen=True)
class Bounds:
    """What is known about a value."""

    interval: Interval
    wraps: "Wrap | None" = None
    """The first operation that leaves the range of its type."""
    unknown: str | None = None
    """What the value depends on and is not known."""
    doubt: str | None = None
    """The unknown value that may make an operation wrap."""

    def with_interval(self, interval: Interval) -> "Bounds":
        return replace(self, interval=interval)


@dataclass(frozen=True)
class Wrap:
    operation: Operation
    exact: Interval


Constraints = Mapping[Value, Interval]


def joined(bounds: Iterable[Bounds], interval: Interval) -> Bounds:
    """Bounds of a result: its interval, with the first doubt of its operands."""
    all_bounds = list(bounds)

    def first(values: Iterable[object]) -> object:
        return next((value for value in values if value is not None), None)

    wraps = first(operand_bounds.wraps for operand_bounds in all_bounds)
    assert wraps is None or isinstance(wraps, Wrap)
    unknown = first(operand_bounds.unknown for operand_bounds in all_bounds)
    doubt = first(operand_bounds.doubt for operand_bounds in all_bounds)
    return Bounds(
        interval=interval,
        wraps=wraps,
        unknown=None if unknown is None else str(unknown),
        doubt=None if doubt is None else str(doubt),
    )


def bits_of(kind: str) -> int | None:
    match = re.fullmatch(r"i(\d+)|index", kind)
    if match is None:
        return None
    return int(match[1] or 64)


class Ranges(Protocol):
    """Bounds values on demand, under constraints."""

    @property
    def axes(self) -> Axes:
        """How an access uses the values that it is computed from."""

    def of(self, value: Value) -> Bounds: ...

    def under(self, constraints: Constraints) -> "Ranges": ...

    def outside(self, loop: Operation) -> "Ranges":
        """Return a copy without the constraints of the current iteration."""

    def while_open(self, value: Value) -> "Ranges":
        """Return a copy to which a value that a loop changes is unknown."""

    def not_known(self, value: Value, reason: str) -> Bounds: ...
