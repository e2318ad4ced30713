"""The work of one program of a launch as a tree of loops, as an IR says it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

_USUAL_STEP = 64.0
"""Of a loop over an unknown length: with this step, it has as many trips as is assumed."""


@dataclass
class IrRegion:
    """One iteration of a loop of one program, without inner loops; the whole function has 1 trip.

    `trips` is None if the IR and the arguments do not say it.
    """

    trips: float | None = 1.0
    step: float = 1.0
    """How far an iteration gets in an unknown length, in elements; 1 if the IR does not say it."""
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

    @property
    def has_known_step(self) -> bool:
        return self.step > 1.0

    def trips_if_unknown(self, unknown_trips: float) -> float:
        """Return the trips, or what to assume for them: a wider step needs fewer."""
        if self.trips is not None:
            return self.trips
        if not self.has_known_step:
            return unknown_trips
        return unknown_trips * _USUAL_STEP / self.step

    def walk(self) -> Iterator["IrRegion"]:
        yield self
        for loop in self.loops:
            yield from loop.walk()

    def total(self, name: str, unknown_trips: float) -> float:
        """Add up a quantity over all iterations of inner loops."""
        amount: float = getattr(self, name)
        for loop in self.loops:
            trips = loop.trips_if_unknown(unknown_trips)
            amount += trips * loop.total(name, unknown_trips)
        return amount
