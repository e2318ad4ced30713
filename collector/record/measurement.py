"""Cases, and their times: the samples of one case and implementation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofwatch.collector.record.machine import (
    Count,
    DeviceState,
    Integer,
    Message,
    Name,
    Outcome,
    Part,
    PositiveNs,
    UtcDatetime,
)
from roofwatch.collector.record.metrics import METRICS


class CaseRecord(Part):
    case_id: Name
    kernel: Name
    family: Name = "other"
    shape: dict[str, Count | Annotated[str, Field(min_length=1, max_length=100)]]
    """Lengths by dimension; a word where cases differ in kind, for example `routing: zipf`."""
    dtype: Name
    direction: Literal["fwd", "bwd"]
    flop_count: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    memory_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bus_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Of a collective: bytes that each link must carry, the size times the field's factor; None for other kernels."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    """Words to select it by, such as `quick` or `70b`."""


class Timer(StrEnum):
    """What the samples are read from. Times of different timers never compare."""

    CUPTI = "cupti"
    """Activity records of the device: when each kernel began and ended."""
    CUDA_GRAPH = "cuda_graph"
    """Events around replays of a graph that holds many launches."""
    CUDA_EVENT = "cuda_event"
    """Events around launches that were queued while the device was kept busy."""
    PERF_COUNTER = "perf_counter"
    """Wall time of the calling thread; on a CPU alone."""


HOST_BOUND_BELOW = 1.5
"""A launch that takes less than this times what its host takes to issue it is bound by the host.

Source: facebookexperimental/triton, tlx_benchmark; a limit of 5 turned away cases that could be timed well.
"""


def is_host_bound(busy_ns: float, host_ns: float | None) -> bool:
    """Whether a caller who makes one launch after the other waits for the host: a faster kernel changes little.

    Args:
        busy_ns: How long the device is busy with a launch.
        host_ns: How long its host takes to issue it; None where nobody knows.
    """
    return host_ns is not None and busy_ns < HOST_BOUND_BELOW * host_ns


_HOLDING_HOST_TIME = frozenset({Timer.CUDA_EVENT})
"""Timers whose samples hold what a device waits for its host. CUPTI counts what runs, and a graph is issued before."""


class CacheState(StrEnum):
    """What a launch finds in the last-level cache. Times of different states never compare."""

    HOT = "hot"
    """Its own data, from the launch before."""
    COLD = "cold"
    """Nothing of it: the cache is overwritten before each launch."""
    ROTATED = "rotated"
    """Nothing of it: launches take turns on copies that together exceed the cache."""


class Block(Part):
    """Samples taken back to back in one process. Blocks of a pair share their position in the list."""

    started_at: UtcDatetime
    samples_ns: Annotated[tuple[PositiveNs, ...], Field(min_length=1)]
    """Of each launch: how long the device was busy, the union of its kernels' intervals; what is judged."""
    span_ns: tuple[PositiveNs, ...] = ()
    """Of each launch: from the start of its first kernel to the end of its last; empty where the timer cannot tell."""
    host_ns: PositiveNs | None = None
    """Median time that the host takes to issue one launch, without waiting for it."""
    launch_delay_ns: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Median time from the call to the start of its first kernel."""
    kernel_count: Count | None = None
    """Kernels, copies and fills of a launch; the most of any where they vary."""
    is_kernel_set_varying: bool = False
    """Launches of this block did not all run the same kernels."""
    stopped_by: Literal["precision", "budget", "samples"] | None = None
    """Why sampling ended: the median was known well enough, the time was spent, or there were samples enough."""
    device_state: DeviceState | None = None
    """What was seen of the device meanwhile; None where nobody watched."""

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)

    @model_validator(mode="after")
    def _a_span_for_each_sample(self) -> Self:
        if self.span_ns and len(self.span_ns) != len(self.samples_ns):
            raise ValueError(f"{len(self.samples_ns)} samples with {len(self.span_ns)} spans")
        return self


class MemoryUse(Part):
    """Device memory that one launch took beyond its inputs, by torch's caching allocator."""

    peak_allocated_bytes: Count
    """Most that tensors held at once, inputs among them."""
    peak_reserved_bytes: Count
    """Most that the allocator held of the device."""
    allocation_count: Count
    """Blocks asked for by one launch."""
    fragmentation: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of what was reserved at the end that lay free beside memory in use, where the allocator can neither give it
    back nor serve a larger request from it: torch's inactive split blocks.
    """


class AutotuneTiming(Part):
    """One configuration that was tried."""

    configuration: dict[str, str | Integer | float | bool | None]
    time_ns: PositiveNs | None
    """None where it could not run."""


class Autotuning(Part):
    """What Triton's autotuner tried for one function and key, and what it chose."""

    function: Name
    key: Annotated[str, Field(max_length=2_000)] = ""
    """What the choice depends on, such as sizes and dtypes."""
    chosen: dict[str, str | Integer | float | bool | None]
    timings: tuple[AutotuneTiming, ...] = ()
    """Empty where the choice came from a cache."""
    duration_ns: Count = 0
    is_cached: bool = False


class Measurement(Part):
    """All samples of one case and implementation in one run, or how it failed."""

    case_id: Name
    implementation: Name
    outcome: Outcome
    message: Message | None = None
    timer: Timer
    cache: CacheState
    launches_per_sample: Annotated[int, Field(ge=1)] = 1
    """A sample is the mean of this many launches, more than one where a launch is too short for the timer."""
    blocks: tuple[Block, ...] = ()
    bound: Literal["memory", "compute"] | None = None
    """The ceiling that limits the case first."""
    utilisation: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Least possible time at the binding ceiling / median time."""
    memory: MemoryUse | None = None
    """None on a CPU, where torch does not count."""
    autotuning: tuple[Autotuning, ...] = ()

    @model_validator(mode="after")
    def _timed_only_if_ok(self) -> Self:
        if (self.outcome is Outcome.OK) != bool(self.blocks):
            raise ValueError(
                f"{self.case_id} {self.implementation}: outcome {self.outcome} with {len(self.blocks)} blocks"
            )
        if self.outcome is not Outcome.OK and self.utilisation is not None:
            raise ValueError(f"{self.case_id} {self.implementation}: outcome {self.outcome} with a utilisation")
        return self

    @property
    def samples_ns(self) -> tuple[float, ...]:
        return tuple(sample for block in self.blocks for sample in block.samples_ns)

    @property
    def median_ns(self) -> float | None:
        """Median of all samples; None unless the outcome is `ok`."""
        return statistics.median(self.samples_ns) if self.blocks else None

    @property
    def host_ns(self) -> float | None:
        """Median time that the host takes to issue a launch; None where the timer does not say."""
        return _median_of(block.host_ns for block in self.blocks)

    @property
    def launch_delay_ns(self) -> float | None:
        """Median time from the call to the start of its first kernel; None where the timer does not say."""
        return _median_of(block.launch_delay_ns for block in self.blocks)

    @property
    def span_ns(self) -> float | None:
        """Median time from the start of the first kernel to the end of the last; None where the timer does not say."""
        return _median_of(span for block in self.blocks for span in block.span_ns)

    @property
    def joules_per_launch(self) -> float | None:
        """Median energy of a launch over the blocks; None where the device does not count it."""
        states = [block.device_state for block in self.blocks]
        return _median_of([None if state is None else state.energy_per_launch_j for state in states])

    @property
    def is_host_bound(self) -> bool:
        """Whether a caller who launches one after the other waits for the host: a faster kernel changes little."""
        return self.median_ns is not None and is_host_bound(self.median_ns, self.host_ns)

    @property
    def is_hidden_by_host(self) -> bool:
        """Whether the samples may say more of the host than of the kernel."""
        return self.is_host_bound and self.timer in _HOLDING_HOST_TIME

    @property
    def quartiles_ns(self) -> tuple[float, float] | None:
        """First and third quartile of all samples; None unless the outcome is `ok`."""
        samples = self.samples_ns
        if not samples:
            return None
        if len(samples) == 1:
            return samples[0], samples[0]
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return low, high


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def measured_values(measurement: Measurement, case: CaseRecord) -> dict[str, float]:
    """The measured metrics of a measurement, by metric key; empty unless its outcome is `ok`."""
    median_ns = measurement.median_ns
    if median_ns is None:
        return {}
    values = {"median_ns": median_ns}
    if case.flop_count:
        values["flop_per_s"] = case.flop_count / median_ns * 1e9
    if case.memory_bytes:
        values["memory_bytes_per_s"] = case.memory_bytes / median_ns * 1e9
    if case.bus_bytes:
        values["bus_bytes_per_s"] = case.bus_bytes / median_ns * 1e9
    if measurement.utilisation is not None:
        values["utilisation"] = measurement.utilisation
    joules = measurement.joules_per_launch
    if joules is not None:
        values["joules_per_launch"] = joules
    if measurement.host_ns is not None:
        values["host_ns"] = measurement.host_ns
    if measurement.memory is not None:
        values["peak_allocated_bytes"] = float(measurement.memory.peak_allocated_bytes)
    assert values.keys() <= METRICS.keys()
    return values
