"""Sampling, on a clock that only launches move, copies that launches take turns on, and the memory
of a launch.
"""

import math
import weakref
from collections.abc import Callable
from itertools import count, cycle
from types import SimpleNamespace

import numpy as np
import pytest

from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.timing.memory import (
    CacheFlush,
    Copies,
    Rotation,
    copy_count,
    memory_floor,
    memory_use,
)
from roofwatch.collector.timing.stopwatch import Ranks, Sample
from roofwatch.collector.timing.timing import relative_width_of_median, sample_launches
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import EFFORTS, Preset, SamplingPlan, TimingMethod

FIVE = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=5)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def launch(self, *durations_ns: int) -> Callable[[], None]:
        """A launch that takes these times in turn."""
        durations = cycle(durations_ns)

        def launch() -> None:
            self.now_ns += next(durations)

        return launch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("stopwatch", "timing"):
        monkeypatch.setattr(
            f"roofwatch.collector.timing.{module}.perf_counter_ns", lambda: clock.now_ns
        )
    return clock


def test_a_launch_too_short_for_the_timer_is_repeated_within_a_sample() -> None:
    calls = count()
    timed = sample_launches(lambda: next(calls), FIVE)
    assert timed.launches_per_sample > 100
    assert next(calls) == 3 + 5 * timed.launches_per_sample
    assert timed.method == TimingMethod(Timer.PERF_COUNTER, CacheState.HOT)


def test_a_spent_budget_gives_the_fewest_samples() -> None:
    assert len(sample_launches(lambda: None, FIVE).block.samples_ns) == 5


def test_a_later_block_repeats_launches_as_often_as_the_first() -> None:
    assert sample_launches(lambda: None, FIVE, launches_per_sample=3).launches_per_sample == 3


class SlowCompanion(Ranks):
    """Another rank, which takes three times as long."""

    def __init__(self) -> None:
        self.aligned = 0

    def align(self) -> None:
        self.aligned += 1

    def slowest_ns(self, elapsed_ns: float) -> float:
        return 3 * elapsed_ns


def test_ranks_that_start_together_take_as_long_as_the_slowest(clock: Clock) -> None:
    companion = SlowCompanion()
    timed = sample_launches(clock.launch(50_000), FIVE, ranks=companion)
    assert list(timed.block.samples_ns) == [150_000.0] * 5
    assert timed.launches_per_sample == 1  # two without the other rank
    assert companion.aligned == 3 + 5


def test_a_sample_is_the_time_of_one_launch(clock: Clock) -> None:
    durations_ns = range(40_000, 100_000, 3_000)
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=3)
    timed = sample_launches(clock.launch(*durations_ns), plan)
    # three launches warm up; the fastest took 40 µs, so three make a sample of at least 100 µs
    assert timed.launches_per_sample == 3
    assert timed.block.samples_ns == (52_000, 61_000, 70_000)


def test_the_interval_of_the_median_has_the_stated_coverage() -> None:
    """In units of the interval's own width; 95 % promised, two standard errors of 1000 trials
    allowed.
    """
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        samples = rng.lognormal(0, 0.5, size=40)
        ordered = np.sort(samples)
        low, high = (
            ordered[math.floor(20 - 1.96 * 40**0.5 / 2) - 1],
            ordered[math.ceil(20 + 1.96 * 40**0.5 / 2)],
        )
        covered += low <= 1 <= high
        assert relative_width_of_median(list(samples)) == pytest.approx(
            (high - low) / np.median(samples)
        )
    assert covered >= 936


def test_the_interval_of_the_median_needs_six_samples() -> None:
    assert relative_width_of_median([1.0] * 5) == math.inf
    assert relative_width_of_median([1.0] * 6) == 0


@pytest.mark.parametrize(
    ("plan", "least", "most"),
    [
        ({"budget_ms": 20}, 80, 90),
        ({"max_samples": 40}, 40, 40),
        ({"relative_width": 0.6}, 10, 10),
        ({"relative_width": 0.6, "patience_ms": 20}, 80, 90),
        ({"relative_width": 0.6, "min_samples": 50}, 50, 60),
        ({"relative_width": 0.6, "patience_ms": 20, "min_samples": 50}, 80, 90),
    ],
)
def test_a_block_ends_at_the_first_limit_of_its_plan(
    clock: Clock, plan: dict[str, float], least: int, most: int
) -> None:
    sampling = SamplingPlan(warmup_ms=0, **plan)  # type: ignore[arg-type]
    assert (
        least
        <= len(sample_launches(clock.launch(200_000, 300_000), sampling).block.samples_ns)
        <= most
    )


def test_the_budget_includes_the_work_between_launches(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches of 1 ms; overwriting the cache takes 9 ms before each."""
    flush = clock.launch(9_000_000)
    monkeypatch.setattr("roofwatch.collector.timing.timing.cache_preparation", lambda *_: flush)
    plan = SamplingPlan(warmup_ms=0, budget_ms=300, relative_width=-1)
    method = TimingMethod(Timer.PERF_COUNTER, CacheState.COLD)

    block = sample_launches(clock.launch(1_000_000), plan, method=method).block

    assert list(block.samples_ns) == [1_000_000.0] * 30


@pytest.mark.parametrize("preset", Preset)
def test_a_slow_kernel_gets_enough_samples_for_an_interval(clock: Clock, preset: Preset) -> None:
    sampling = EFFORTS[preset].sampling
    block = sample_launches(clock.launch(5_400_000_000, 4_500_000_000), sampling).block

    assert len(block.samples_ns) == 6
    assert 0 < relative_width_of_median(block.samples_ns) < 1
    assert clock.now_ns / 1e9 < RunPlan(sampling=sampling).block_timeout_s


# --- cache states


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine whose last-level cache holds a MiB."""
    for module in ("memory", "timing"):
        monkeypatch.setattr(
            f"roofwatch.collector.timing.{module}.last_level_cache_bytes", lambda _device: 2**20
        )
    return 2**20


@pytest.mark.usefixtures("small_cache")
def test_a_cold_cache_is_overwritten_before_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    flush = CacheFlush.__call__

    def noted_flush(cache: CacheFlush) -> None:
        happened.append("flush")
        flush(cache)

    monkeypatch.setattr(CacheFlush, "__call__", noted_flush)
    method = TimingMethod(Timer.PERF_COUNTER, CacheState.COLD)
    timed = sample_launches(lambda: happened.append("launch"), FIVE, method=method)

    assert happened == ["flush", "launch"] * (3 + 5)  # in the warm-up too
    assert timed.launches_per_sample == 1
    assert timed.method.cache is CacheState.COLD


def test_on_a_rotated_cache_launches_take_turns_on_copies_that_exceed_it(small_cache: int) -> None:
    called: list[int] = []
    numbers = iter(range(1, 100))

    def make() -> Callable[[], None]:
        number = next(numbers)
        return lambda: called.append(number)

    sample_launches(
        lambda: called.append(0),
        FIVE,
        method=TimingMethod(Timer.PERF_COUNTER, CacheState.ROTATED),
        copies=Copies(make, touched_bytes=small_cache / 4),
    )

    assert called[:18] == [*range(8), *range(8), 0, 1]


# --- what timers report besides the time


def test_a_block_has_everything_that_the_timer_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        Sample(busy_ns=100, span_ns=150, host_ns=900, launch_delay_ns=30, kernels=("a", "b")),
        Sample(busy_ns=110, span_ns=140, host_ns=700, launch_delay_ns=10, kernels=("a", "b")),
        Sample(
            busy_ns=120, span_ns=160, host_ns=800, launch_delay_ns=20, kernels=("a", "b", "memset")
        ),
    ]
    stopwatch = SimpleNamespace(
        rehearse=lambda: 1.0,
        launches_for=lambda _ns: 1,
        take=lambda count, _launches: samples[:count],
        has_host_gaps=True,
    )
    monkeypatch.setattr(
        "roofwatch.collector.timing.timing.make_stopwatch", lambda *_, **__: stopwatch
    )
    block = sample_launches(
        lambda: None, SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=3)
    ).block

    assert (block.samples_ns, block.span_ns) == ((100, 110, 120), (150, 140, 160))
    assert (block.host_ns, block.launch_delay_ns) == (800, 20)
    assert (block.kernel_count, block.is_kernel_set_varying, block.has_host_gaps) == (3, True, True)


MIB = 2**20
BEFORE = {
    "allocation.all.allocated": 120,
    "allocated_bytes.all.current": 96 * MIB,
    "allocated_bytes.all.peak": 96 * MIB,
    "reserved_bytes.all.current": 100 * MIB,
    "reserved_bytes.all.peak": 100 * MIB,
    "inactive_split_bytes.all.current": 4 * MIB,
}
AFTER = BEFORE | {
    "allocation.all.allocated": 123,
    "allocated_bytes.all.current": 128 * MIB,
    "allocated_bytes.all.peak": 160 * MIB,
    "reserved_bytes.all.current": 200 * MIB,
    "reserved_bytes.all.peak": 220 * MIB,
    "inactive_split_bytes.all.current": 50 * MIB,
}


@pytest.mark.parametrize(
    ("touched_bytes", "count"),
    [(200 * MIB, 2), (100 * MIB, 2), (99 * MIB, 3), (50 * MIB, 4), (MIB, 200), (0, 2)],
)
def test_copies_together_exceed_twice_the_cache(touched_bytes: int, count: int) -> None:
    assert copy_count(touched_bytes, cache_bytes=100 * MIB) == count


def test_a_result_is_kept_until_its_launch_is_called_again() -> None:
    made: list[weakref.ref[set[int]]] = []

    def launch() -> set[int]:
        result = {1}
        made.append(weakref.ref(result))
        return result

    rotation = Rotation([launch, launch, launch])
    for _ in range(4):
        rotation()

    assert [result() is not None for result in made] == [False, False, True, True]


def test_memory_counts_from_the_floor() -> None:
    floor = {"allocated_bytes.all.current": 32 * MIB, "reserved_bytes.all.current": 40 * MIB}
    use = memory_use(floor, BEFORE, AFTER)

    assert (use.peak_allocated_bytes, use.peak_reserved_bytes) == (128 * MIB, 180 * MIB)
    assert (use.allocation_count, use.fragmentation) == (3, 0.25)
    empty = dict.fromkeys(BEFORE, 0)
    assert memory_use(empty, empty, empty).fragmentation is None
    assert memory_floor("cpu") is None
