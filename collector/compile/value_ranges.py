"""Bounds the integers of a Triton function under one launch.

Each value gets an interval. An operation whose exact result does not fit into its type wraps: that
is remembered by every value computed from it. A value that depends on something unknown, such as a
loaded index, is a doubt and not an overflow.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from roofwatch.collector.compile.interval import (
    ARITHMETIC,
    UNBOUNDED,
    Interval,
    of_width,
    trip_count,
)
from roofwatch.collector.compile.ttir import Block, Function, Operation, Value

_NUMBER = re.compile(r"-?\d+")
_AXES = "xyz"
_SAME_VALUES = frozenset(
    {
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.join",
        "tt.cat",
        "tt.split",
        "tt.gather",
        "tt.unsplat",
        "arith.extsi",
        "arith.index_cast",
        "ttg.convert_layout",
        "tt.bitcast",
        "scf.yield",
    }
)
"""Operations whose results are elements of their first operands."""
_MAX_DEPTH = 3
"""Of nested conditions and loops that are evaluated under their own constraints."""
_OF_FIRST = frozenset({"tt.gather"})
_NEGATED = {
    "slt": "sge",
    "sge": "slt",
    "sle": "sgt",
    "sgt": "sle",
    "eq": "ne",
    "ne": "eq",
    "ult": "uge",
    "uge": "ult",
    "ule": "ugt",
    "ugt": "ule",
}


_MAX_STEPS = 200_000


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
    """The unknown because of which an operation may wrap."""

    def with_interval(self, interval: Interval) -> "Bounds":
        return replace(self, interval=interval)


@dataclass(frozen=True)
class Wrap:
    operation: Operation
    exact: Interval


Constraints = Mapping[Value, Interval]


def _joined(bounds: Iterable[Bounds], interval: Interval) -> Bounds:
    known = list(bounds)

    def first(values: Iterable[object]) -> object:
        return next((value for value in values if value is not None), None)

    wraps = first(each.wraps for each in known)
    assert wraps is None or isinstance(wraps, Wrap)
    unknown = first(each.unknown for each in known)
    doubt = first(each.doubt for each in known)
    return Bounds(
        interval,
        wraps,
        None if unknown is None else str(unknown),
        None if doubt is None else str(doubt),
    )


def _bits(kind: str) -> int | None:
    found = re.fullmatch(r"i(\d+)|index", kind)
    return None if found is None else int(found[1] or 64)


class ValueRanges:
    """Evaluates values of a function on demand, under constraints that hold where they are used."""

    def __init__(
        self,
        function: Function,
        launch: Launch,
        constraints: Constraints | None = None,
        *,
        depth: int = 0,
        steps: list[int] | None = None,
    ) -> None:
        self._function = function
        self._launch = launch
        self._constraints = dict(constraints or {})
        self._known: dict[Value, Bounds] = {}
        self._open: set[Value] = set()
        self._depth = depth
        self._steps = [0] if steps is None else steps
        """Values that were computed so far, in a list that copies share."""

    def under(self, constraints: Constraints) -> "ValueRanges":
        # a copy computes everything again, so nested conditions would take exponential time
        if not constraints or self._depth >= _MAX_DEPTH:
            return self
        merged = dict(self._constraints)
        for value, limits in constraints.items():
            merged[value] = limits.clamped(merged[value]) if value in merged else limits
        return self._copy(merged, self._open)

    def _copy(self, constraints: Constraints, still_open: set[Value]) -> "ValueRanges":
        copy = ValueRanges(
            self._function, self._launch, constraints, depth=self._depth + 1, steps=self._steps
        )
        copy._open = set(still_open)
        return copy

    def of(self, value: Value) -> Bounds:
        """Bound a value; pointers have the bounds of their offsets in elements."""
        if value in self._known:
            return self._known[value]
        if value in self._open:  # a loop that is not understood
            return self._not_known(value, "a value that a loop changes")
        self._steps[0] += 1
        if self._steps[0] > _MAX_STEPS:
            raise TooComplexError
        self._open.add(value)
        try:
            bounds = self._computed(value)
        finally:
            self._open.discard(value)
        limits = self._constraints.get(value)
        if limits is not None:
            bounds = bounds.with_interval(bounds.interval.clamped(limits))
        self._known[value] = bounds
        return bounds

    def _not_known(self, value: Value, reason: str) -> Bounds:
        bits = _bits(value.element)
        return Bounds(UNBOUNDED if bits is None else of_width(bits), unknown=reason)

    def _computed(self, value: Value) -> Bounds:
        if value.operation is not None:
            return self._fitted(value, self._of_operation(value.operation, value))
        if value.block is not None:
            return self._fitted(value, self._of_block_argument(value, value.block))
        return self._of_argument(value)

    def _of_argument(self, value: Value) -> Bounds:
        if value.element == "ptr" or "tensordesc" in value.type:
            return Bounds(Interval(0, 0))
        name = value.name.removeprefix("%")
        if name in self._launch.arguments:
            number = int(self._launch.arguments[name])
            return Bounds(Interval(number, number))
        return self._not_known(value, f"the argument {name}")

    def _fitted(self, value: Value, bounds: Bounds) -> Bounds:
        """Cut the exact result to the value's type."""
        bits = _bits(value.element)
        if bits is None:
            return bounds
        limits = of_width(bits)
        if bounds.interval.within(limits):
            return bounds
        if bounds.unknown is not None:
            reason = bounds.doubt or bounds.unknown
            return replace(bounds, interval=limits, doubt=reason)
        if bits > 32:
            return bounds.with_interval(bounds.interval.clamped(limits))
        if bits < 32:  # narrow integers are data, which wraps by design
            return bounds.with_interval(limits)
        operation = value.operation or (value.block.parent if value.block else None)
        if operation is None:
            return bounds.with_interval(limits)
        wraps = bounds.wraps or Wrap(operation, bounds.interval)
        return replace(bounds, interval=limits, wraps=wraps)

    # --- operations

    def _of_operation(self, operation: Operation, value: Value) -> Bounds:
        name = operation.name
        if name in ARITHMETIC and len(operation.operands) > 1:
            left, right = (self.of(operand) for operand in operation.operands[:2])
            exact = ARITHMETIC[name](left.interval, right.interval)
            if name == "arith.divsi" and (share := self._quotient_of_counter(operation)):
                exact = exact.clamped(share)
            return _joined((left, right), exact)
        if name in _SAME_VALUES:
            operands = operation.operands[:1] if name in _OF_FIRST else operation.operands
            return self._union(operands)
        special: dict[str, Callable[[Operation, Value], Bounds]] = {
            "arith.constant": self._of_constant,
            "tt.make_range": self._of_range,
            "tt.get_program_id": self._of_program,
            "tt.get_num_programs": self._of_program,
            "tt.addptr": self._of_pointer,
            "arith.select": self._of_select,
            "arith.extui": self._of_unsigned,
            "arith.trunci": self._of_first_operand,
            "math.absi": self._of_absolute,
            "tt.load": self._of_load,
            "tt.reduce": self._of_reduction,
            "tt.scan": self._of_reduction,
            "tt.histogram": self._of_histogram,
            "scf.for": self._of_loop,
            "scf.if": self._of_condition,
            "scf.while": self._of_while,
            "arith.cmpi": self._of_comparison,
            "tt.make_tensor_descriptor": self._of_first_operand,
        }
        if name in special:
            return special[name](operation, value)
        return self._not_known(value, f"the result of {name}")

    def _quotient_of_counter(self, operation: Operation) -> Interval | None:
        """Bound `i // n` for a counter of `range(0, m * n)`, whatever `n` is."""
        counter, divisor = operation.operands[:2]
        loop = None if counter.block is None else counter.block.parent
        if loop is None or loop.name != "scf.for" or counter.index:
            return None
        product = loop.operands[1].operation
        if (
            product is None
            or product.name != "arith.muli"
            or self.of(loop.operands[0]).interval.low < 0
        ):
            return None
        others = [operand for operand in product.operands[:2] if operand is not divisor]
        if len(others) != 1:
            return None
        return Interval(0, max(self.of(others[0]).interval.high - 1, 0))

    def _union(self, operands: Iterable[Value]) -> Bounds:
        bounds = [self.of(operand) for operand in operands]
        interval = bounds[0].interval
        for each in bounds[1:]:
            interval = interval.union(each.interval)
        return _joined(bounds, interval)

    def _of_first_operand(self, operation: Operation, _value: Value) -> Bounds:
        return self.of(operation.operands[0])

    def _of_constant(self, operation: Operation, value: Value) -> Bounds:
        text = operation.text.rpartition(" : ")[0]
        if "true" in text or "false" in text:
            return Bounds(Interval(0, 1))
        numbers = [int(number) for number in _NUMBER.findall(re.sub(r"\{.*\}", "", text))]
        if not numbers or "." in text or "0x" in text or _bits(value.element) is None:
            return self._not_known(value, "a constant")
        return Bounds(Interval(min(numbers), max(numbers)))

    def _of_range(self, operation: Operation, _value: Value) -> Bounds:
        end = re.search(r"end = (\d+)", operation.text)
        start = re.search(r"start = (\d+)", operation.text)
        assert end is not None, operation.text
        assert start is not None, operation.text
        return Bounds(Interval(int(start[1]), int(end[1]) - 1))

    def _of_program(self, operation: Operation, _value: Value) -> Bounds:
        count = self._launch.grid[_AXES.index(operation.text.strip()[0])]
        if operation.name == "tt.get_num_programs":
            return Bounds(Interval(count, count))
        return Bounds(Interval(0, max(count - 1, 0)))

    def _of_pointer(self, operation: Operation, _value: Value) -> Bounds:
        pointer, offset = (self.of(operand) for operand in operation.operands[:2])
        return _joined((pointer, offset), pointer.interval.plus(offset.interval))

    def _of_select(self, operation: Operation, _value: Value) -> Bounds:
        condition, chosen, otherwise = operation.operands[:3]
        sides = (
            self.under(self.implied(condition)).of(chosen),
            self.under(self.implied(condition, is_true=False)).of(otherwise),
        )
        return _joined(sides, sides[0].interval.union(sides[1].interval))

    def _of_unsigned(self, operation: Operation, _value: Value) -> Bounds:
        operand = operation.operands[0]
        bounds = self.of(operand)
        if bounds.interval.low >= 0:
            return bounds
        return bounds.with_interval(Interval(0, 2 ** (_bits(operand.element) or 32) - 1))

    def _of_absolute(self, operation: Operation, _value: Value) -> Bounds:
        bounds = self.of(operation.operands[0])
        low, high = bounds.interval.low, bounds.interval.high
        return bounds.with_interval(Interval(max(low, -high, 0), max(abs(low), abs(high))))

    def _of_comparison(self, _operation: Operation, _value: Value) -> Bounds:
        return Bounds(Interval(0, 1))

    def _of_load(self, operation: Operation, value: Value) -> Bounds:
        base = base_of(operation.operands[0])
        name = "memory" if base is None else base.name.removeprefix("%")
        if name not in self._launch.ranges:
            return self._not_known(value, f"unknown index from {name}")
        bounds = Bounds(self._launch.ranges[name])
        if len(operation.operands) > 2:
            other = self.of(operation.operands[2])
            return _joined((bounds, other), bounds.interval.union(other.interval))
        return bounds

    def _of_reduction(self, operation: Operation, value: Value) -> Bounds:
        names = {inner.name for block in operation.regions[0] for inner in block.operations}
        operand = operation.operands[min(value.index, len(operation.operands) - 1)]
        bounds = self.of(operand)
        combining = names - {"tt.reduce.return", "tt.scan.return"}
        if combining <= {"arith.addi"}:
            count = max(1, operand.size // max(value.size, 1))
            if operation.name == "tt.scan":
                count = operand.size
            return bounds.with_interval(
                bounds.interval.union(bounds.interval.times(Interval(count, count)))
            )
        choosing = (
            "arith.cmp",
            "arith.select",
            "arith.max",
            "arith.min",
            "arith.andi",
            "arith.ori",
        )
        if all(name.startswith(choosing) for name in combining):
            return bounds
        return self._not_known(value, f"the result of {operation.name}")

    def _of_histogram(self, operation: Operation, _value: Value) -> Bounds:
        return Bounds(Interval(0, operation.operands[0].size))

    # --- control flow

    def _of_condition(self, operation: Operation, value: Value) -> Bounds:
        sides = []
        for position, region in enumerate(operation.regions):
            implied = self.implied(operation.operands[0], is_true=position == 0)
            last = region[-1].last
            if last is not None and last.name == "scf.yield":
                sides.append(self.under(implied).of(last.operands[value.index]))
        if not sides:
            return self._not_known(value, "the result of scf.if")
        interval = sides[0].interval
        for side in sides[1:]:
            interval = interval.union(side.interval)
        return _joined(sides, interval)

    def _of_loop(self, operation: Operation, value: Value) -> Bounds:
        argument = operation.regions[0][0].arguments[value.index + 1]
        return self._carried(operation, argument, is_after=True)

    def _of_block_argument(self, value: Value, block: Block) -> Bounds:
        parent = block.parent
        if parent is None or (block.incoming and parent.name not in {"scf.for", "scf.while"}):
            values = [branch.values[value.index] for branch in block.incoming]
            return self._union(values) if values else self._not_known(value, "a block")
        if parent.name == "scf.for":
            if value.index == 0:
                return self._counter(parent)
            return self._carried(parent, value, is_after=False)
        if parent.name == "scf.while":
            return self._of_while_argument(parent, value, block)
        return self._not_known(value, f"the region of {parent.name}")

    def _counter(self, loop: Operation) -> Bounds:
        start, stop, step = (self.of(operand) for operand in loop.operands[:3])
        high = max(stop.interval.high - 1, start.interval.low)
        if (
            start.interval.is_one
            and stop.interval.is_one
            and step.interval.is_one
            and step.interval.low > 0
        ):
            count = trip_count(start.interval, stop.interval, step.interval)
            high = start.interval.low + max(count - 1, 0) * step.interval.low
        return _joined((start, stop, step), Interval(start.interval.low, high))

    def _trips(self, loop: Operation) -> int:
        start, stop, step = loop.operands[:3]
        distance = self._distance(stop, start)
        if distance is not None:
            return trip_count(Interval(0, 0), distance.interval, self.of(step).interval)
        return trip_count(self.of(start).interval, self.of(stop).interval, self.of(step).interval)

    def _carried(self, loop: Operation, argument: Value, *, is_after: bool) -> Bounds:
        """Bound a value that each iteration changes by an amount that is bounded, or replaces."""
        initial = self.of(loop.operands[argument.index + 2])
        last = loop.regions[0][-1].last
        assert last is not None, loop.text
        return self._iterated(
            argument,
            initial,
            last.operands[argument.index - 1],
            count=self._trips(loop) - (0 if is_after else 1),
        )

    def _iterated(self, argument: Value, initial: Bounds, updated: Value, *, count: int) -> Bounds:
        step = self._distance(updated, argument)
        if step is not None:
            total = step.interval.times(Interval(0, max(count, 0)))
            return _joined((initial, step), initial.interval.plus(total))
        inner = self._copy(self._constraints, self._open | {argument})
        bounds = inner.of(updated)
        return _joined((initial, bounds), initial.interval.union(bounds.interval))

    def _of_while(self, operation: Operation, value: Value) -> Bounds:
        last = operation.regions[0][-1].last
        assert last is not None, operation.text
        return self.of(last.operands[value.index + 1])

    def _of_while_argument(self, loop: Operation, value: Value, block: Block) -> Bounds:
        last = loop.regions[0][-1].last
        assert last is not None, loop.text
        if block is not loop.regions[0][0]:  # the body takes what the condition passes on
            passed = last.operands[value.index + 1]
            return self.under(self._bound_by_condition(loop)).of(passed)
        initial = self.of(loop.operands[value.index])
        body = loop.regions[1][-1].last
        assert body is not None, loop.text
        updated = body.operands[value.index]
        renamed = {
            argument: last.operands[argument.index + 1] for argument in loop.regions[1][0].arguments
        }
        step = self._distance(updated, value, renamed=renamed)
        limits = self._bound_by_condition(loop).get(value)
        if step is None or limits is None:
            inner = self._copy(self._constraints, self._open | {value})
            bounds = inner.of(updated)
            return _joined((initial, bounds), initial.interval.union(bounds.interval))
        before = initial.interval
        if step.interval.low >= 0:
            last_value = max(before.high, min(limits.high, UNBOUNDED.high) + step.interval.high)
            return _joined((initial, step), Interval(before.low, last_value))
        if step.interval.high <= 0:
            last_value = min(before.low, limits.low + step.interval.low)
            return _joined((initial, step), Interval(last_value, before.high))
        return self._not_known(value, "a value that a loop changes")

    def _bound_by_condition(self, loop: Operation) -> Constraints:
        last = loop.regions[0][-1].last
        if last is None or not last.operands:
            return {}
        return self.implied(last.operands[0])

    def _distance(
        self, value: Value, origin: Value, renamed: Mapping[Value, Value] | None = None
    ) -> Bounds | None:
        """Bound `value - origin` if the value is the origin plus something; None otherwise."""
        value = (renamed or {}).get(value, value)
        if value is origin:
            return Bounds(Interval(0, 0))
        operation = value.operation
        if operation is None:
            return None
        operands = operation.operands
        if operation.name in {"arith.addi", "tt.addptr"}:
            for first, second in ((operands[0], operands[1]), (operands[1], operands[0])):
                distance = self._distance(first, origin, renamed)
                if distance is not None:
                    added = self.of(second)
                    total = distance.interval.plus(added.interval)
                    return _joined((distance, added), total)
            return None
        if operation.name == "arith.subi":
            distance = self._distance(operands[0], origin, renamed)
            if distance is None:
                return None
            taken = self.of(operands[1])
            total = ARITHMETIC["arith.subi"](distance.interval, taken.interval)
            return _joined((distance, taken), total)
        if operation.name == "arith.minsi":
            sides = [self._distance(operand, origin, renamed) for operand in operands[:2]]
            known = [side for side in sides if side is not None]
            if not known:
                return None
            high = min(side.interval.high for side in known)
            low = 0 if len(known) == 1 else min(side.interval.low for side in known)
            return _joined(known, Interval(min(low, high), high))
        if operation.name in {"arith.select", "scf.if"}:
            return self._distance_of_choice(value, origin, renamed)
        if operation.name == "scf.for":
            return self._distance_of_loop(value, origin, renamed)
        return None

    def _distance_of_choice(
        self, value: Value, origin: Value, renamed: Mapping[Value, Value] | None
    ) -> Bounds | None:
        operation = value.operation
        assert operation is not None
        if operation.name == "arith.select":
            chosen = operation.operands[1:3]
        else:
            lasts = [region[-1].last for region in operation.regions]
            chosen = [last.operands[value.index] for last in lasts if last is not None]
        sides = [self._distance(each, origin, renamed) for each in chosen]
        known = [side for side in sides if side is not None]
        if len(known) != len(sides) or not known:
            return None
        interval = known[0].interval
        for side in known[1:]:
            interval = interval.union(side.interval)
        return _joined(known, interval)

    def _distance_of_loop(
        self, value: Value, origin: Value, renamed: Mapping[Value, Value] | None
    ) -> Bounds | None:
        loop = value.operation
        assert loop is not None
        to_initial = self._distance(loop.operands[value.index + 3], origin, renamed)
        argument = loop.regions[0][0].arguments[value.index + 1]
        last = loop.regions[0][-1].last
        if to_initial is None or last is None:
            return None
        step = self._distance(last.operands[value.index], argument, renamed)
        if step is None:
            return None
        total = step.interval.times(Interval(0, self._trips(loop)))
        return _joined((to_initial, step), to_initial.interval.plus(total))

    # --- conditions

    def implied(self, condition: Value, *, is_true: bool = True) -> Constraints:
        """Return the limits of other values where a condition has a value."""
        operation = condition.operation
        if operation is None:
            return {}
        if operation.name in {
            "tt.splat",
            "tt.broadcast",
            "tt.expand_dims",
            "tt.reshape",
            "tt.trans",
        }:
            return self.implied(operation.operands[0], is_true=is_true)
        if operation.name == ("arith.andi" if is_true else "arith.ori"):
            limits = dict(self.implied(operation.operands[0], is_true=is_true))
            for value, other in self.implied(operation.operands[1], is_true=is_true).items():
                limits[value] = other.clamped(limits[value]) if value in limits else other
            return limits
        if operation.name == "arith.cmpi":
            return self._compared(operation, is_true=is_true)
        return {}

    def _compared(self, operation: Operation, *, is_true: bool) -> Constraints:
        predicate = operation.text.strip().partition(",")[0]
        if not is_true:
            predicate = _NEGATED.get(predicate, predicate)
        left, right = operation.operands[:2]
        if predicate.startswith("u"):
            if self.of(left).interval.low < 0 or self.of(right).interval.low < 0:
                return {}
            predicate = f"s{predicate[1:]}"
        if predicate in {"sgt", "sge"}:
            left, right = right, left
            predicate = {"sgt": "slt", "sge": "sle"}[predicate]
        lower, upper = self.of(left).interval, self.of(right).interval
        limits: dict[Value, Interval] = {}
        if predicate in {"slt", "sle"}:
            gap = 1 if predicate == "slt" else 0
            _limit(limits, left, Interval(UNBOUNDED.low, upper.high - gap))
            _limit(limits, right, Interval(lower.low + gap, UNBOUNDED.high))
        elif predicate == "eq":
            _limit(limits, left, upper)
            _limit(limits, right, lower)
        return limits


def _limit(limits: dict[Value, Interval], value: Value, interval: Interval) -> None:
    """Limit a value, and those that it is a copy of."""
    while True:
        limits[value] = interval.clamped(limits[value]) if value in limits else interval
        operation = value.operation
        if operation is None or operation.name not in {
            "tt.splat",
            "tt.broadcast",
            "tt.expand_dims",
            "arith.extsi",
        }:
            return
        value = operation.operands[0]


def base_of(pointer: Value) -> Value | None:
    """Find the argument that a pointer or descriptor comes from; None if it cannot be told."""
    seen: set[Value] = set()
    waiting = [pointer]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        operation = value.operation
        if operation is None and value.block is None:
            return value
        waiting += _sources(value)
    return None


def _sources(value: Value) -> list[Value]:
    operation = value.operation
    if operation is None:
        block = value.block
        assert block is not None
        parent = block.parent
        if parent is not None and parent.name == "scf.for" and value.index:
            return [parent.operands[value.index + 2]]
        if parent is not None and parent.name == "scf.while":
            return parent.operands[value.index : value.index + 1]
        return [branch.values[value.index] for branch in block.incoming]
    if operation.name == "scf.for":
        return [operation.operands[value.index + 3]]
    if operation.name in {"scf.if", "scf.while"}:
        lasts = [region[-1].last for region in operation.regions]
        return [last.operands[-1] for last in lasts if last is not None and last.operands]
    if operation.name == "arith.select":
        return operation.operands[1:2]
    return operation.operands[:1]
