"""A cycle model of one launch: how long each part of the GPU is busy, and the time that follows.

Each pipe gives a lower bound. The time is their maximum, rounded where several are near it, or the
chain of waits of one block times the number of waves, if that is longer. Everything that the code
does not show (overlap, caches, latency, unknown trips) is an assumption; a list of such assumptions
gives an interval, and two versions of a kernel are compared under the same ones.

Sources: Williams, Waterman, Patterson, Roofline (2009); Volkov, Understanding Latency Hiding on
GPUs (2016), for the chain; Hong and Kim, An Analytical Model for a GPU Architecture (2009).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofwatch.collector.compile.cycles.costs import (
    ALU,
    DOUBLE,
    FMA,
    ISSUE,
    LOAD_STORE,
    SHARED,
    SPECIAL,
    TENSOR,
    Work,
)
from roofwatch.collector.compile.cycles.ir_region import IrRegion
from roofwatch.collector.compile.cycles.loop_trips import CountedRegion, LoopLaunch, count_trips
from roofwatch.collector.compile.cycles.rates import LAUNCH_NS, Rates
from roofwatch.collector.compile.cycles.regions import Region

DRAM = "memory"
L2 = "L2"
ATOMICS = "atomics"
WAITS = "waits"
_PIPES = (ISSUE, FMA, ALU, SPECIAL, DOUBLE, LOAD_STORE, SHARED)
_NS_PER_S = 1e9
_SYNC_OVERLAP = 0.25
"""Share of the shorter of arithmetic and synchronous products that a block alone does not hide."""
_SPILLS_PER_WAIT = 4.0
"""Loads of local memory that are on their way together."""
_FEW_WAVES = 4
"""Below, the last wave is as long as a full one; above, blocks start at different times."""


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the code does not show."""

    sharpness: float = 4.0
    """Exponent of the norm over bounds: infinite if everything overlaps."""
    reread: float = 1.0
    """Bytes from memory over the bytes of the operands, if the code asks for so many."""
    latency: float = 1.0
    """Relative to the table."""
    unknown_trips: float = 16.0
    keeps_sectors: bool = False
    """Whether a loop finds the rest of a sector in the L1 that an earlier iteration loaded."""
    is_scattered: bool = False
    """Whether elements whose distance is not known lie in different sectors."""


ASSUMPTIONS = (
    Assumptions(),
    Assumptions(sharpness=2.0),
    Assumptions(sharpness=8.0),
    Assumptions(reread=1.5),
    Assumptions(latency=0.6),
    Assumptions(latency=1.5),
    Assumptions(keeps_sectors=True),
    Assumptions(is_scattered=True),
)
"""The first one is the prediction; the others, one change each, its interval."""
UNKNOWN_TRIPS = (Assumptions(unknown_trips=2.0), Assumptions(unknown_trips=128.0))
"""Added if the trips of a loop are unknown."""


@dataclass(frozen=True, kw_only=True)
class LaunchedCode:
    """One compiled function and its launch."""

    region: Region
    ir: IrRegion | None
    rates: Rates
    grid: tuple[int, int, int]
    threads: int
    resident_blocks: int
    local_bytes: int
    """Per thread."""
    operand_bytes: int | None
    """Of all tensors among the arguments; None if they are not known."""

    @property
    def warps(self) -> int:
        return -(-self.threads // self.rates.warp_threads)

    @property
    def blocks(self) -> int:
        return max(1, math.prod(self.grid))

    @property
    def has_unknown_trips(self) -> bool:
        if self.ir is None:
            return bool(self.region.loops)
        return any(region.trips is None for region in self.ir.walk())

    @property
    def has_trips_of_tiles(self) -> bool:
        """Whether all loops with unknown trips say how far one iteration gets."""
        if self.ir is None:
            return False
        unknown = [region for region in self.ir.walk() if region.trips is None]
        return bool(unknown) and all(region.has_known_step for region in unknown)

    @property
    def has_unknown_strides(self) -> bool:
        """Whether sectors of some access depend on data."""
        if self.ir is None:
            return False
        gaps = [region.gaps(self.rates.sector_size) for region in self.ir.walk()]
        return any(bounds.most > bounds.least for bounds in gaps)

    @property
    def spills_past_l1(self) -> bool:
        resident = self.local_bytes * self.threads * max(self.resident_blocks, 1)
        return resident > self.rates.l1_size


@dataclass
class PredictedLaunch:
    """Of one launch under some assumptions."""

    time_ns: float
    bounds_ns: Mapping[str, float]
    instructions: float
    """Of all threads."""
    hot_instructions: float
    """The part in the loop that takes most of the issue slots."""
    requested_bytes: float
    sector_bytes: float
    """With what else lies in the sectors that these bytes are moved in."""
    atomics: float
    local_bytes: float


@dataclass
class _Totals:
    """Of one block."""

    work: Work = field(default_factory=Work)
    hottest: float = 0.0
    """Instructions of one warp in the loop with most of them."""


def predict(code: LaunchedCode, assumptions: Assumptions) -> PredictedLaunch:
    """Predict the time of one launch."""
    rates = code.rates
    launch = LoopLaunch(
        threads=code.threads,
        warps=code.warps,
        unknown_trips=assumptions.unknown_trips,
    )
    counted = count_trips(code.region, code.ir, launch)
    totals = _Totals()
    _add_up(counted=counted, entries=1.0, totals=totals)
    traffic = _traffic(code, totals.work, assumptions)
    clocks = _throughput(
        code=code,
        work=totals.work,
        traffic=traffic,
        assumptions=assumptions,
    )
    chain = _Chain(
        code=code,
        assumptions=assumptions,
        clocks_per_byte=_clocks_per_byte(code, traffic.requested, clocks),
    )
    spent = sum(count**assumptions.sharpness for count in clocks.values())
    longest = spent ** (1 / assumptions.sharpness)
    waits = chain.of(counted) * _waves(code)
    clocks[WAITS] = waits
    to_ns = _NS_PER_S / rates.clock_hz
    threads = code.blocks * code.threads
    atomics_per_block = _of_ir(
        code=code,
        name="atomics",
        assumptions=assumptions,
    )
    return PredictedLaunch(
        time_ns=max(longest, waits) * to_ns + LAUNCH_NS,
        bounds_ns={name: count * to_ns for name, count in clocks.items() if count > 0},
        instructions=totals.work.instructions * threads,
        hot_instructions=totals.hottest * threads,
        requested_bytes=traffic.requested,
        sector_bytes=traffic.through_l1,
        atomics=code.blocks * atomics_per_block,
        local_bytes=totals.work.local_bytes * threads,
    )


def _of_ir(code: LaunchedCode, name: str, assumptions: Assumptions) -> float:
    if code.ir is None:
        return 0.0
    return code.ir.total(name, assumptions.unknown_trips)


def _requested_bytes(code: LaunchedCode, work: Work, assumptions: Assumptions) -> float:
    """Bytes of all loads and stores of global memory."""
    loaded_bytes = _of_ir(
        code=code,
        name="loaded_bytes",
        assumptions=assumptions,
    )
    stored_bytes = _of_ir(
        code=code,
        name="stored_bytes",
        assumptions=assumptions,
    )
    bytes_per_block = loaded_bytes + stored_bytes
    # without the IR, every thread counts, although a warp may read one value
    if not bytes_per_block:
        bytes_per_block = work.access_bytes * code.threads
    return code.blocks * bytes_per_block


@dataclass(frozen=True)
class _Traffic:
    """Bytes of a launch, without local memory."""

    requested: float
    through_l1: float
    """In whole sectors."""
    from_l2: float
    """Without sectors that the L1 keeps."""


def _traffic(code: LaunchedCode, work: Work, assumptions: Assumptions) -> _Traffic:
    """Bytes that the threads ask for, and what the caches move for them."""
    requested = _requested_bytes(code, work, assumptions)
    through_l1 = requested
    from_l2 = requested
    if code.ir is not None:
        outside_loops = _gap_bytes(code, code.ir, assumptions)
        inside_loops = 0.0
        for loop in code.ir.loops:
            inside_loops += _gap_bytes_of_loop(code, loop, assumptions)
        through_l1 += code.blocks * (outside_loops + inside_loops)
        from_l2 += code.blocks * outside_loops
        if not assumptions.keeps_sectors:
            from_l2 += code.blocks * inside_loops
    return _Traffic(
        requested=requested,
        through_l1=through_l1,
        from_l2=from_l2,
    )


def _gap_bytes(code: LaunchedCode, region: IrRegion, assumptions: Assumptions) -> float:
    """Bytes of one iteration that are moved without being asked for."""
    gaps = region.gaps(code.rates.sector_size)
    return gaps.most if assumptions.is_scattered else gaps.least


def _gap_bytes_of_loop(code: LaunchedCode, loop: IrRegion, assumptions: Assumptions) -> float:
    """The same for all iterations of a loop, with the loops inside."""
    gap_bytes = _gap_bytes(code, loop, assumptions)
    for inner in loop.loops:
        gap_bytes += _gap_bytes_of_loop(code, inner, assumptions)
    return loop.trips_if_unknown(assumptions.unknown_trips) * gap_bytes


def _throughput(
    code: LaunchedCode,
    work: Work,
    traffic: _Traffic,
    assumptions: Assumptions,
) -> dict[str, float]:
    """Clocks for which each resource is busy, if nothing ever waits."""
    rates = code.rates
    blocks_per_processor = max(1.0, code.blocks / rates.processor_count)
    busy = {
        pipe: work.clocks[pipe] * code.warps * blocks_per_processor
        for pipe in _PIPES
        if work.clocks[pipe]
    }
    tensor = _tensor_clocks(code, work, assumptions)
    if tensor:
        busy[TENSOR] = tensor * blocks_per_processor
    # a request for scattered elements is served sector by sector
    gap_bytes = traffic.through_l1 - traffic.requested
    if gap_bytes:
        busy.setdefault(LOAD_STORE, 0.0)
        busy[LOAD_STORE] += gap_bytes / rates.l1_bytes / rates.processor_count
    from_l2 = traffic.from_l2
    # what spills beyond the first cache competes with the operands
    if code.spills_past_l1:
        from_l2 += work.local_bytes * code.threads * code.blocks
    used_processors = min(code.blocks, rates.processor_count)
    cache_bytes = rates.cache_bytes(code.operand_bytes)
    busy[L2] = from_l2 / (cache_bytes * used_processors)
    from_memory = traffic.from_l2
    # operands are read from memory once, if the second cache holds them
    if code.operand_bytes is not None:
        from_memory = min(from_memory, assumptions.reread * code.operand_bytes)
    busy[DRAM] = from_memory / (rates.dram_bytes_per_clock * rates.processor_count)
    atomics_per_block = _of_ir(
        code=code,
        name="atomics",
        assumptions=assumptions,
    )
    if atomics_per_block:
        busy[ATOMICS] = code.blocks * atomics_per_block / rates.atomic_lanes
    return busy


def _tensor_clocks(code: LaunchedCode, work: Work, assumptions: Assumptions) -> float:
    """Clocks of the tensor cores for one block."""
    clocks = work.clocks[TENSOR] * code.warps
    if work.has_unknown_products and code.ir is not None:
        dtype = next((region.dtype for region in code.ir.walk() if region.dtype), "bfloat16")
        flop_count = _of_ir(
            code=code,
            name="flop",
            assumptions=assumptions,
        )
        clocks += flop_count / code.rates.tensor_flop(dtype)
    return clocks


def _waves(code: LaunchedCode) -> float:
    """How many times the processors are filled with blocks; the last wave is rarely full."""
    slots = code.rates.processor_count * max(code.resident_blocks, 1)
    waves = code.blocks / slots
    full_waves = float(math.ceil(waves))
    if waves < _FEW_WAVES:
        return full_waves
    return min(full_waves, waves + 0.5)


def _clocks_per_byte(code: LaunchedCode, requested: float, busy: Mapping[str, float]) -> float:
    """Clocks that one multiprocessor waits for a byte, if all of them ask at once."""
    if not requested:
        return 0.0
    share_of_processor = requested / min(code.blocks, code.rates.processor_count)
    return max(busy[DRAM], busy[L2]) / share_of_processor


def _add_up(counted: CountedRegion, entries: float, totals: _Totals) -> None:
    """Add a region and its loops; `entries` is how often the block comes to the region."""
    iterations = entries * counted.trips
    work = counted.work
    totals.work.add(work, iterations)
    if entries and not counted.loops:
        totals.hottest = max(totals.hottest, work.instructions * iterations)
    for loop in counted.loops:
        _add_up(loop, iterations, totals)


@dataclass(frozen=True)
class _Chain:
    """How long one block takes if it is alone on its multiprocessor, in clocks."""

    code: LaunchedCode
    assumptions: Assumptions
    clocks_per_byte: float

    def of(self, counted: CountedRegion) -> float:
        """Clocks of a region with its loops."""
        parts = list(map(self.of, counted.loops))
        inner = sum(parts)
        # specialised warps work side by side, as long as the slowest of them
        if counted.region.is_specialised:
            inner = max(parts, default=0.0)
        return counted.trips * (self._iteration(counted.work) + inner)

    def _iteration(self, work: Work) -> float:
        """Clocks of one iteration: arithmetic, tensor cores and memory overlap in part."""
        rates = self.code.rates
        warps = self.code.warps
        clocks_of_pipes = [work.clocks[pipe] * warps for pipe in _PIPES]
        arithmetic = max(clocks_of_pipes, default=0.0)
        products = work.clocks[TENSOR] * warps
        if work.async_products:
            # waiting for every product leaves the tensor cores idle during the arithmetic
            serial_share = min(1.0, work.full_waits)
            clocks = max(arithmetic, products) + serial_share * min(arithmetic, products)
            clocks += rates.tensor_wait * work.full_waits
        else:
            clocks = max(arithmetic, products) + _SYNC_OVERLAP * min(arithmetic, products)
        clocks_per_barrier = rates.barrier
        if work.shuffles:
            clocks_per_barrier += rates.shuffle
        clocks += work.barriers * clocks_per_barrier
        latency = self.assumptions.latency * rates.memory_latency * min(1.0, work.plain_loads)
        transfer = work.access_bytes * self.code.threads * self.clocks_per_byte
        if products:
            # compilers load the operands of the next products during these
            clocks = max(clocks, latency, transfer)
        elif work.plain_loads and work.barriers:
            # warps that wait for each other load together and compute together
            clocks += latency + transfer
        else:
            clocks = max(clocks, latency)
        if work.local_bytes and self.code.spills_past_l1:
            clocks += work.local_bytes / 4 / _SPILLS_PER_WAIT * rates.l2_latency
        return clocks
