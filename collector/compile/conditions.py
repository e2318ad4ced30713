"""Limits of values where a condition holds: masks, `if`, assumptions."""

from roofwatch.collector.compile.bounds import Constraints, Ranges
from roofwatch.collector.compile.interval import UNBOUNDED, Interval
from roofwatch.collector.compile.ir import Operation, Value
from roofwatch.collector.compile.shared_axes import axis_of, can_be_limited, expanded_along

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


def implied(
    ranges: Ranges,
    condition: Value,
    *,
    is_true: bool = True,
    expansion: str = "",
) -> Constraints:
    """Return the limits of other values where a condition has a value.

    `expansion` says along which axis the condition was expanded.
    """
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
        if operation.name == "tt.expand_dims":
            expansion = axis_of(operation)
        return implied(
            ranges=ranges,
            condition=operation.operands[0],
            is_true=is_true,
            expansion=expansion,
        )
    # a true `and` has two true parts, a false `or` two false ones
    joining_operation = "arith.ori"
    if is_true:
        joining_operation = "arith.andi"
    if operation.name == joining_operation:
        limits: dict[Value, Interval] = {}
        for part in operation.operands[:2]:
            of_part = implied(
                ranges=ranges,
                condition=part,
                is_true=is_true,
                expansion=expansion,
            )
            for value, interval in of_part.items():
                if value in limits:
                    interval = interval.clamped(limits[value])
                limits[value] = interval
        return limits
    if operation.name == "arith.cmpi":
        return _compared(
            ranges=ranges,
            operation=operation,
            expansion=expansion,
            is_true=is_true,
        )
    return {}


def _compared(
    ranges: Ranges,
    operation: Operation,
    expansion: str,
    *,
    is_true: bool,
) -> Constraints:
    """Limits that a comparison of integers sets to both of its sides."""
    predicate = operation.text.strip().partition(",")[0]
    if not is_true:
        predicate = _NEGATED.get(predicate, predicate)
    left_operand, right_operand = operation.operands[:2]
    # an unsigned comparison is a signed one of numbers that are not negative
    if predicate.startswith("u"):
        left_interval = ranges.of(left_operand).interval
        right_interval = ranges.of(right_operand).interval
        if left_interval.low < 0 or right_interval.low < 0:
            return {}
        predicate = f"s{predicate[1:]}"
    if predicate in {"sgt", "sge"}:
        left_operand, right_operand = right_operand, left_operand
        predicate = {"sgt": "slt", "sge": "sle"}[predicate]
    lower = ranges.of(left_operand).interval
    upper = ranges.of(right_operand).interval
    limits: dict[Value, Interval] = {}

    def limit(value: Value, interval: Interval) -> None:
        _limit(ranges, limits, value, interval)
        if not can_be_limited(ranges.axes, value):
            for expanded in expanded_along(ranges.axes, value, expansion):
                _limit(
                    ranges=ranges,
                    limits=limits,
                    value=expanded,
                    interval=interval,
                )

    if predicate in {"slt", "sle"}:
        gap = 1 if predicate == "slt" else 0
        limit(left_operand, Interval(UNBOUNDED.low, upper.high - gap))
        limit(right_operand, Interval(lower.low + gap, UNBOUNDED.high))
    elif predicate == "eq":
        limit(left_operand, upper)
        limit(right_operand, lower)
    return limits


def _limit(
    ranges: Ranges,
    limits: dict[Value, Interval],
    value: Value,
    interval: Interval,
) -> None:
    """Limit a value, and those that it is a copy of."""
    while can_be_limited(ranges.axes, value):
        if value in limits:
            limits[value] = interval.clamped(limits[value])
        else:
            limits[value] = interval
        operation = value.operation
        if operation is None or operation.name not in {
            "tt.splat",
            "tt.broadcast",
            "tt.expand_dims",
            "arith.extsi",
        }:
            return
        value = operation.operands[0]
