"""The work of one program of a launch as a tree of loops, as an IR says it."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class IrRegion:
    """One iteration of a loop of one program, without inner loops; the whole function has 1 trip.

    `trips` is None if the IR and the arguments do not say it.
    """

    trips: float | None = 1.0
    loaded_bytes: float = 0.0
    stored_bytes: float = 0.0
    atomics: float = 0.0
    """Elements that atomics add."""
    flop: float = 0.0
    dtype: str = ""
    """Of the first product."""
    loops: list["IrRegion"] = field(default_factory=list)

    @property
    def own_bytes(self) -> float:
        return self.loaded_bytes + self.stored_bytes

    def walk(self) -> Iterator["IrRegion"]:
        yield self
        for loop in self.loops:
            yield from loop.walk()

    def total(self, name: str, unknown_trips: float) -> float:
        """Add up a quantity over all iterations of inner loops."""
        amount: float = getattr(self, name)
        for loop in self.loops:
            trips = unknown_trips if loop.trips is None else loop.trips
            amount += trips * loop.total(name, unknown_trips)
        return amount
