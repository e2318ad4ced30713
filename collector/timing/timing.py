"""Choose a timer that works, and time launches until the median is known."""

import gc
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from time import monotonic_ns, perf_counter_ns

import torch

from roofwatch.collector.timing.cuda_timers import EventStopwatch, GraphStopwatch
from roofwatch.collector.timing.cupti import CuptiStopwatch
from roofwatch.collector.timing.memory import (
    Copies,
    Rotation,
    cache_preparation,
    copy_count,
    last_level_cache_bytes,
)
from roofwatch.collector.timing.stopwatch import (
    ALONE,
    CpuStopwatch,
    Launch,
    Ranks,
    Sample,
    Stopwatch,
)
from roofwatch.model.errors import TimerError
from roofwatch.model.measurement import Block, CacheState, Timer, median_of
from roofwatch.model.record import utc_now
from roofwatch.model.timing_method import (
    ChosenMethod,
    SamplingPlan,
    TimingMethod,
    default_method,
    possible_methods,
)
from roofwatch.model.worker_protocol import TimedBlock
from roofwatch.spec import UnsupportedError

_FIRST_CHECK = 10
_MIN_WARMUP_LAUNCHES = 3
_Z_95 = 1.959964
_MIN_FOR_INTERVAL = 6
"""The range of six samples is a 97 % interval of the median: it misses if all are on one side, 2 /
2**6 = 3 %.
"""

_TRIAL_BYTES = 2**20
_STOPWATCHES: dict[Timer, type[Stopwatch]] = {
    Timer.PERF_COUNTER: CpuStopwatch,
    Timer.CUPTI: CuptiStopwatch,
    Timer.CUDA_GRAPH: GraphStopwatch,
    Timer.CUDA_EVENT: EventStopwatch,
}


def sample_launches(
    launch: Launch,
    plan: SamplingPlan,
    *,
    device: str = "cpu",
    method: TimingMethod | None = None,
    launches_per_sample: int | None = None,
    ranks: Ranks = ALONE,
    copies: Copies | None = None,
) -> TimedBlock:
    """Time a call repeatedly. Ranks stop at the same sample.

    The method is by default what every such device offers. Launches per sample are those of an
    earlier block of the same measurement, or chosen here. Copies are needed for a rotated cache.

    Raises:
        TimerError: timer or cache state is not available.
        UnsupportedError: the timer cannot time this launch.
    """
    chosen = method or default_method(device)
    stopwatch = make_stopwatch(
        launch=launch,
        method=chosen,
        device=device,
        ranks=ranks,
        copies=copies,
    )
    with _garbage_collection_off():
        warmed_from_ns = monotonic_ns()
        launch_ns = _warm_up(stopwatch, plan.warmup_ms * 1e6, ranks)
        launches = launches_per_sample or stopwatch.launches_for(launch_ns)
        started_at = utc_now()
        began_ns = monotonic_ns()
        samples = _sample_until_precise(
            stopwatch=stopwatch,
            launches=launches,
            plan=plan,
            ranks=ranks,
        )
        ended_ns = monotonic_ns()
    kernels = [sample.kernels for sample in samples if sample.kernels is not None]
    spans = tuple(sample.span_ns for sample in samples if sample.span_ns is not None)
    return TimedBlock(
        block=Block(
            started_at=started_at,
            samples_ns=tuple(sample.busy_ns for sample in samples),
            span_ns=spans,
            host_ns=median_of(sample.host_ns for sample in samples),
            launch_delay_ns=median_of(sample.launch_delay_ns for sample in samples),
            kernel_count=max(map(len, kernels), default=None),
            is_kernel_set_varying=len(set(kernels)) > 1,
            has_host_gaps=stopwatch.has_host_gaps,
        ),
        launches_per_sample=launches,
        method=chosen,
        began_ns=began_ns,
        ended_ns=ended_ns,
        warm_up_ns=began_ns - warmed_from_ns,
    )


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Collect once, then disable Python's garbage collection within the block."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def make_stopwatch(
    launch: Launch,
    method: TimingMethod,
    *,
    device: str,
    ranks: Ranks,
    copies: Copies | None = None,
) -> Stopwatch:
    """Create the stopwatch for one launch.

    Raises:
        TimerError: it is not available.
        UnsupportedError: the launch cannot be rotated.
    """
    if method.cache is CacheState.ROTATED:
        assert copies is not None
        count = copy_count(copies.touched_bytes, last_level_cache_bytes(device))
        launches_of_copies = [copies.make() for _ in range(count - 1)]
        launch = Rotation([launch, *launches_of_copies])
    prepare_cache = cache_preparation(method.cache, device)
    return _STOPWATCHES[method.timer](launch, method.cache, prepare_cache, ranks)


@contextmanager
def timing_stream(device: str) -> Iterator[None]:
    """Stream for everything that is timed; a CUDA graph cannot capture the default stream."""
    with torch.cuda.stream(_gpu_stream()) if device.startswith("cuda") else nullcontext():
        yield


@cache
def _gpu_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves the annotation out


def relative_width_of_median(samples_ns: Sequence[float]) -> float:
    """Relative width of the distribution-free 95 % interval of the median; infinite below six
    samples.

    Source: order statistics with the normal approximation of the binomial (Conover, Practical
    Nonparametric Statistics, 3rd ed., section 3.2).
    """
    count = len(samples_ns)
    if count < _MIN_FOR_INTERVAL:
        return math.inf
    ordered = sorted(samples_ns)
    half = _Z_95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half) - 1)
    high = min(count - 1, math.ceil(count / 2 + half))
    return (ordered[high] - ordered[low]) / statistics.median(ordered)


def _warm_up(stopwatch: Stopwatch, warmup_ns: float, ranks: Ranks) -> float:
    """Launch untimed for a while; returns the fastest launch in ns."""
    fastest_ns = math.inf
    spent_ns = 0.0
    done = 0
    while done < _MIN_WARMUP_LAUNCHES or spent_ns < warmup_ns:
        began_at = perf_counter_ns()
        fastest_ns = min(fastest_ns, stopwatch.rehearse())
        spent_ns += ranks.slowest_ns(float(perf_counter_ns() - began_at))
        done += 1
    return fastest_ns


def _sample_until_precise(
    stopwatch: Stopwatch,
    launches: int,
    plan: SamplingPlan,
    ranks: Ranks,
) -> list[Sample]:
    samples: list[Sample] = []
    times_ns: list[float] = []
    spent_ns = 0.0
    while True:
        began_at = perf_counter_ns()
        batch = stopwatch.take(_next_batch(len(samples), spent_ns, plan), launches)
        spent_ns += ranks.slowest_ns(float(perf_counter_ns() - began_at))
        samples += batch
        times_ns += [sample.busy_ns for sample in batch]
        if len(samples) < _min_samples(plan):
            continue
        is_early = len(samples) < plan.min_samples or spent_ns < plan.patience_ms * 1e6
        is_precise = not is_early and relative_width_of_median(times_ns) <= plan.relative_width
        has_all_samples = len(samples) >= plan.max_samples
        has_spent_budget = spent_ns >= plan.budget_ms * 1e6
        if is_precise or has_all_samples or has_spent_budget:
            return samples


def _next_batch(done: int, spent_ns: float, plan: SamplingPlan) -> int:
    """Samples to take before the next check of the interval."""
    if done < _min_samples(plan):
        return _min_samples(plan) - done
    affordable = plan.max_samples
    if spent_ns:
        remaining_ns = plan.budget_ms * 1e6 - spent_ns
        affordable = math.ceil(remaining_ns * done / spent_ns)
    # a fifth more: checking after each sample would take longer than sampling
    useful = max(_FIRST_CHECK, done // 5)
    if done < plan.min_samples:
        useful = plan.min_samples - done
    return max(1, min(useful, affordable, plan.max_samples - done))


def _min_samples(plan: SamplingPlan) -> int:
    return min(_MIN_FOR_INTERVAL, plan.min_samples, plan.max_samples)


def choose_method(
    device: str,
    timer: Timer | None = None,
    cache: CacheState | None = None,
) -> ChosenMethod:
    """The best method that works here and fits the request, as `possible_methods` reads it.

    Raises:
        TimerError: none works; the message says why and what to do.
    """
    unavailable: list[str] = []
    for method in possible_methods(device, timer, cache):
        try:
            _try_out(method, device)
        except (TimerError, UnsupportedError, RuntimeError) as error:
            unavailable.append(str(error))
        else:
            return ChosenMethod(method, tuple(unavailable))
    if timer is None:
        remedy = ""
    else:
        remedy = "; --timer auto selects an available one"
    raise TimerError("; ".join(unavailable) + remedy)


def _try_out(method: TimingMethod, device: str) -> None:
    """Take a few samples; raises an error if the method does not work here."""

    def make() -> Launch:
        return torch.ones(_TRIAL_BYTES, dtype=torch.int8, device=device).neg_

    with timing_stream(device):
        stopwatch = make_stopwatch(
            launch=make(),
            method=method,
            device=device,
            ranks=ALONE,
            copies=Copies(make, touched_bytes=_TRIAL_BYTES),
        )
        stopwatch.take(2, stopwatch.launches_for(stopwatch.rehearse()))
