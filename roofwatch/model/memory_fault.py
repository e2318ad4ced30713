"""An access of a kernel that its operands do not allow, as found by Triton's interpreter."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Access = Literal["load", "store", "atomic"]

_VERBS = {"load": "read", "store": "wrote", "atomic": "updated"}


class MemoryFault(BaseModel):
    """An access out of bounds, or a race of two programs, at one place in the code."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    access: Access
    kernel: str
    """Name of the function that was launched."""
    file: str
    line: int
    """Of the access."""
    operand: str
    """Parameter of the kernel that the pointer came from."""
    offset: int
    """In elements, from the first element of the operand."""
    length: int
    """Elements from the first one to the end of the operand's storage."""
    program: tuple[int, int, int]
    """Program ID of the first such access."""
    other_program: tuple[int, int, int] | None = None
    """Program that stored another value to the same element; None if the access is out of
    bounds."""
    count: int = 1
    """Elements accessed in this way, over all programs."""

    @property
    def is_race(self) -> bool:
        return self.other_program is not None

    @property
    def message(self) -> str:
        location = f"{self.kernel}, {self.file}:{self.line}, program {_text(self.program)}"
        if self.count == 1:
            elements = "1 element"
        else:
            elements = f"{self.count} elements"
        if self.other_program is not None:
            return (
                f"race: programs {_text(self.other_program)} and {_text(self.program)} store "
                f"different values to element {self.offset} of `{self.operand}` without an atomic "
                f"({location}; {elements})"
            )
        side = "before the start" if self.offset < 0 else "past the end"
        return (
            f"{_VERBS[self.access]} {side} of `{self.operand}`: element {self.offset} of "
            f"{self.length} ({location}; {elements})"
        )


def _text(program: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, program))})"
