"""How far apart the elements of a tile of offsets or pointers are, along each of its axes.

An offset that a kernel loads, or that is no sum of products, has no known stride.
"""

import re
from collections.abc import Callable

from roofwatch.collector.compile.bounds import Ranges
from roofwatch.collector.compile.cycles.sectors import Strides
from roofwatch.collector.compile.ir import Operation, Value

_SAME_STRIDES = frozenset(
    {
        "arith.extsi",
        "arith.extui",
        "arith.trunci",
        "arith.index_cast",
        "tt.bitcast",
        "ttg.convert_layout",
        "tt.ptr_to_int",
        "tt.int_to_ptr",
    }
)
_SUMS = frozenset({"arith.addi", "tt.addptr"})
_AXIS = re.compile(r"axis = (\d+)")
_ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")


class TileStrides:
    """Follows the strides of a function's values, in elements."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._known: dict[Value, Strides] = {}
        self._carried: dict[Value, Strides] = {}
        """Values of loops: assumed while an iteration is followed, unknown if it changes them."""

    def of(self, value: Value) -> Strides:
        """Return one stride for each axis of a value; a scalar has no axis."""
        if value not in self._known:
            # until it is computed: a loop may make a value of itself
            self._known[value] = _unknown(value)
            self._known[value] = self._computed(value)
        return self._known[value]

    def _computed(self, value: Value) -> Strides:
        if not value.shape:
            return ()
        operation = value.operation
        if operation is None:
            return self._of_carried(value)
        if operation.name in _SAME_STRIDES:
            return self.of(operation.operands[0])
        if operation.name in _SUMS:
            return self._sum(value, sign=1)
        compute = _OF_OPERATION.get(operation.name)
        if compute is not None:
            return compute(self, operation, value)
        # whatever is computed from equal elements has equal elements
        if operation.operands and all(map(self._is_uniform, operation.operands)):
            return _uniform(value)
        return _unknown(value)

    def _is_uniform(self, value: Value) -> bool:
        """Whether all elements are equal."""
        return all(stride == 0 for stride in self.of(value))

    def _constant(self, value: Value) -> int | None:
        """Return the one number that all elements of a value are; None if it is not known."""
        bounds = self._ranges.of(value)
        if bounds.unknown is not None or not bounds.interval.is_one:
            return None
        return bounds.interval.low

    def _of_carried(self, value: Value) -> Strides:
        """Strides of what a loop hands from one iteration to the next, if each keeps them."""
        block = value.block
        if block is None or not value.index:
            return _unknown(value)
        loop = block.parent
        if loop is None or loop.name != "scf.for":
            return _unknown(value)
        # operands are start, stop, step and first values; argument 0 is the counter
        first = self.of(loop.operands[value.index + 2])
        last = loop.regions[0][-1].last
        if last is None:
            return _unknown(value)
        self._known[value] = first
        self._carried[value] = first
        if self.of(last.operands[value.index - 1]) == first:
            del self._carried[value]
            return first
        self._carried[value] = _unknown(value)
        # what was computed from the wrong strides is forgotten
        self._known = dict(self._carried)
        return _unknown(value)

    # --- operations

    def _of_zero(self, _operation: Operation, value: Value) -> Strides:
        return _uniform(value)

    def _of_range(self, _operation: Operation, _value: Value) -> Strides:
        return (1,)

    def _of_constant(self, operation: Operation, value: Value) -> Strides:
        # `dense<[1, 2]>` lists elements, `dense<1>` has one for all
        if "dense<[" in operation.text or 'dense<"' in operation.text:
            return _unknown(value)
        return _uniform(value)

    def _of_expansion(self, operation: Operation, value: Value) -> Strides:
        axis = _AXIS.search(operation.text)
        if axis is None:
            return _unknown(value)
        strides = list(self.of(operation.operands[0]))
        strides.insert(int(axis[1]), 0)
        return tuple(strides)

    def _of_broadcast(self, operation: Operation, _value: Value) -> Strides:
        source = operation.operands[0]
        strides: list[int | None] = []
        for length, stride in zip(source.shape, self.of(source), strict=True):
            # an axis of one element is repeated
            if length == 1:
                strides.append(0)
            else:
                strides.append(stride)
        return tuple(strides)

    def _of_transposition(self, operation: Operation, value: Value) -> Strides:
        order = _ORDER.search(operation.text)
        if order is None:
            return _unknown(value)
        axes = [int(axis) for axis in order[1].split(",")]
        strides = self.of(operation.operands[0])
        return tuple(strides[axis] for axis in axes)

    def _of_difference(self, _operation: Operation, value: Value) -> Strides:
        return self._sum(value, sign=-1)

    def _sum(self, value: Value, sign: int) -> Strides:
        assert value.operation is not None
        first, second = value.operation.operands[:2]
        strides: list[int | None] = []
        pairs = zip(self.of(first), self.of(second), strict=True)
        for first_stride, second_stride in pairs:
            if first_stride is None or second_stride is None:
                strides.append(None)
            else:
                strides.append(first_stride + sign * second_stride)
        return tuple(strides)

    def _of_product(self, operation: Operation, value: Value) -> Strides:
        first, second = operation.operands[:2]
        if self._is_uniform(first):
            first, second = second, first
        if not self._is_uniform(second):
            return _unknown(value)
        return self._scaled(first, self._constant(second))

    def _of_shift(self, operation: Operation, _value: Value) -> Strides:
        shifted, distance = operation.operands[:2]
        bit_count = self._constant(distance)
        if bit_count is None or not 0 <= bit_count < 64:
            return self._scaled(shifted, None)
        return self._scaled(shifted, 2**bit_count)

    def _scaled(self, value: Value, factor: int | None) -> Strides:
        strides: list[int | None] = []
        for stride in self.of(value):
            if stride == 0:
                strides.append(0)
            elif stride is None or factor is None:
                strides.append(None)
            else:
                strides.append(stride * factor)
        return tuple(strides)

    def _of_remainder(self, operation: Operation, value: Value) -> Strides:
        """A remainder keeps the strides where it wraps around at most once in a tile."""
        dividend, divisor = operation.operands[:2]
        period = self._constant(divisor)
        strides: list[int | None] = []
        for length, stride in zip(value.shape, self.of(dividend), strict=True):
            if stride == 0:
                strides.append(0)
            elif stride is None or period is None:
                strides.append(None)
            elif abs(stride) * length <= abs(period):
                strides.append(stride)
            else:
                strides.append(None)
        return tuple(strides)

    def _of_quotient(self, operation: Operation, value: Value) -> Strides:
        """A quotient is equal for all elements where it changes at most once in a tile."""
        dividend, divisor = operation.operands[:2]
        period = self._constant(divisor)
        strides: list[int | None] = []
        for length, stride in zip(value.shape, self.of(dividend), strict=True):
            if stride == 0:
                strides.append(0)
            elif stride is None or not period:
                strides.append(None)
            elif abs(stride) * length <= abs(period):
                strides.append(0)
            elif stride % period == 0:
                strides.append(stride // period)
            else:
                strides.append(None)
        return tuple(strides)

    def _of_limit(self, operation: Operation, value: Value) -> Strides:
        first, second = operation.operands[:2]
        if self._is_uniform(first):
            return self.of(second)
        if self._is_uniform(second):
            return self.of(first)
        return _unknown(value)

    def _of_select(self, operation: Operation, value: Value) -> Strides:
        """The strides of both choices; those of one if the other is a single element."""
        _, chosen, otherwise = operation.operands[:3]
        if self.of(chosen) == self.of(otherwise) or self._is_uniform(otherwise):
            return self.of(chosen)
        if self._is_uniform(chosen):
            return self.of(otherwise)
        return _unknown(value)

    def _of_load(self, operation: Operation, _value: Value) -> Strides:
        """Loaded offsets are equal where their addresses are, and unknown elsewhere."""
        addresses = self.of(operation.operands[0])
        return tuple(0 if stride == 0 else None for stride in addresses)

    def _of_loop(self, operation: Operation, value: Value) -> Strides:
        body = operation.regions[0][0]
        # argument 0 is the counter
        return self.of(body.arguments[value.index + 1])

    def _of_condition(self, operation: Operation, value: Value) -> Strides:
        sides: list[Strides] = []
        for region in operation.regions:
            last = region[-1].last
            if last is not None and last.name == "scf.yield":
                sides.append(self.of(last.operands[value.index]))
        if sides and all(side == sides[0] for side in sides):
            return sides[0]
        return _unknown(value)


def _unknown(value: Value) -> Strides:
    return (None,) * len(value.shape)


def _uniform(value: Value) -> Strides:
    return (0,) * len(value.shape)


_OF_OPERATION: dict[str, Callable[[TileStrides, Operation, Value], Strides]] = {
    "tt.make_range": TileStrides._of_range,
    "tt.splat": TileStrides._of_zero,
    "arith.constant": TileStrides._of_constant,
    "tt.expand_dims": TileStrides._of_expansion,
    "tt.broadcast": TileStrides._of_broadcast,
    "tt.trans": TileStrides._of_transposition,
    "arith.subi": TileStrides._of_difference,
    "arith.muli": TileStrides._of_product,
    "arith.shli": TileStrides._of_shift,
    "arith.remsi": TileStrides._of_remainder,
    "arith.remui": TileStrides._of_remainder,
    "arith.divsi": TileStrides._of_quotient,
    "arith.divui": TileStrides._of_quotient,
    "arith.minsi": TileStrides._of_limit,
    "arith.maxsi": TileStrides._of_limit,
    "arith.minui": TileStrides._of_limit,
    "arith.maxui": TileStrides._of_limit,
    "arith.select": TileStrides._of_select,
    "tt.load": TileStrides._of_load,
    "scf.for": TileStrides._of_loop,
    "scf.if": TileStrides._of_condition,
}
"""How an operation makes its strides of its operands'."""
