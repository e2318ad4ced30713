"""A Triton function as operations, values and blocks."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SIZE = re.compile(r"tensor<((?:\d+x)*)")


@dataclass(eq=False)
class Value:
    name: str
    type: str
    operation: "Operation | None" = None
    """Which makes it; None for arguments of blocks and of the function."""
    index: int = 0
    block: "IrBlock | None" = None
    """The block that it is an argument of."""

    @property
    def element(self) -> str:
        """`i32` of `tensor<128xi32>`, `ptr` of a pointer."""
        if "!tt.ptr" in self.type:
            return "ptr"
        shape_and_element = self.type.removeprefix("tensor<").rstrip(">")
        return shape_and_element.rpartition("x")[2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of a tensor; a scalar has none."""
        match = _SIZE.match(self.type)
        if match is None:
            return ()
        # The text is `128x64x`: the piece after the last x is empty.
        return tuple(int(length) for length in match[1].split("x") if length)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(eq=False)
class IrBlock:
    arguments: list[Value] = field(default_factory=list)
    operations: list["Operation"] = field(default_factory=list)
    parent: "Operation | None" = None
    incoming: list["Branch"] = field(default_factory=list)
    """Branches that lead here, outside of structured loops and conditions."""

    @property
    def last(self) -> "Operation | None":
        if self.operations:
            return self.operations[-1]
        return None


@dataclass(eq=False)
class Operation:
    name: str
    operands: list[Value]
    text: str
    """What follows the name."""
    results: list[Value] = field(default_factory=list)
    regions: list[list[IrBlock]] = field(default_factory=list)
    block: IrBlock | None = None
    location: str = ""


@dataclass(frozen=True, eq=False)
class Branch:
    operation: Operation
    position: int
    """0 if the condition is true, 1 if it is false."""
    values: list[Value]


@dataclass(eq=False)
class Function:
    name: str
    arguments: list[Value]
    body: list[IrBlock]
    files: dict[str, tuple[str, int]]
    """Source file and line by location."""

    def operations(self) -> Iterator[Operation]:
        yield from _walk(self.body)

    def source_line(self, operation: Operation) -> tuple[str, int] | None:
        return self.files.get(operation.location)


def _walk(blocks: list[IrBlock]) -> Iterator[Operation]:
    for block in blocks:
        for operation in block.operations:
            yield operation
            for region in operation.regions:
                yield from _walk(region)
