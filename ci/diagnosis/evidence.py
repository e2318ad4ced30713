"""What is known about one case and implementation, and which limit binds it.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009) for the roofs; Nsight Compute documentation, "Speed
Of Light", for what is near and far of them; Volkov, Understanding Latency Hiding on GPUs (2016) for what it means to be
far from all of them; Gray, Getting Started with CUDA Graphs (NVIDIA developer blog, 2019) for launches.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from roofwatch.ci.static.facts import code_facts
from roofwatch.collector.device.datasheets import PublishedCeiling, beside_datasheet
from roofwatch.collector.device.roofline import LevelPosition, Roof, binding_level, level_positions, roof_of
from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome
from roofwatch.collector.record.measurement import CacheState, CaseRecord, Measurement, is_host_bound
from roofwatch.collector.record.results import Counters, StaticFacts

NEAR = 0.8
"""Share of a roof from which it binds and little is left to gain. Nsight Compute speaks of a bottleneck above 80 %."""
FAR = 0.6
"""Share below which no roof explains the time; in between, the nearer roof binds. Nsight Compute speaks of latency
where both memory and arithmetic stay below 60 %.
"""
FIXED_COST_NS = {"cpu": 3_000.0, "cuda": 2_000.0, "hip": 3_000.0}
"""Order of magnitude of an empty launch where the record has none; on a CPU, of one operator of torch."""
FIXED_SHARE = 0.5
"""Share of a call's time from which on the cost of empty launches binds."""
MISSED_CACHE = 1 / NEAR
"""Data that would fit into the cache came from memory if it took `NEAR` to this share of memory's ceiling; above, it
came from a slower part of the cache.
"""
GAP_SHARE = 0.2
"""Share of pauses between a call's first and last kernel from which on they bind. Kernels that are issued ahead follow
each other within a microsecond.
"""


class Limit(StrEnum):
    """What the time of a kernel goes into."""

    MEMORY = "memory"
    CACHE = "cache"
    """The last-level cache."""
    COMPUTE = "compute"
    LATENCY = "latency"
    """Neither memory nor arithmetic is busy: too little is under way at once."""
    LAUNCH = "launch overhead"
    """Starting kernels, and the pauses between them."""
    HOST = "host"
    """The program issues work more slowly than the device does it."""
    LINKS = "links"
    """The links between devices."""
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Timing:
    """What was timed of one launch, in ns; medians over all blocks."""

    median_ns: float
    """The device was busy."""
    span_ns: float
    """From the first kernel's start to the last one's end; the median where the timer cannot tell."""
    host_ns: float | None
    """The host took to issue it."""
    kernel_count: int | None
    sm_clock_mhz: float | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """About one case and implementation.

    Args:
        case: What it costs by its model.
        implementation: Its name.
        environment: What it was measured on.
        ceilings: Measured in the same run, and the datasheet's.
        measurement: Its times, or how it failed; None where it was not part of the run.
        target: What the device runs code for; None on a CPU and where that is not known.
        facts: What the compiler made of it, for the device's own target if that was among those compiled for, else
            for all of them.
        counters: One entry a kernel of a call, of the last profile.
        others: Medians of the other implementations of the case that were timed alike, by name.
        floor_ns: What a kernel that does nothing takes in the record; None where none was timed.
        highest_clock_mhz: That the multiprocessors were seen at in the run.
        at_ceilings: Of the device while each ceiling that was measured was taken; empty where nobody watched.
    """

    case: CaseRecord
    implementation: str
    environment: Environment
    ceilings: tuple[Ceiling, ...]
    measurement: Measurement | None
    target: str | None
    facts: tuple[StaticFacts, ...]
    counters: tuple[Counters, ...]
    others: Mapping[str, float]
    floor_ns: float | None
    highest_clock_mhz: float | None
    at_ceilings: tuple[DeviceState, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.environment.device_kind != "cpu"

    @property
    def has_own_facts(self) -> bool:
        """The machine code is what the device runs, not what another one would."""
        return any(fact.target == self.target for fact in self.facts)

    @property
    def compiled(self) -> tuple[StaticFacts, ...]:
        """Of the facts those of code that did compile."""
        return tuple(fact for fact in self.facts if fact.outcome is Outcome.OK)

    @cached_property
    def timing(self) -> Timing | None:
        if self.measurement is None or self.measurement.median_ns is None:
            return None
        blocks = self.measurement.blocks
        spans = [span for block in blocks for span in block.span_ns]
        hosts = [block.host_ns for block in blocks if block.host_ns is not None]
        kernels = [block.kernel_count for block in blocks if block.kernel_count is not None]
        states = [block.device_state for block in blocks if block.device_state is not None]
        clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz]
        return Timing(
            median_ns=self.measurement.median_ns,
            span_ns=max(statistics.median(spans), self.measurement.median_ns) if spans else self.measurement.median_ns,
            host_ns=statistics.median(hosts) if hosts else None,
            kernel_count=max(kernels, default=None),
            sm_clock_mhz=statistics.median(clocks) if clocks else None,
        )

    @cached_property
    def roof(self) -> Roof:
        return roof_of(self.case, self.ceilings, CacheState.HOT if self.measurement is None else self.measurement.cache)

    @property
    def has_roof(self) -> bool:
        """Its roof is that of its device; what a collective waits for are links, of which no ceiling is measured."""
        return self.roof.least_ns is not None and self.case.bus_bytes is None

    @property
    def memory_share(self) -> float | None:
        """Least time at the memory ceiling / median time."""
        return self._share(self.roof.memory_ns)

    @property
    def dram_share(self) -> float | None:
        """Of device memory's ceiling, whether the data would fit into the cache or not."""
        dram = next((each for each in self.ceilings if each.level == "dram" and each.source == "measured"), None)
        return (
            None
            if dram is None or not self.case.memory_bytes
            else self._share(self.case.memory_bytes / dram.per_s * 1e9)
        )

    @property
    def compute_share(self) -> float | None:
        return self._share(self.roof.compute_ns)

    @property
    def utilisation(self) -> float | None:
        """Of the roof, whichever of its ceilings binds."""
        return self._share(self.roof.least_ns)

    @property
    def vector_share(self) -> float | None:
        """Of what the device does without tensor cores, by the ceiling of float32; None for code that uses them."""
        ordinary = next((each for each in self.ceilings if each.dtype == "float32" and each.source == "measured"), None)
        if ordinary is None or not self.case.flop_count or not self.has_own_facts or self._uses_tensor_cores:
            return None
        return self._share(self.case.flop_count / ordinary.per_s * 1e9)

    @property
    def _uses_tensor_cores(self) -> bool:
        return any(code_facts(fact).tensor_counts or not code_facts(fact).is_disassembled for fact in self.compiled)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte by the model."""
        return self.case.flop_count / self.case.memory_bytes if self.case.memory_bytes else None

    @cached_property
    def counted(self) -> Mapping[str, float]:
        """Bytes that the hardware counted, by counter; only those that were counted of every kernel of the call."""
        sums: dict[str, float] = {}
        for name in ("dram_bytes", "l2_bytes", "l1_bytes"):
            found = [byte_count for entry in self.counters if (byte_count := _bytes(entry, name)) is not None]
            if found and len(found) == len(self.counters):
                sums[name] = sum(found)
        return sums

    @cached_property
    def levels(self) -> tuple[LevelPosition, ...]:
        if self.timing is None:
            return ()
        return level_positions(self.case, self.counted, self.timing.median_ns, self.ceilings)

    @property
    def published(self) -> list[PublishedCeiling]:
        """The run's ceilings beside those of the vendor, at the clock that was seen meanwhile."""
        return beside_datasheet(
            self.ceilings,
            self.environment.device_name,
            at_ceilings=self.at_ceilings,
            sm_clock_mhz=self.highest_clock_mhz,
        )

    def _share(self, least_ns: float | None) -> float | None:
        if self.timing is None or least_ns is None or not self.has_roof:
            return None
        return least_ns / self.timing.median_ns

    # --- which limit binds

    @cached_property
    def limit(self) -> Limit:
        """What the time of a call is mostly spent on, as far as the record tells.

        First comes what keeps the device from working (the host, pauses), then the roofs, then the cost of launches.
        The rest is latency on a GPU, and undetermined on a CPU.
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
        level = binding_level(self.levels)
        if level is not None and (level.utilisation or 0.0) >= max(NEAR, self.compute_share or 0.0):
            return Limit.MEMORY if level.level == "dram" else Limit.CACHE
        if (self.utilisation or 0.0) >= NEAR:
            return self._nearest_roof
        if self.fixed_share >= FIXED_SHARE:
            return Limit.LAUNCH
        if (self.utilisation or 0.0) >= FAR:
            return self._nearest_roof
        if self.is_gpu and (self.vector_share or 0.0) >= FAR:
            return Limit.COMPUTE
        if self.misses_cache:
            return Limit.MEMORY if (self.dram_share or 0.0) <= MISSED_CACHE else Limit.CACHE
        if self._is_mostly_calls:
            return Limit.LAUNCH
        return Limit.LATENCY if self.is_gpu and self.utilisation is not None else Limit.UNDETERMINED

    @property
    def gap_share(self) -> float:
        """Share of the time from first to last kernel in which nothing ran, without pauses that issuing the call
        explains: those are not there in a loop of calls that the host keeps ahead of.
        """
        if self.timing is None:
            return 0.0
        paused_ns = self.timing.span_ns - self.timing.median_ns
        return max(0.0, paused_ns - (self.timing.host_ns or 0.0)) / self.timing.span_ns

    @property
    def one_launch_ns(self) -> float:
        """Cost of one empty launch, by the record or by rule of thumb."""
        return self.floor_ns or FIXED_COST_NS[self.environment.device_kind]

    @property
    def fixed_ns(self) -> float:
        """Cost of the launches of one call if they were empty."""
        kernel_count = None if self.timing is None else self.timing.kernel_count
        return (kernel_count or 1) * self.one_launch_ns

    @property
    def fixed_share(self) -> float:
        """Of the call's time, the cost of empty launches; 1 at most."""
        return 0.0 if self.timing is None else min(self.fixed_ns / self.timing.median_ns, 1.0)

    @property
    def reachable_ns(self) -> float | None:
        """The least time of a single launch: that of the roof, or of an empty launch; None without a roof."""
        least_ns = self.roof.least_ns
        return None if least_ns is None or not self.has_roof else max(least_ns, self.one_launch_ns)

    @property
    def misses_cache(self) -> bool:
        """Far below the cache's ceiling, yet at memory's or above it."""
        is_cache = self.roof.memory is not None and self.roof.memory.level == "cache"
        return is_cache and (self.utilisation or 0.0) < FAR and (self.dram_share or 0.0) >= NEAR

    @property
    def _is_mostly_calls(self) -> bool:
        """On a CPU, where nobody counts kernels: the work costs less than half of one call."""
        least_ns = self.roof.least_ns
        is_little = least_ns is not None and least_ns < FIXED_SHARE * self.one_launch_ns
        return is_little and self.has_roof and not self.is_gpu

    @property
    def _nearest_roof(self) -> Limit:
        if self.roof.bound == "compute":
            return Limit.COMPUTE
        is_cache = self.roof.memory is not None and self.roof.memory.level == "cache"
        return Limit.CACHE if is_cache else Limit.MEMORY


def _bytes(counters: Counters, name: str) -> float | None:
    if name in counters.values:
        return counters.values[name]
    parts = [counters.values.get(f"dram_{way}_bytes") for way in ("read", "write")]
    return None if name != "dram_bytes" or None in parts else sum(part or 0.0 for part in parts)
