"""Finds pointer offsets of a Triton function that overflow 32-bit integers in one launch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.collector.compile.bounds import Bounds, Constraints, Launch, TooComplexError
from roofwatch.collector.compile.conditions import implied
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.ir import Function, IrBlock, Operation, Value
from roofwatch.collector.compile.pointers import base_of
from roofwatch.collector.compile.shared_axes import axes_used_by
from roofwatch.collector.compile.value_ranges import ValueRanges

_POINTER_OPERAND = {
    "tt.load": 0,
    "tt.store": 0,
    "tt.atomic_rmw": 0,
    "tt.atomic_cas": 0,
    "tt.descriptor_load": 0,
    "tt.descriptor_store": 0,
    "tt.descriptor_gather": 0,
    "tt.descriptor_scatter": 0,
    "tt.descriptor_reduce": 0,
}
_MASK_OPERAND = {
    "tt.load": 1,
    "tt.store": 2,
    "tt.atomic_rmw": 2,
}
_ASSUME = "llvm.intr.assume"
_RECURSION_LIMIT = 20_000


class Finding(StrEnum):
    FITS = "fits"
    OVERFLOWS = "overflows"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Access:
    """What is known about the offsets of one load, store or atomic operation."""

    pointer: str
    """The argument that the pointer comes from."""
    kind: str
    """`load`, `store`, `atomic_rmw`, …"""
    finding: Finding
    reason: str = ""
    """What overflows and how far, or what is not known."""
    line: tuple[str, int] | None = None
    """File and line of the operation that overflows."""


def check_accesses(function: Function, launch: Launch) -> list[Access]:
    """Bound the offsets of each access of memory under one launch."""
    with _deep_recursion():
        whole = ValueRanges(function, launch)
        assumed: dict[Value, Interval] = {}
        # what the author asserts holds everywhere
        for operation in function.operations():
            if operation.name == _ASSUME and operation.operands:
                assumed.update(implied(whole, operation.operands[0]))
        accesses: list[Access] = []
        for operation in function.operations():
            if operation.name in _POINTER_OPERAND:
                addresses = _addresses(operation)
                axes = axes_used_by(addresses)
                ranges = ValueRanges(
                    function=function,
                    launch=launch,
                    constraints=assumed,
                    axes=axes,
                )
                accesses.append(_check(function, operation, addresses, ranges))
        return accesses


def _addresses(operation: Operation) -> list[Value]:
    """The pointer of an access, or a descriptor with its indices."""
    addresses = [operation.operands[_POINTER_OPERAND[operation.name]]]
    if operation.name.startswith("tt.descriptor"):
        addresses += [value for value in operation.operands if value.element in {"i32", "i64"}]
    return addresses


def _check(
    function: Function,
    operation: Operation,
    addresses: list[Value],
    ranges: ValueRanges,
) -> Access:
    """Judge the addresses of one load or store under the conditions around it."""
    base = base_of(addresses[0])
    # an address that was loaded has no tensor to stay within
    if base is None:
        name = "a pointer from memory"
    else:
        name = base.name.removeprefix("%")
    kind = operation.name.removeprefix("tt.")
    try:
        constrained = ranges.under(_conditions(operation, ranges))
        bounds = [constrained.of(value) for value in addresses]
    except TooComplexError:
        return Access(
            pointer=name,
            kind=kind,
            finding=Finding.UNKNOWN,
            reason="the function is too complex to analyse",
        )
    finding, reason, line = _judged(function, bounds)
    return Access(
        pointer=name,
        kind=kind,
        finding=finding,
        reason=reason,
        line=line,
    )


def _judged(
    function: Function, bounds: list[Bounds]
) -> tuple[Finding, str, tuple[str, int] | None]:
    """What the bounds prove, with the reason and the line of the overflow."""
    for access_bounds in bounds:
        if access_bounds.wraps is not None:
            exact = access_bounds.wraps.exact
            if exact.high >= 2**31:
                reached = exact.high
            else:
                reached = exact.low
            line = function.source_line(access_bounds.wraps.operation)
            return Finding.OVERFLOWS, f"a 32-bit integer reaches {reached:,}", line
    for access_bounds in bounds:
        if access_bounds.doubt is not None:
            return Finding.UNKNOWN, access_bounds.doubt, None
    return Finding.FITS, "", None


def _conditions(operation: Operation, ranges: ValueRanges) -> Constraints:
    """Return the limits that a mask and the conditions around an access set."""
    limits: dict[Value, Interval] = {}

    def add(more: Constraints) -> None:
        for value, interval in more.items():
            if value in limits:
                limits[value] = interval.clamped(limits[value])
            else:
                limits[value] = interval

    position = _MASK_OPERAND.get(operation.name)
    if position is not None and len(operation.operands) > position:
        add(implied(ranges, operation.operands[position]))
    inner: Operation = operation
    while inner.block is not None:
        for condition, is_true in _entered_if(inner.block):
            add(implied(ranges, condition, is_true=is_true))
        # the outermost block is the function itself
        if inner.block.parent is None:
            break
        if inner.block.parent.name == "scf.if":
            is_true = inner.block in inner.block.parent.regions[0]
            add(implied(ranges, inner.block.parent.operands[0], is_true=is_true))
        inner = inner.block.parent
    return limits


def _entered_if(block: IrBlock) -> Iterator[tuple[Value, bool]]:
    """Yield the conditions of the branches that lead to a block in one way only."""
    while len(block.incoming) == 1:
        branch = block.incoming[0]
        if branch.operation.name == "cf.cond_br":
            yield branch.operation.operands[0], branch.position == 0
        if branch.operation.block is None or branch.operation.block is block:
            return
        block = branch.operation.block


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Unrolled loops make chains of thousands of operations."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
