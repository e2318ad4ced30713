"""The work of one program of a launch as a tree of loops, as an IR says it."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from roofwatch.collector.compile.cycles.sectors import Strides, sector_bytes

_USUAL_STEP = 64.0
"""Of a loop over an unknown length: with this step, it has as many trips as is assumed."""


@dataclass(frozen=True)
class TileAccess:
    """One load or store of a tile in global memory."""

    tensor: str
    """The argument that its pointers come from."""
    lengths: tuple[int, ...]
    strides: Strides
    element_bytes: float
    requested_bytes: float
    """Of the elements that the mask lets through."""

    @property
    def masked_share(self) -> float:
        """Requested elements over those of the tile."""
        return self.requested_bytes / (math.prod(self.lengths) * self.element_bytes)


@dataclass(frozen=True)
class Gaps:
    """Bytes that are moved without being asked for, because memory is moved in sectors."""

    least: float = 0.0
    most: float = 0.0
    """If elements whose distance is not known lie in different sectors."""


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
    accesses: list[TileAccess] = field(default_factory=list)
    """Of the loads and stores, those of a tile of pointers."""
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

    def gaps(self, sector_size: int) -> Gaps:
        """Bound the bytes beside those asked for, of one iteration without inner loops."""
        by_address: defaultdict[tuple[str, Strides], list[TileAccess]] = defaultdict(list)
        for access in self.accesses:
            by_address[access.tensor, access.strides].append(access)
        least = 0.0
        most = 0.0
        for accesses in by_address.values():
            # what one access leaves out of a sector, such as every second element, others may use
            requested_bytes = sum(access.requested_bytes for access in accesses)
            largest = max(accesses, key=lambda access: access.requested_bytes)
            bounds = sector_bytes(
                largest.lengths,
                largest.strides,
                element_bytes=largest.element_bytes,
                sector_size=sector_size,
            )
            share = largest.masked_share
            least += max(0.0, share * bounds[0] - requested_bytes)
            most += max(0.0, share * bounds[1] - requested_bytes)
        return Gaps(least, most)

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
