"""One kernel at one shape, dtype and direction."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_ITEMSIZE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint8": 1,
    "int8": 1,
    "int32": 4,
    "int64": 8,
}


class SpecError(ValueError):
    """A benchmark file declares something that cannot be measured."""


class UnsupportedError(NotImplementedError):
    """Raised by an implementation that cannot run a case here: outcome `unsupported`, which is not
    a failure.

    The message names what is missing, for example `needs a GPU of compute capability 8.9 or newer`.
    """


class Direction(StrEnum):
    FWD = "fwd"
    BWD = "bwd"


@dataclass(frozen=True)
class Case:
    """One kernel at one shape, dtype and direction.

    `case["n_rows"]` is a dimension of its shape, and `case.choice("routing")` a word among its
    dimensions.
    """

    kernel: str
    shape: tuple[tuple[str, int | str], ...]
    dtype: str
    direction: Direction = Direction.FWD
    tags: frozenset[str] = field(default=frozenset(), compare=False)
    """Words for selection, such as `quick` or `70b`; not part of its identity."""
    salt: str = field(default="", compare=False)
    """Changes the seed, for inputs that nobody can predict; not part of its identity."""

    def __getitem__(self, dimension: str) -> int:
        length = self._value(dimension)
        if isinstance(length, str):
            raise SpecError(
                f"{self.id}: {dimension} is the word {length!r}; read it with "
                f"case.choice({dimension!r})"
            )
        return length

    def choice(self, name: str) -> str:
        """A word of the shape, for example `zipf` from `routing=zipf`."""
        value = self._value(name)
        if not isinstance(value, str):
            raise SpecError(f"{self.id}: {name} is the length {value}; read it with case[{name!r}]")
        return value

    def _value(self, name: str) -> int | str:
        for dimension, value in self.shape:
            if dimension == name:
                return value
        raise SpecError(
            f"{self.id}: no dimension {name!r}; the shape has "
            f"{', '.join(dimension for dimension, _ in self.shape)}"
        )

    @property
    def id(self) -> str:
        """Key of the case's series; independent of order and display name."""
        shape = ",".join(f"{name}={length}" for name, length in self.shape)
        return f"{self.kernel}/{shape}/{self.dtype}/{self.direction}"

    @property
    def itemsize(self) -> int:
        """Bytes per element of the case's dtype."""
        return _ITEMSIZE_BYTES[self.dtype]

    @property
    def is_backward(self) -> bool:
        return self.direction is Direction.BWD

    @property
    def seed(self) -> int:
        """Seed of the inputs, equal at every commit unless the case is salted."""
        return int.from_bytes(hashlib.sha256(f"{self.id}{self.salt}".encode()).digest()[:6], "big")


def cases(
    *,
    shapes: Sequence[Mapping[str, int | str]],
    dtypes: Sequence[str] = ("float32",),
    directions: Sequence[str] = ("fwd",),
    tags: Sequence[str] = (),
) -> list[Case]:
    """Every combination of shape, dtype and direction, nested in this order.

    Args:
        shapes: Lengths by dimension, or words for kinds of case, for example `{"T": 512, "routing":
            "zipf"}`.
        dtypes: Of the main operand.
        directions: `fwd`, `bwd` or both.
        tags: Words to select them by, for example `quick`.

    Raises:
        SpecError: an unknown dtype or direction, a dimension that is neither an integer >= 0 nor a
        word, or an
            invalid tag.
    """
    for tag in tags:
        if not _WORD.fullmatch(tag):
            raise SpecError(f"tag {tag!r}: use letters, digits, '_', '.' and '-'")
    for dtype in dtypes:
        if dtype not in _ITEMSIZE_BYTES:
            raise SpecError(
                f"dtype {dtype!r} is not known; choose from {', '.join(_ITEMSIZE_BYTES)}"
            )
    for direction in directions:
        if direction not in {"fwd", "bwd"}:
            raise SpecError(f"direction {direction!r} is not known; choose 'fwd' or 'bwd'")
    for shape in shapes:
        for name, length in shape.items():
            if isinstance(length, str) and _WORD.fullmatch(length):
                continue
            # In Python, True is an integer.
            if not isinstance(length, int) or isinstance(length, bool) or length < 0:
                raise SpecError(f"dimension {name}={length!r}: use an integer >= 0, or a word")
    return [
        Case(
            # The spec that gets the cases writes its name into them.
            kernel="",
            shape=tuple(shape.items()),
            dtype=dtype,
            direction=Direction(direction),
            tags=frozenset(tags),
        )
        for shape, dtype, direction in product(shapes, dtypes, directions)
    ]
