import math
import statistics

import numpy as np
import pytest
import torch

from collector.measurement import CacheState, Timer
from collector.sampling import SamplingPlan
from collector.timing import relative_width_of_median, sample_launches


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_budget_that_is_spent_still_gives_the_least_number_of_samples() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=7)
    timed = sample_launches(lambda: sum(range(50_000)), plan)
    assert len(timed.samples_ns) == 7
    assert (timed.timer, timed.cache) == (Timer.PERF_COUNTER, CacheState.HOT)


def test_no_more_than_the_greatest_number_of_samples_is_taken() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=1e9, min_samples=2, max_samples=12, relative_width=0)
    assert len(sample_launches(Counter(), plan).samples_ns) == 12


def test_a_launch_too_short_for_the_timer_is_repeated_inside_a_sample_and_counted() -> None:
    launch = Counter()
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=10)
    timed = sample_launches(launch, plan)
    assert timed.launches_per_sample > 100
    assert launch.calls == 3 + 10 * timed.launches_per_sample


def test_a_later_block_takes_as_many_launches_per_sample_as_it_is_told() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=10)
    assert sample_launches(Counter(), plan, launches_per_sample=3).launches_per_sample == 3


class SlowCompanion:
    """Another rank, which takes three times as long."""

    def __init__(self) -> None:
        self.aligned = 0

    def align(self) -> None:
        self.aligned += 1

    def slowest_ns(self, elapsed_ns: float) -> float:
        return 3 * elapsed_ns


def test_launches_of_several_ranks_start_together_and_take_as_long_as_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 0

    def launch() -> None:
        nonlocal now_ns
        now_ns += 50_000

    monkeypatch.setattr("collector.timing.perf_counter_ns", lambda: now_ns)
    companion = SlowCompanion()
    timed = sample_launches(launch, SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=4), ranks=companion)
    assert list(timed.samples_ns) == [150_000.0] * 4
    assert timed.launches_per_sample == 1  # though alone it were two
    assert companion.aligned == 3 + 4


def test_a_sample_is_the_time_of_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only launches move: by 40 µs each, and by 3 µs more from one to the next."""
    now_ns = 0
    launch_ns = 40_000

    def launch() -> None:
        nonlocal now_ns, launch_ns
        now_ns += launch_ns
        launch_ns += 3_000

    monkeypatch.setattr("collector.timing.perf_counter_ns", lambda: now_ns)
    timed = sample_launches(launch, SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=3))
    # three launches warm up; the fastest took 40 µs, so three make a sample of at least 100 µs
    assert timed.launches_per_sample == 3
    assert timed.samples_ns == (52_000, 61_000, 70_000)


def test_sampling_ends_once_the_median_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    def launch() -> None:
        nonlocal now_ns
        now_ns += 200_000

    monkeypatch.setattr("collector.timing.perf_counter_ns", lambda: now_ns)
    plan = SamplingPlan(warmup_ms=1, budget_ms=1_000, min_samples=10)
    assert sample_launches(launch, plan).samples_ns == (200_000,) * 10


def test_the_interval_of_the_median_covers_it_as_often_as_it_says() -> None:
    """In units of the interval's own width; 95 % promised, two standard errors of 1000 trials allowed."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        samples = rng.lognormal(0, 0.5, size=40)
        ordered = np.sort(samples)
        low, high = ordered[math.floor(20 - 1.96 * 40**0.5 / 2) - 1], ordered[math.ceil(20 + 1.96 * 40**0.5 / 2)]
        covered += low <= 1 <= high
        assert relative_width_of_median(list(samples)) == pytest.approx((high - low) / np.median(samples))
    assert covered >= 936


def test_few_samples_have_no_interval() -> None:
    assert relative_width_of_median([1.0] * 5) == math.inf
    assert relative_width_of_median([1.0] * 6) == 0


@pytest.mark.gpu
def test_device_time_of_a_copy_lies_near_what_the_memory_allows() -> None:
    source = torch.ones(2**28, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    timed = sample_launches(lambda: target.copy_(source), SamplingPlan(), device="cuda")
    bytes_per_s = 2**29 / statistics.median(timed.samples_ns) * 1e9
    assert timed.timer is Timer.CUDA_EVENT
    assert timed.cache is CacheState.COLD
    assert 1e11 < bytes_per_s < 2e13
