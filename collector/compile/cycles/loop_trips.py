"""How often the loops of machine code run, from the loops of the IR that they were made of.

Loops are matched in their order, by what they do: products, loads, stores. A compiler unrolls,
flattens and splits loops, so the trips of a loop are the work of the IR's loops over the work of
one iteration, where both say how much work that is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from roofwatch.collector.compile.cycles.costs import Work
from roofwatch.collector.compile.cycles.ir_region import IrRegion
from roofwatch.collector.compile.cycles.regions import Region

_MIN_UNROLLED = 1.6
"""Work of an iteration, relative to the IR's, from which on a loop counts as unrolled."""
_MAX_UNROLLED = 64.0


@dataclass
class CountedRegion:
    """A region with its number of iterations per entry."""

    region: Region
    trips: float = 1.0
    is_known: bool = True
    guarded_share: float | None = None
    """How often blocks behind conditions run per iteration, if the IR says it."""
    loops: list["CountedRegion"] = field(default_factory=list)

    @property
    def work(self) -> Work:
        if self.guarded_share is None:
            return self.region.work
        work = Work()
        work.add(self.region.always)
        work.add(self.region.guarded, self.guarded_share)
        return work


@dataclass(frozen=True)
class LoopLaunch:
    """What the trips of loops depend on besides their code."""

    threads: int
    """In one block."""
    warps: int
    """In one block."""
    unknown_trips: float
    """Trips that a loop gets if nothing says how often it runs."""


@dataclass(frozen=True)
class Traits:
    """What a loop does, whatever the compiler made of it."""

    has_products: bool
    has_accesses: bool


def count_trips(region: Region, ir: IrRegion | None, launch: LoopLaunch) -> CountedRegion:
    """Give each loop of a region its trips, from the IR's region that it was made of."""
    counted = CountedRegion(region)
    ir_loops = []
    if ir is not None:
        ir_loops = ir.loops
    of_source: dict[int, list[CountedRegion]] = {}
    for loop, source in _aligned(region.loops, ir_loops):
        counted_loop = _count(loop, source, launch)
        counted.loops.append(counted_loop)
        # a loop without a source shares its trips with no other
        of_source.setdefault(id(source or loop), []).append(counted_loop)
    # producers and consumers each have a loop of their own, with all trips
    if not region.is_specialised:
        for parts in of_source.values():
            _share_trips(parts)
    return counted


def _share_trips(parts: Sequence[CountedRegion]) -> None:
    """Divide trips among the loops that a compiler made of one loop."""
    if len(parts) == 1:
        return
    trips = [part.trips for part in parts]
    fewest = min(trips)
    most = max(trips)
    for part in parts:
        # of an unrolled loop and its remainder, the remainder runs half of the factor on average
        if part.trips >= _MIN_UNROLLED * fewest:
            factor = most / max(fewest, 1.0)
            part.trips = (factor - 1) / 2
        elif most < _MIN_UNROLLED * fewest:
            part.trips /= len(parts)


def _count(loop: Region, source: IrRegion | None, launch: LoopLaunch) -> CountedRegion:
    """Trips of a loop in machine code, by the loop of the IR that it comes from."""
    # the machine code has a loop that the IR lacks, such as one that a library function brings
    if source is None:
        inner = count_trips(loop, None, launch)
        inner.trips = 1.0
        inner.is_known = False
        return inner
    trips = source.trips_if_unknown(launch.unknown_trips)
    counted = count_trips(loop, source, launch)
    counted.is_known = all(nested.trips is not None for nested in source.walk())
    counted.trips = trips
    # the loops inside say by themselves how often they run
    if loop.loops and source.loops:
        return counted
    work_ratio = _work_ratio(loop, source, launch)
    if work_ratio is None:
        return counted
    counted.trips = trips * work_ratio
    # a flattened loop does the outer loop's part behind a condition, once per outer iteration
    if source.loops and work_ratio > 1.0:
        counted.guarded_share = 1 / work_ratio
    return counted


def _work_ratio(loop: Region, source: IrRegion, launch: LoopLaunch) -> float | None:
    """Return the work of one iteration of the IR over that of one iteration of the machine code;
    None if they do not differ, or the machine code does not say.
    """
    work = loop.work
    flop = (
        source.total("flop", launch.unknown_trips),
        work.tensor_flop * launch.warps,
    )
    accessed_bytes = (
        source.total("own_bytes", launch.unknown_trips),
        work.access_bytes * launch.threads,
    )
    for in_ir, in_code in (flop, accessed_bytes):
        if in_ir <= 0 or in_code <= 0:
            continue
        ratio = in_ir / in_code
        is_unrolled = 1 / _MAX_UNROLLED <= ratio <= 1 / _MIN_UNROLLED
        # more work than an iteration of the code does: inner loops were flattened into it
        is_flattened = bool(source.loops) and ratio >= _MIN_UNROLLED
        if is_unrolled or is_flattened:
            return ratio
        return None
    return None


# --- matching


_ScoredMatch = tuple[float, tuple[int | None, ...]]
"""Score, and the number of the source of each loop; None without one."""


def _aligned(
    loops: Sequence[Region], sources: Sequence[IrRegion]
) -> list[tuple[Region, IrRegion | None]]:
    """Match loops in order for the most agreement; several loops may come from one of the IR."""
    if not sources:
        return [(loop, None) for loop in loops]

    @cache
    def solve(index: int, first: int) -> _ScoredMatch:
        """Best score of the loops from `index` on, with sources from `first` on."""
        if index == len(loops):
            return 0.0, ()
        skipped, rest = solve(index + 1, first)
        choice: _ScoredMatch = (skipped, (None, *rest))
        for number in range(first, len(sources)):
            # the remainder of an unrolled loop has the same source as the loop
            for following, bonus in ((number + 1, 0.5), (number, 0.0)):
                later, rest = solve(index + 1, following)
                score = later + bonus + _agreement(loops[index], sources[number])
                if score > choice[0]:
                    choice = (score, (number, *rest))
        return choice

    _, chosen = solve(0, 0)
    aligned: list[tuple[Region, IrRegion | None]] = []
    for loop, number in zip(loops, chosen, strict=True):
        source = None
        if number is not None:
            source = sources[number]
        aligned.append((loop, source))
    return aligned


def _agreement(loop: Region, source: IrRegion) -> float:
    """Score how well a loop fits its possible source.

    Products say most: a compiler never adds them. Accesses may turn into others, and a nested loop
    may be flattened or unrolled.
    """
    of_loop = _traits_of_code(loop)
    of_source = _traits_of_ir(source)
    products = -3.0
    if of_loop.has_products == of_source.has_products:
        products = 2.0
    accesses = -0.5
    if of_loop.has_accesses == of_source.has_accesses:
        accesses = 1.0
    nesting = 0.0
    if bool(loop.loops) == bool(source.loops):
        nesting = 0.5
    return products + accesses + nesting


def _traits_of_code(loop: Region) -> Traits:
    """What a loop in machine code does, to find its loop in the IR."""
    works = [region.work for region in loop.walk()]
    return Traits(
        has_products=any(work.tensor_flop or work.has_unknown_products for work in works),
        has_accesses=any(work.access_bytes or work.async_copies for work in works),
    )


def _traits_of_ir(source: IrRegion) -> Traits:
    """What a loop in the IR does."""
    regions = list(source.walk())
    return Traits(
        has_products=any(region.flop for region in regions),
        has_accesses=any(region.own_bytes for region in regions),
    )
