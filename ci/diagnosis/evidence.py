"""What is known about one case and implementation, and which limit binds it.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009); Nsight Compute documentation,
Speed Of Light, for the thresholds; Volkov, Understanding Latency Hiding on GPUs (2016); Gray,
Getting Started with CUDA Graphs (NVIDIA developer blog, 2019).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from roofwatch.ci.static.facts import code_facts
from roofwatch.collector.device.datasheets import DatasheetCeiling, share_of_peak
from roofwatch.collector.device.roofline import (
    LevelPosition,
    Roof,
    binding_level,
    level_positions,
    roof_of,
)
from roofwatch.model.machine import Ceiling, Environment, Outcome
from roofwatch.model.measurement import (
    Block,
    CacheState,
    CaseRecord,
    Measurement,
    is_host_bound,
    median_of,
)
from roofwatch.model.results import CaseProfile, Counters, StaticFacts

NEAR = 0.8
"""Share of a ceiling from which on it binds and little can be gained."""
FAR = 0.6
"""Share below which no ceiling explains the time; between `FAR` and `NEAR` the nearer ceiling
binds.
"""
FIXED_COST_NS = {
    "cpu": 3_000.0,
    "cuda": 2_000.0,
    "hip": 3_000.0,
}
"""Typical time of an empty launch, or of one torch operator on a CPU; used if the record has no
measurement.
"""
FIXED_SHARE = 0.5
"""Share of the time from which on empty launches bind."""
BUSY_ISSUE_SLOTS = 0.8
"""The share that Nsight Compute's rules call high."""
GAP_SHARE = 0.2
"""Share of gaps between kernels from which on they bind; kernels issued ahead follow within a
microsecond.
"""


class Limit(StrEnum):
    """What limits the speed of a kernel."""

    MEMORY = "memory"
    CACHE = "cache"
    """The last-level cache."""
    COMPUTE = "compute"
    LATENCY = "latency"
    """Too little work in flight: neither memory nor arithmetic is busy."""
    LAUNCH = "launch overhead"
    """Starting kernels, and the gaps between them."""
    HOST = "host"
    """The host issues work more slowly than the device runs it."""
    LINKS = "links"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Timing:
    """Medians over all blocks of one launch."""

    median_ns: float
    """Device busy time."""
    span_ns: float
    """From the start of the first kernel to the end of the last; the median if the timer does not
    measure it.
    """
    host_ns: float | None
    """Time that the host takes to issue a call."""
    kernel_count: int | None
    """Kernels that one call launches."""
    sm_clock_mhz: float | None

    @classmethod
    def of(cls, measurement: Measurement | None) -> "Timing | None":
        if measurement is None or measurement.median_ns is None:
            return None
        kernel_counts = [
            block.kernel_count for block in measurement.blocks if block.kernel_count is not None
        ]
        states = [
            block.device_state for block in measurement.blocks if block.device_state is not None
        ]
        return cls(
            median_ns=measurement.median_ns,
            span_ns=max(measurement.span_ns or 0.0, measurement.median_ns),
            host_ns=measurement.host_ns,
            kernel_count=max(kernel_counts, default=None),
            sm_clock_mhz=median_of(state.sm_clock_mhz for state in states),
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a record holds about one case and implementation.

    Args:
        ceilings: Of the same run, and of the datasheet.
        target: Compile target of the device; None on a CPU or if unknown.
        facts: Machine code for the target of the device, or else for all targets.
        counters: One entry per kernel of a call.
        others: Medians in ns of the other implementations that were timed the same way.
        floor_ns: Time of an empty kernel in the same record.
        published: The measured ceilings with those of the datasheet at the observed clock.
        suite: Benchmark file or folder of the kernel; None for the bundled suite.
    """

    case: CaseRecord
    implementation: str
    environment: Environment
    ceilings: tuple[Ceiling, ...]
    measurement: Measurement | None
    target: str | None
    """Of the measured device; None without a GPU."""
    facts: tuple[StaticFacts, ...]
    """Compiled for the device; for all targets if that is not known."""
    counters: tuple[Counters, ...]
    profile: CaseProfile | None
    others: Mapping[str, float]
    """Medians in ns of the other implementations of the case, by name."""
    floor_ns: float | None
    """Time of an empty kernel in the same run."""
    published: Sequence[DatasheetCeiling]
    """The measured ceilings beside those of the datasheet."""
    suite: str | None = None

    @property
    def arguments(self) -> str:
        """How a command line names the case and its suite."""
        if self.suite is None:
            return self.case.case_id
        return f"{self.case.case_id} {self.suite}"

    @property
    def is_gpu(self) -> bool:
        return self.environment.device_kind != "cpu"

    @property
    def has_own_facts(self) -> bool:
        """The facts are about the machine code that the device runs."""
        return any(fact.target == self.target for fact in self.facts)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks of the measurement; none if it was not timed."""
        if self.measurement is None:
            return ()
        return self.measurement.blocks

    @property
    def compiled(self) -> tuple[StaticFacts, ...]:
        return tuple(fact for fact in self.facts if fact.outcome is Outcome.OK)

    @cached_property
    def timing(self) -> Timing | None:
        return Timing.of(self.measurement)

    # --- shares of ceilings

    @cached_property
    def roof(self) -> Roof:
        """Lower bounds of the time, with the cache as hot or cold as it was measured."""
        cache = CacheState.HOT
        if self.measurement is not None:
            cache = self.measurement.cache
        return roof_of(self.case, self.ceilings, cache)

    @property
    def has_roof(self) -> bool:
        """A roof applies; a collective waits for links, whose ceiling is not measured."""
        return self.roof.ideal_ns is not None and self.case.bus_bytes is None

    @property
    def memory_share(self) -> float | None:
        return self._share(self.roof.memory_ns)

    @property
    def compute_share(self) -> float | None:
        return self._share(self.roof.compute_ns)

    @property
    def utilisation(self) -> float | None:
        """Share of the roof: its time / the measured time."""
        return self._share(self.roof.ideal_ns)

    @property
    def dram_share(self) -> float | None:
        """Share of the ceiling of device memory, even if the data fits the cache."""
        return self._share_of_ceiling("dram", self.case.memory_bytes)

    @property
    def vector_share(self) -> float | None:
        """Share of the float32 ceiling; None for code that uses tensor cores."""
        facts = [code_facts(fact) for fact in self.compiled]
        # of code that was not disassembled, nobody knows
        uses_tensor_cores = any(fact.tensor_counts or not fact.is_disassembled for fact in facts)
        if not self.has_own_facts or uses_tensor_cores:
            return None
        return self._share_of_ceiling("float32", self.case.flop_count)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of the cost model."""
        if not self.case.memory_bytes:
            return None
        return self.case.flop_count / self.case.memory_bytes

    @cached_property
    def counted(self) -> Mapping[str, float]:
        """Counted bytes of a call, by counter; only counters that all its kernels have."""
        totals: dict[str, float] = {}
        for name in ("dram_bytes", "l2_bytes", "l1_bytes"):
            counts = [entry.values.get(name) for entry in self.counters]
            byte_counts = [count for count in counts if count is not None]
            # the sum of some kernels would look like less traffic
            if byte_counts and len(byte_counts) == len(counts):
                totals[name] = sum(byte_counts)
        return totals

    @cached_property
    def executed_flop_count(self) -> float | None:
        """Counted operations of a call; None unless they were counted in all its kernels."""
        counts = [entry.values.get("executed_flop_count") for entry in self.counters]
        flop_counts = [count for count in counts if count is not None]
        if not flop_counts or len(flop_counts) < len(counts):
            return None
        return sum(flop_counts)

    @property
    def is_issue_bound(self) -> bool:
        """The schedulers of the only kernel are busy, and no ceiling explains the time."""
        # with several kernels, the counters of one do not explain the call
        if self.limit is not Limit.LATENCY or len(self.counters) != 1:
            return False
        return self.counters[0].values.get("issue_slots_share", 0.0) >= BUSY_ISSUE_SLOTS

    @property
    def datasheet_share(self) -> float | None:
        """Share of the datasheet's peak of the binding ceiling; None if it states none."""
        return share_of_peak(self.utilisation, self.roof.binding, self.published)

    @cached_property
    def levels(self) -> tuple[LevelPosition, ...]:
        """How close the counted bytes come to the ceiling of each level of memory."""
        if self.timing is None:
            return ()
        return level_positions(self.counted, self.timing.median_ns, self.ceilings)

    @property
    def counted_ceiling(self) -> LevelPosition | None:
        """The memory level whose counted bytes bind; None if none does."""
        level = binding_level(self.levels)
        if level is None:
            return None
        binding_share = max(NEAR, self.compute_share or 0.0)
        if (level.utilisation or 0.0) >= binding_share:
            return level
        return None

    def _share(self, time_ns: float | None) -> float | None:
        if self.timing is None or time_ns is None or not self.has_roof:
            return None
        return time_ns / self.timing.median_ns

    def _share_of_ceiling(self, name: str, work: float) -> float | None:
        """Share of the measured ceiling of a memory level or dtype."""
        for ceiling in self.ceilings:
            if ceiling.source == "measured" and name in (ceiling.level, ceiling.dtype):
                return self._share(work / ceiling.per_s * 1e9 or None)
        return None

    # --- the limit

    @cached_property
    def limit(self) -> Limit:
        """The limit that explains most of the time.

        The order of tests: what keeps the device idle (host, gaps), then the ceilings, then the
        cost of launches. The rest is latency on a GPU, and undetermined on a CPU.
        """
        timing = self.timing
        if timing is None:
            return Limit.UNDETERMINED
        if is_host_bound(timing.median_ns, timing.host_ns):
            return Limit.HOST
        if self.gap_share >= GAP_SHARE:
            return Limit.LAUNCH
        if self.case.bus_bytes is not None:
            return Limit.LINKS
        if self.counted_ceiling is not None:
            if self.counted_ceiling.level == "dram":
                return Limit.MEMORY
            return Limit.CACHE
        # where launches take half of the time, only a near ceiling explains the rest
        if self.fixed_share < FIXED_SHARE:
            binding_share = FAR
        else:
            binding_share = NEAR
        if (self.utilisation or 0.0) >= binding_share:
            return self._limit_of_roof
        if self.fixed_share >= FIXED_SHARE:
            return Limit.LAUNCH
        # code without tensor cores reaches only the float32 ceiling
        if self.is_gpu and (self.vector_share or 0.0) >= FAR:
            return Limit.COMPUTE
        # memory cannot be faster than its ceiling: then a slower level of the cache binds
        if self.is_past_fastest_cache:
            if (self.dram_share or 0.0) <= 1 / NEAR:
                return Limit.MEMORY
            return Limit.CACHE
        if self.is_gpu:
            if self.utilisation is None:
                return Limit.UNDETERMINED
            return Limit.LATENCY
        # kernels are not counted on a CPU: call overhead binds if the work takes less than half of
        # one call
        work_ns = self.roof.ideal_ns or 0.0
        if self.has_roof and work_ns < FIXED_SHARE * self.one_launch_ns:
            return Limit.LAUNCH
        return Limit.UNDETERMINED

    @property
    def _limit_of_roof(self) -> Limit:
        if self.roof.bound == "compute":
            return Limit.COMPUTE
        if self._is_cache_roof:
            return Limit.CACHE
        return Limit.MEMORY

    @property
    def gap_share(self) -> float:
        """Share of the span without a running kernel, beyond the time to issue the call.

        In a loop of calls the host issues ahead, and gaps of that length disappear.
        """
        if self.timing is None:
            return 0.0
        idle_ns = self.timing.span_ns - self.timing.median_ns
        unexplained_ns = idle_ns - (self.timing.host_ns or 0.0)
        return max(0.0, unexplained_ns) / self.timing.span_ns

    @property
    def one_launch_ns(self) -> float:
        """Time of one empty launch, measured or typical."""
        return self.floor_ns or FIXED_COST_NS[self.environment.device_kind]

    @property
    def fixed_ns(self) -> float:
        """Time of the launches of one call if they were empty."""
        if self.timing is None or self.timing.kernel_count is None:
            return self.one_launch_ns
        return (self.timing.kernel_count or 1) * self.one_launch_ns

    @property
    def fixed_share(self) -> float:
        """Share of the time that empty launches would take; at most 1."""
        if self.timing is None:
            return 0.0
        return min(self.fixed_ns / self.timing.median_ns, 1.0)

    @property
    def reachable_ns(self) -> float | None:
        """Lower bound for a single launch: the roof or an empty launch; None without a roof."""
        if not self.has_roof:
            return None
        return max(self.roof.ideal_ns or 0.0, self.one_launch_ns)

    @property
    def most_speedup(self) -> float | None:
        """Upper bound of what any change can gain; None without times or a roof."""
        if self.reachable_ns is None or self.timing is None:
            return None
        return self.timing.median_ns / self.reachable_ns

    @property
    def is_past_fastest_cache(self) -> bool:
        """The data fits the cache, but arrives at the speed of memory or of a slower level of the
        cache.
        """
        return (
            self._is_cache_roof
            and (self.utilisation or 0.0) < FAR
            and (self.dram_share or 0.0) >= NEAR
        )

    @property
    def _is_cache_roof(self) -> bool:
        return self.roof.memory is not None and self.roof.memory.level == "cache"
