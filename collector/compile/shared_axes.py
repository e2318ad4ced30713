"""Which values a mask may limit where an access uses them.

A mask limits an element of an index only where the same element is used. An index that an access
uses for rows and for columns, or through a sum over its elements, is used at other elements too.
"""

import re
from collections.abc import Iterable

from roofwatch.collector.compile.ir import Operation, Value

_REARRANGING = frozenset(
    {
        "tt.reshape",
        "tt.trans",
        "tt.join",
        "tt.cat",
        "tt.split",
        "tt.gather",
        "tt.reduce",
        "tt.scan",
        "tt.histogram",
        "tt.unsplat",
    }
)
_AXIS = re.compile(r"axis = \d+")
_REARRANGED = "rearranged"
Axes = dict[Value, set[str]]
"""Along which axes the accesses expand a value, or that they rearrange its elements."""


def axes_used_by(addresses: Iterable[Value]) -> Axes:
    """Find the axes of every value that an address is computed from."""
    axes: Axes = {}
    seen: set[tuple[Value, str]] = set()
    waiting = [(address, "") for address in addresses]
    while waiting:
        value, label = waiting.pop()
        # values depend on each other in circles through loops
        if (value, label) in seen:
            continue
        seen.add((value, label))
        labels = axes.setdefault(value, set())
        if label:
            labels.add(label)
        waiting += [(source, _label_of(value, label)) for source in _sources(value)]
    return axes


def can_be_limited(axes: Axes, value: Value) -> bool:
    """Whether a mask on a value limits what an access computes from it."""
    if not value.type.startswith("tensor<"):
        return True
    labels = axes.get(value, set())
    return len(labels) <= 1 and _REARRANGED not in labels


def expanded_along(axes: Axes, value: Value, expansion: str) -> list[Value]:
    """Values that an access makes of another one by the same expansion."""
    expanded: list[Value] = []
    for candidate in axes:
        operation = candidate.operation
        if operation is None or operation.name != "tt.expand_dims":
            continue
        if operation.operands[0] is value and axis_of(operation) == expansion:
            expanded.append(candidate)
    return expanded


def axis_of(expansion: Operation) -> str:
    """The axis that a `tt.expand_dims` inserts."""
    axis = _AXIS.search(expansion.text)
    assert axis is not None, expansion.text
    return axis[0]


def is_inside(value: Value, loop: Operation) -> bool:
    """Whether a loop's body makes a value, which then differs from iteration to iteration."""
    if value.operation is None:
        block = value.block
    else:
        block = value.operation.block
    while block is not None:
        if block.parent is loop:
            return True
        if block.parent is None:
            block = None
        else:
            block = block.parent.block
    return False


def _label_of(value: Value, label: str) -> str:
    """The label of what an operation computes a value from."""
    operation = value.operation
    if operation is None:
        return label
    if operation.name in _REARRANGING or label == _REARRANGED:
        return _REARRANGED
    # only the innermost of nested expansions says where the elements of a source are
    if operation.name == "tt.expand_dims":
        return axis_of(operation)
    return label


def _sources(value: Value) -> list[Value]:
    """Values that decide what a value is."""
    operation = value.operation
    if operation is None:
        return _incoming(value)
    sources = list(operation.operands)
    for region in operation.regions:
        last = region[-1].last
        if last is not None:
            sources += last.operands
    return sources


def _incoming(value: Value) -> list[Value]:
    """What a block's argument gets from the operation around it, or from branches."""
    if value.block is None:
        return []
    parent = value.block.parent
    if parent is None:
        return [branch.values[value.index] for branch in value.block.incoming]
    return [*parent.operands, *(result for result in parent.results)]
