"""Cases, and their times: the samples of one case and implementation."""

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, chain
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofwatch.model.library import is_library, reference_among
from roofwatch.model.machine import (
    CaseResult,
    Configuration,
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
from roofwatch.model.metrics import RATES, STORED


class CaseRecord(Part):
    case_id: Name
    kernel: Name
    family: Name = "other"
    shape: dict[str, Count | Annotated[str, Field(min_length=1, max_length=100)]]
    """Lengths by dimension, or a word, for example `routing: zipf`."""
    dtype: Name
    direction: Literal["fwd", "bwd"]
    flop_count: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    memory_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bus_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """For a collective: bytes that each link must carry."""
    token_count: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Tokens that one call processes."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    """Words such as `quick` or `70b`."""


class Timer(StrEnum):
    """Source of the samples. Times of different timers are not comparable."""

    CUPTI = "cupti"
    """CUPTI activity records: start and end of each kernel."""
    CUDA_GRAPH = "cuda_graph"
    """Events around replays of a graph with many launches."""
    CUDA_EVENT = "cuda_event"
    """Events around launches that were queued while the device was busy."""
    PERF_COUNTER = "perf_counter"
    """Wall time of the calling thread; only on a CPU."""


HOST_BOUND_BELOW = 1.5
"""A launch is host-bound if it takes less than this times the host time to issue it.

Source: facebookexperimental/triton, tlx_benchmark; a limit of 5 excluded cases that can be timed
well.
"""


def is_host_bound(busy_ns: float, host_ns: float | None) -> bool:
    """Whether consecutive launches wait for the host, so that a faster kernel changes little."""
    return host_ns is not None and busy_ns < HOST_BOUND_BELOW * host_ns


class CacheState(StrEnum):
    """State of the last-level cache before a launch.

    Times of different states are not comparable.
    """

    HOT = "hot"
    """Holds data of the previous launch."""
    COLD = "cold"
    """Before each launch, overwritten and then filled with clean lines of other memory."""
    ROTATED = "rotated"
    """Launches take turns on copies that together exceed the cache."""


class Block(Part):
    """Samples taken back to back in one process.

    Blocks of a pair share their position in the list.
    """

    started_at: UtcDatetime
    samples_ns: Annotated[tuple[PositiveNs, ...], Field(min_length=1)]
    """Per launch: time that the device was busy, the union of its kernels' intervals. Verdicts use
    these.
    """
    span_ns: tuple[PositiveNs, ...] = ()
    """Per launch: from the start of its first kernel to the end of its last; empty if unknown."""
    host_ns: PositiveNs | None = None
    """Median host time to issue one launch."""
    launch_delay_ns: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Median time from the call to the start of its first kernel."""
    kernel_count: Count | None = None
    """Maximum number of kernels, copies and fills per launch."""
    is_kernel_set_varying: bool = False
    """Not all launches ran the same kernels."""
    has_host_gaps: bool = False
    """Launches could not be queued ahead, so times include host time between kernels."""
    device_state: DeviceState | None = None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)

    @model_validator(mode="after")
    # A timer either knows the span of each launch or of none.
    def _a_span_for_each_sample(self) -> Self:
        if self.span_ns and len(self.span_ns) != len(self.samples_ns):
            raise ValueError(f"{len(self.samples_ns)} samples with {len(self.span_ns)} spans")
        return self


class MemoryUse(Part):
    """Device memory of one launch, from torch's caching allocator."""

    peak_allocated_bytes: Count
    """Peak memory of tensors, including inputs."""
    peak_reserved_bytes: Count
    """Peak memory of the allocator."""
    allocation_count: Count
    """Allocations of one launch."""
    fragmentation: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of reserved memory in torch's inactive split blocks."""


class AutotuneTiming(Part):
    configuration: Configuration
    time_ns: PositiveNs | None
    """None if it could not run."""


class Autotuning(Part):
    """Configurations that Triton's autotuner tried for one function and key, and its choice."""

    function: Name
    key: Annotated[str, Field(max_length=2_000)] = ""
    """Values that the choice depends on, such as sizes and dtypes."""
    chosen: dict[str, str | Integer | float | bool | None]
    timings: tuple[AutotuneTiming, ...] = ()
    """Empty for a cached choice."""
    duration_ns: Count = 0
    is_pinned: bool = False
    """Chosen by an earlier run or by the base, not in this process."""


class Measurement(CaseResult):
    """All samples of one case and implementation in one run, or the failure."""

    outcome: Outcome
    message: Message | None = None
    timer: Timer
    cache: CacheState
    launches_per_sample: Annotated[int, Field(ge=1)] = 1
    """Launches per sample, more than one if a launch is too short for the timer."""
    blocks: tuple[Block, ...] = ()
    bound: Literal["memory", "compute"] | None = None
    """The ceiling that limits the case."""
    utilisation: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Minimum time at the limiting ceiling / median time."""
    memory: MemoryUse | None = None
    """None on a CPU."""
    autotuning: tuple[Autotuning, ...] = ()
    reference_ns: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Median time of the library's row of the case in this run, if there is one."""

    @model_validator(mode="after")
    def _timed_only_if_ok(self) -> Self:
        # A case without times has failed, and a failed one has no times that count.
        if (self.outcome is Outcome.OK) != bool(self.blocks):
            raise ValueError(
                f"{self.case_id} {self.implementation}: outcome {self.outcome} with "
                f"{len(self.blocks)} blocks"
            )
        if self.outcome is not Outcome.OK and self.utilisation is not None:
            raise ValueError(
                f"{self.case_id} {self.implementation}: outcome {self.outcome} with a utilisation"
            )
        return self

    @property
    def samples_ns(self) -> tuple[float, ...]:
        return tuple(chain.from_iterable(block.samples_ns for block in self.blocks))

    @property
    def median_ns(self) -> float | None:
        """Median of the blocks' medians, the one time of a case; None unless the outcome is `ok`.

        A disturbed block counts once, however many samples it has.
        """
        return median_of(block.median_ns for block in self.blocks)

    @property
    def ratio_to_reference(self) -> float | None:
        """Median time over that of the library's row, which the machine changes equally."""
        if self.reference_ns is None or self.median_ns is None:
            return None
        return self.median_ns / self.reference_ns

    @property
    def host_ns(self) -> float | None:
        """Median host time to issue a launch, if the timer measures it."""
        return median_of(block.host_ns for block in self.blocks)

    @property
    def launch_delay_ns(self) -> float | None:
        """Median time from the call to the start of its first kernel, if the timer measures it."""
        return median_of(block.launch_delay_ns for block in self.blocks)

    @property
    def span_ns(self) -> float | None:
        """Median of the blocks' median times from the start of the first kernel to the end of the
        last, if the timer measures it.
        """
        return median_of(median_of(block.span_ns) for block in self.blocks)

    @property
    def joules_per_launch(self) -> float | None:
        """Median energy of a launch over the blocks, if the device measures it."""
        # Not every block has readings of the sensor.
        states = [block.device_state for block in self.blocks if block.device_state is not None]
        return median_of([state.energy_per_launch_j for state in states])

    @property
    def peak_allocated_bytes(self) -> float | None:
        """Peak device memory of tensors; None on a CPU. A failed launch proves nothing about it."""
        if self.memory is None or not self.blocks:
            return None
        return float(self.memory.peak_allocated_bytes)

    @property
    def stored_values(self) -> dict[str, float]:
        """The metrics besides the time that it has, by key."""
        # The metrics without an opinion on a failed case have no value there.
        values = {}
        for metric in STORED:
            value = getattr(self, metric.key)
            if value is not None:
                values[metric.key] = value
        return values

    @property
    def is_host_bound(self) -> bool:
        return self.median_ns is not None and is_host_bound(self.median_ns, self.host_ns)

    @property
    def is_hidden_by_host(self) -> bool:
        """Whether the samples may include time that the device waits for the host."""
        return self.is_host_bound and self.timer is Timer.CUDA_EVENT

    @property
    def quartiles_ns(self) -> tuple[float, float] | None:
        """First and third quartile of all samples, in which all blocks weigh the same; None unless
        the outcome is `ok`.
        """
        median_ns = self.median_ns
        if median_ns is None:
            return None
        low, high = _quartiles([block.samples_ns for block in self.blocks])
        # Interpolation between few samples may put a quartile beyond the median of the blocks.
        return min(low, median_ns), max(high, median_ns)


def _quartiles(blocks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return weighted quartiles, by linear interpolation between samples.

    Sample k (from 0) of n in order of size, with weight w and the sum W of the weights before it,
    is at position k w + (n - 1) W; with equal weights these are the usual inclusive quartiles.
    """
    weighted: list[tuple[float, float]] = []
    for block in blocks:
        # A block with many samples counts no more than one with few.
        weight = 1 / len(block)
        weighted.extend((sample, weight) for sample in block)
    weighted.sort()
    samples = [sample for sample, _ in weighted]
    weights = [weight for _, weight in weighted]
    sums_before = accumulate(weights, initial=0.0)
    positions = [
        rank * weight + (len(samples) - 1) * sum_before
        for rank, (weight, sum_before) in enumerate(zip(weights, sums_before, strict=False))
    ]
    last_position = positions[-1]
    low = _at(0.25 * last_position, positions, samples)
    high = _at(0.75 * last_position, positions, samples)
    return low, high


def _at(position: float, positions: Sequence[float], samples: Sequence[float]) -> float:
    after = bisect_left(positions, position)
    if after == 0:
        return samples[0]
    before = after - 1
    share = (position - positions[before]) / (positions[after] - positions[before])
    return samples[before] + share * (samples[after] - samples[before])


def with_references(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Give each measurement the time of the library's row of its case, timed in the same way."""
    measured = tuple(measurements)
    # Times by another timer or with another cache do not compare.
    rows: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for measurement in measured:
        if is_library(measurement.implementation) and measurement.median_ns is not None:
            times_ns = rows[_way_of_timing(measurement)]
            times_ns[measurement.implementation] = measurement.median_ns
    return tuple(_with_reference(measurement, rows) for measurement in measured)


def _way_of_timing(measurement: Measurement) -> tuple[str, str, str]:
    return measurement.case_id, measurement.timer, measurement.cache


def _with_reference(
    measurement: Measurement,
    rows: Mapping[tuple[str, str, str], Mapping[str, float]],
) -> Measurement:
    # The library is not compared with itself.
    if measurement.median_ns is None or is_library(measurement.implementation):
        return measurement
    times_ns = rows.get(_way_of_timing(measurement), {})
    reference = reference_among(times_ns)
    if reference is None:
        return measurement
    return measurement.model_copy(update={"reference_ns": times_ns[reference]})


def median_of(values: Iterable[float | None]) -> float | None:
    """Median of the known values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def measured_values(measurement: Measurement, case: CaseRecord) -> dict[str, float]:
    """The measured metrics of a measurement, by metric key; empty unless its outcome is `ok`."""
    median_ns = measurement.median_ns
    if median_ns is None:
        return {}
    values = {"median_ns": median_ns}
    for rate in RATES:
        # A kernel without floating-point work has no rate of it.
        work = getattr(case, rate.work)
        if work:
            values[rate.key] = work / median_ns * 1e9
    return values | measurement.stored_values
