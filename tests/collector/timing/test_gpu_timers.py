"""Every timer that a GPU has, on launches of which is known how long they take."""

import statistics
from collections.abc import Callable
from itertools import combinations

import pytest
import torch

from roofwatch.collector.timing.memory import Copies, measure_memory, memory_floor
from roofwatch.collector.timing.stopwatch import Launch
from roofwatch.collector.timing.timing import choose_method, sample_launches, timing_stream
from roofwatch.model.errors import TimerError
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import SamplingPlan, possible_methods
from roofwatch.model.worker_protocol import TimedBlock

pytestmark = pytest.mark.gpu

MIB = 2**20
PLAN = SamplingPlan(warmup_ms=20, budget_ms=200)
TIMERS = (Timer.CUPTI, Timer.CUDA_GRAPH, Timer.CUDA_EVENT)


def timed(
    make: Callable[[], Launch], touched_bytes: int, timer: Timer, cache: CacheState | None = None
) -> TimedBlock:
    try:
        method = choose_method("cuda", timer, cache).method
    except TimerError as error:
        pytest.skip(str(error))
    with timing_stream("cuda"):
        return sample_launches(
            make(),
            PLAN,
            device="cuda",
            method=method,
            copies=Copies(make, touched_bytes=touched_bytes),
        )


def copying(size_bytes: int) -> Callable[[], Launch]:
    def make() -> Launch:
        source = torch.ones(size_bytes, dtype=torch.int8, device="cuda")
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return make


def median_ns(taken: TimedBlock) -> float:
    return statistics.median(taken.block.samples_ns)


@pytest.mark.parametrize("timer", TIMERS)
def test_a_copy_takes_about_as_long_as_the_memory_allows(timer: Timer) -> None:
    bytes_per_s = 512 * MIB / median_ns(timed(copying(256 * MIB), 512 * MIB, timer)) * 1e9

    assert 1e11 < bytes_per_s < 2e13


def adding(size_bytes: int) -> Callable[[], Launch]:
    """A kernel: a copy may use another engine inside a graph."""

    def make() -> Launch:
        numbers = torch.ones(size_bytes // 4, device="cuda")
        return lambda: numbers.add_(1)

    return make


@pytest.mark.parametrize("timers", list(combinations(TIMERS, 2)), ids=" and ".join)
def test_timers_agree_on_a_launch_that_is_long_for_both_of_them(
    timers: tuple[Timer, Timer],
) -> None:
    one, other = (median_ns(timed(adding(512 * MIB), 1024 * MIB, timer)) for timer in timers)

    assert other == pytest.approx(one, rel=0.05)


@pytest.mark.parametrize("timer", TIMERS)
def test_a_cache_that_holds_the_data_makes_a_small_copy_no_slower(timer: Timer) -> None:
    usual = next(method.cache for method in possible_methods("cuda", timer))
    away, hot = (
        timed(copying(4 * MIB), 8 * MIB, timer, cache) for cache in (usual, CacheState.HOT)
    )

    assert (away.method.cache, hot.method.cache) == (usual, CacheState.HOT)
    assert median_ns(hot) < 1.1 * median_ns(away)


def test_cupti_sees_each_kernel_and_the_gaps_between_them() -> None:
    def make() -> Launch:
        numbers = torch.ones(MIB, device="cuda")
        return lambda: (numbers.mul_(2), numbers.mul_(0.5), numbers.add_(0))

    block = timed(make, 4 * MIB, Timer.CUPTI).block

    assert block.kernel_count == 3
    assert not block.is_kernel_set_varying
    assert all(span >= busy for span, busy in zip(block.span_ns, block.samples_ns, strict=True))
    assert block.host_ns is not None
    assert block.launch_delay_ns is not None


def test_a_kernel_shorter_than_its_launch_is_timed_without_it() -> None:
    def make() -> Launch:
        numbers = torch.ones(1024, device="cuda")
        return lambda: numbers.add_(1)

    taken = timed(make, 4096, Timer.CUPTI)

    assert taken.block.host_ns is not None
    assert median_ns(taken) < taken.block.host_ns


def test_a_launch_that_waits_for_the_device_is_timed_by_events_with_its_host_in_it() -> None:
    def make() -> Launch:
        numbers = torch.ones(1024, device="cuda")
        return lambda: numbers.sum().item()

    taken = timed(make, 4096, Timer.CUDA_EVENT)

    assert taken.block.host_ns is not None
    assert median_ns(taken) < 1.5 * taken.block.host_ns


def test_memory_of_a_launch_is_its_inputs_and_what_it_asks_for() -> None:
    floor = memory_floor("cuda")
    assert floor is not None
    numbers = torch.ones(8 * MIB, dtype=torch.int8, device="cuda")
    use = measure_memory(lambda: numbers.clone(), floor)

    assert use.peak_allocated_bytes == 16 * MIB
    assert use.allocation_count == 1
