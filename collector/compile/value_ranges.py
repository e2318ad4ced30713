"""Bounds the integers of a Triton function under one launch.

Each value gets an interval. An operation whose exact result does not fit into its type wraps: that
is remembered by every value computed from it. A value that depends on something unknown, such as a
loaded index, is a doubt and not an overflow.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from roofwatch.collector.compile.bounds import (
    Bounds,
    Constraints,
    Launch,
    TooComplexError,
    Wrap,
    bits_of,
    joined,
)
from roofwatch.collector.compile.conditions import implied
from roofwatch.collector.compile.interval import (
    ARITHMETIC,
    UNBOUNDED,
    Interval,
    of_width,
)
from roofwatch.collector.compile.ir import Function, IrBlock, Operation, Value
from roofwatch.collector.compile.loops import (
    bound_carried,
    bound_counter,
    bound_quotient_of_counter,
    bound_while_argument,
)
from roofwatch.collector.compile.pointers import base_of
from roofwatch.collector.compile.shared_axes import Axes, is_inside

_NUMBER = re.compile(r"-?\d+")
_AXES = "xyz"
"""Names of the axes of a grid in the IR, in the order of the grid."""
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
"""Of these, the other operands are indices."""
_CHOOSING = (
    "arith.cmp",
    "arith.select",
    "arith.max",
    "arith.min",
    "arith.andi",
    "arith.ori",
)
"""Starts of operations that a reduction chooses an element with."""
_MAX_STEPS = 200_000
"""A function that takes more is given up, so that it cannot hold up a run."""


class ValueRanges:
    """Evaluates values of a function on demand, under constraints that hold where they are used."""

    def __init__(
        self,
        function: Function,
        launch: Launch,
        constraints: Constraints | None = None,
        *,
        axes: Axes | None = None,
        depth: int = 0,
        steps: list[int] | None = None,
    ) -> None:
        self._function = function
        self._launch = launch
        self._constraints = dict(constraints or {})
        if axes is None:
            axes = {}
        self.axes: Axes = axes
        self._known: dict[Value, Bounds] = {}
        self._open: set[Value] = set()
        self._depth = depth
        if steps is None:
            steps = [0]
        self._steps = steps
        """Values that were computed so far, in a list that copies share."""

    def under(self, constraints: Constraints) -> "ValueRanges":
        """Ranges where conditions hold."""
        # A copy computes everything again, so nested conditions would take exponential time.
        if not constraints or self._depth >= _MAX_DEPTH:
            return self
        merged = dict(self._constraints)
        for value, limits in constraints.items():
            around = merged.get(value)
            if around is None:
                merged[value] = limits
            else:
                merged[value] = limits.clamped(around)
        return self._copy(merged, self._open)

    def _copy(self, constraints: Constraints, still_open: set[Value]) -> "ValueRanges":
        """Ranges of the same function under other conditions."""
        copy = ValueRanges(
            function=self._function,
            launch=self._launch,
            constraints=constraints,
            axes=self.axes,
            depth=self._depth + 1,
            steps=self._steps,
        )
        copy._open = set(still_open)
        return copy

    def of(self, value: Value) -> Bounds:
        """Bound a value; pointers have the bounds of their offsets in elements."""
        if value in self._known:
            return self._known[value]
        if value in self._open:  # a loop that is not understood
            return self.not_known(value, "a value that a loop changes")
        self._steps[0] += 1
        if self._steps[0] > _MAX_STEPS:
            raise TooComplexError
        self._open.add(value)
        try:
            bounds = self._computed(value)
        finally:
            self._open.discard(value)
        # What a condition says of a value holds however it was computed.
        limits = self._constraints.get(value)
        if limits is not None:
            bounds = bounds.with_interval(bounds.interval.clamped(limits))
        self._known[value] = bounds
        return bounds

    def outside(self, loop: Operation) -> "ValueRanges":
        """Ranges after a loop, without the conditions on values inside it."""
        # What holds within the loop need not hold where it is left.
        outer = dict(self._constraints)
        for value in self._constraints:
            if is_inside(value, loop):
                del outer[value]
        if len(outer) == len(self._constraints):
            return self
        return self._copy(outer, self._open)

    def while_open(self, value: Value) -> "ValueRanges":
        return self._copy(self._constraints, self._open | {value})

    def not_known(self, value: Value, reason: str) -> Bounds:
        bits = bits_of(value.element)
        if bits is None:
            return Bounds(UNBOUNDED, unknown=reason)
        return Bounds(of_width(bits), unknown=reason)

    def _computed(self, value: Value) -> Bounds:
        """Bounds of a value by where it comes from: operation, block or argument."""
        if value.operation is not None:
            exact = self._of_operation(value.operation, value)
            return self._fitted(value, exact)
        if value.block is not None:
            exact = self._of_block_argument(value, value.block)
            return self._fitted(value, exact)
        return self._of_argument(value)

    def _of_argument(self, value: Value) -> Bounds:
        """The number that the launch passes; a pointer is its own origin."""
        # Offsets are counted from where a pointer argument points.
        if value.element == "ptr" or "tensordesc" in value.type:
            return Bounds(Interval(0, 0))
        name = value.name.removeprefix("%")
        if name in self._launch.arguments:
            number = int(self._launch.arguments[name])
            return Bounds(Interval(number, number))
        return self.not_known(value, f"the argument {name}")

    def _fitted(self, value: Value, bounds: Bounds) -> Bounds:
        """Cut the exact result to the value's type."""
        bits = bits_of(value.element)
        if bits is None:
            return bounds
        limits = of_width(bits)
        if bounds.interval.within(limits):
            return bounds
        # What depends on something unknown may or may not wrap.
        if bounds.unknown is not None:
            reason = bounds.doubt or bounds.unknown
            return replace(
                bounds,
                interval=limits,
                doubt=reason,
            )
        if bits > 32:
            # 64 bits hold any index of a real launch: the interval is just too wide.
            return bounds.with_interval(bounds.interval.clamped(limits))
        if bits < 32:  # narrow integers are data, which wraps by design
            return bounds.with_interval(limits)
        operation = value.operation
        if operation is None and value.block is not None:
            operation = value.block.parent
        if operation is None:
            return bounds.with_interval(limits)
        # The first wrap on the way is the one to report.
        wraps = bounds.wraps or Wrap(operation, bounds.interval)
        return replace(
            bounds,
            interval=limits,
            wraps=wraps,
        )

    # --- operations

    def _of_operation(self, operation: Operation, value: Value) -> Bounds:
        """Bounds of a result by the rule for its operation."""
        name = operation.name
        if name in ARITHMETIC and len(operation.operands) > 1:
            return self._of_arithmetic(operation)
        if name in _OF_FIRST:
            return self._union(operation.operands[:1])
        if name in _SAME_VALUES:
            return self._union(operation.operands)
        if name in _OF_OPERATION:
            return _OF_OPERATION[name](self, operation, value)
        # an operation that nobody described may return anything
        return self.not_known(value, f"the result of {name}")

    def _of_arithmetic(self, operation: Operation) -> Bounds:
        """Exact bounds of integer arithmetic, before it wraps."""
        first, second = operation.operands[:2]
        left_bounds = self.of(first)
        right_bounds = self.of(second)
        compute = ARITHMETIC[operation.name]
        exact = compute(left_bounds.interval, right_bounds.interval)
        if operation.name == "arith.divsi":
            # A flattened index that is taken apart again is smaller than intervals can tell.
            quotient = bound_quotient_of_counter(self, operation)
            if quotient is not None:
                exact = exact.clamped(quotient)
        return joined((left_bounds, right_bounds), exact)

    def _union(self, operands: Iterable[Value]) -> Bounds:
        return _any_of([self.of(operand) for operand in operands])

    def _of_first_operand(self, operation: Operation, _value: Value) -> Bounds:
        return self.of(operation.operands[0])

    def _of_constant(self, operation: Operation, value: Value) -> Bounds:
        """Smallest and largest number of a constant."""
        text = operation.text.rpartition(" : ")[0]
        if "true" in text or "false" in text:
            return Bounds(Interval(0, 1))
        # `dense<[1, 2]> : tensor<2xi32>`, or `5 : i32`; attributes in braces have numbers, too.
        without_attributes = re.sub(r"\{.*\}", "", text)
        numbers = [int(number) for number in _NUMBER.findall(without_attributes)]
        # a float is data, and no index is made of it
        is_float = "." in text or "0x" in text
        if not numbers or is_float or bits_of(value.element) is None:
            return self.not_known(value, "a constant")
        return Bounds(Interval(min(numbers), max(numbers)))

    def _of_range(self, operation: Operation, _value: Value) -> Bounds:
        """All numbers of `tt.make_range`."""
        end = re.search(r"end = (\d+)", operation.text)
        start = re.search(r"start = (\d+)", operation.text)
        assert end is not None, operation.text
        assert start is not None, operation.text
        return Bounds(Interval(int(start[1]), int(end[1]) - 1))

    def _of_program(self, operation: Operation, _value: Value) -> Bounds:
        """All program IDs of an axis, or the number of programs."""
        axis = operation.text.strip()[0]
        count = self._launch.grid[_AXES.index(axis)]
        if operation.name == "tt.get_num_programs":
            return Bounds(Interval(count, count))
        last_id = max(count - 1, 0)
        return Bounds(Interval(0, last_id))

    def _of_pointer(self, operation: Operation, _value: Value) -> Bounds:
        base, added = operation.operands[:2]
        pointer = self.of(base)
        offset = self.of(added)
        return joined((pointer, offset), pointer.interval.plus(offset.interval))

    def _of_select(self, operation: Operation, _value: Value) -> Bounds:
        """Bounds of both choices, each under its condition."""
        condition, chosen, otherwise = operation.operands[:3]
        # Each side is evaluated where the condition chooses it.
        holds = self.under(implied(self, condition))
        fails = self.under(implied(self, condition, is_true=False))
        return _any_of([holds.of(chosen), fails.of(otherwise)])

    def _of_unsigned(self, operation: Operation, _value: Value) -> Bounds:
        """Bounds of a value that is extended without its sign."""
        operand = operation.operands[0]
        bounds = self.of(operand)
        if bounds.interval.low >= 0:
            return bounds
        # A negative number read as unsigned is large.
        bits = bits_of(operand.element) or 32
        return bounds.with_interval(Interval(0, 2**bits - 1))

    def _of_absolute(self, operation: Operation, _value: Value) -> Bounds:
        """Bounds of magnitudes."""
        bounds = self.of(operation.operands[0])
        low = bounds.interval.low
        high = bounds.interval.high
        # The smallest is 0 unless all values have one sign.
        smallest = max(low, -high, 0)
        largest = max(abs(low), abs(high))
        return bounds.with_interval(Interval(smallest, largest))

    def _of_comparison(self, _operation: Operation, _value: Value) -> Bounds:
        return Bounds(Interval(0, 1))

    def _of_load(self, operation: Operation, value: Value) -> Bounds:
        """Range of the tensor that a load reads, such as indices of the case."""
        base = base_of(operation.operands[0])
        name = "memory"
        if base is not None:
            name = base.name.removeprefix("%")
        if name not in self._launch.ranges:
            return self.not_known(value, f"unknown index from {name}")
        loaded_bounds = Bounds(self._launch.ranges[name])
        if len(operation.operands) <= 2:
            return loaded_bounds
        # The third operand stands in where the mask excludes an element.
        masked_bounds = self.of(operation.operands[2])
        return _any_of([loaded_bounds, masked_bounds])

    def _of_reduction(self, operation: Operation, value: Value) -> Bounds:
        """Bounds of a sum, or of one element that a reduction or scan picks."""
        # `argmax` reduces values and their indices together: one result for each operand
        operand_index = min(value.index, len(operation.operands) - 1)
        operand = operation.operands[operand_index]
        bounds = self.of(operand)
        combining: set[str] = set()
        for block in operation.regions[0]:
            combining.update(inner.name for inner in block.operations)
        combining -= {"tt.reduce.return", "tt.scan.return"}
        if combining <= {"arith.addi"}:
            count = operand.size
            if operation.name == "tt.reduce":
                count = max(1, operand.size // max(value.size, 1))
            # The partial sums of a scan begin with one element.
            total = bounds.interval.times(Interval(count, count))
            return bounds.with_interval(bounds.interval.union(total))
        # Operations that pick one of the elements make no new values.
        if all(name.startswith(_CHOOSING) for name in combining):
            return bounds
        return self.not_known(value, f"the result of {operation.name}")

    def _of_histogram(self, operation: Operation, _value: Value) -> Bounds:
        return Bounds(Interval(0, operation.operands[0].size))

    # --- control flow

    def _of_condition(self, operation: Operation, value: Value) -> Bounds:
        """Bounds of both sides of an `if`, each where it is taken."""
        sides: list[Bounds] = []
        for position, region in enumerate(operation.regions):
            is_then = position == 0
            limits = implied(self, operation.operands[0], is_true=is_then)
            last = region[-1].last
            if last is not None and last.name == "scf.yield":
                # each side is evaluated where the condition chooses it
                side = self.under(limits).of(last.operands[value.index])
                sides.append(side)
        if not sides:
            return self.not_known(value, "the result of scf.if")
        return _any_of(sides)

    def _of_loop(self, operation: Operation, value: Value) -> Bounds:
        """Bounds of what a loop returns."""
        argument = operation.regions[0][0].arguments[value.index + 1]
        return bound_carried(
            ranges=self,
            loop=operation,
            argument=argument,
            is_after=True,
        )

    def _of_block_argument(self, value: Value, block: IrBlock) -> Bounds:
        """Bounds of a block's argument: a counter, a carried value, or a branch's operand."""
        parent = block.parent
        is_of_loop = parent is not None and parent.name in {"scf.for", "scf.while"}
        if parent is None or (block.incoming and not is_of_loop):
            # A block that branches lead to has the values that they pass.
            values = [branch.values[value.index] for branch in block.incoming]
            if values:
                return self._union(values)
            return self.not_known(value, "a block")
        if parent.name == "scf.for":
            if value.index == 0:
                return bound_counter(self, parent)
            return bound_carried(
                ranges=self,
                loop=parent,
                argument=value,
                is_after=False,
            )
        if parent.name == "scf.while":
            return bound_while_argument(
                ranges=self,
                loop=parent,
                value=value,
                block=block,
            )
        return self.not_known(value, f"the region of {parent.name}")

    def _of_while(self, operation: Operation, value: Value) -> Bounds:
        last = operation.regions[0][-1].last
        assert last is not None, operation.text
        return self.of(last.operands[value.index + 1])


_OF_OPERATION: dict[str, Callable[[ValueRanges, Operation, Value], Bounds]] = {
    "arith.constant": ValueRanges._of_constant,
    "tt.make_range": ValueRanges._of_range,
    "tt.get_program_id": ValueRanges._of_program,
    "tt.get_num_programs": ValueRanges._of_program,
    "tt.addptr": ValueRanges._of_pointer,
    "arith.select": ValueRanges._of_select,
    "arith.extui": ValueRanges._of_unsigned,
    "arith.trunci": ValueRanges._of_first_operand,
    "math.absi": ValueRanges._of_absolute,
    "tt.load": ValueRanges._of_load,
    "tt.reduce": ValueRanges._of_reduction,
    "tt.scan": ValueRanges._of_reduction,
    "tt.histogram": ValueRanges._of_histogram,
    "scf.for": ValueRanges._of_loop,
    "scf.if": ValueRanges._of_condition,
    "scf.while": ValueRanges._of_while,
    "arith.cmpi": ValueRanges._of_comparison,
    "tt.make_tensor_descriptor": ValueRanges._of_first_operand,
}
"""How each operation bounds its results, besides arithmetic and those that pass values on."""


def _any_of(sides: list[Bounds]) -> Bounds:
    """The bounds of a value that is one of several."""
    interval = sides[0].interval
    for side in sides[1:]:
        interval = interval.union(side.interval)
    return joined(sides, interval)
