import math
from collections.abc import Callable

import numpy as np
import pytest

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.memory import CacheFlush, Copies
from roofwatch.collector.timing.method import SamplingPlan, TimingMethod
from roofwatch.collector.timing.stopwatch import Ranks, Sample
from roofwatch.collector.timing.timing import relative_width_of_median, sample_launches


def set_clock(monkeypatch: pytest.MonkeyPatch, now_ns: Callable[[], int]) -> None:
    for module in ("stopwatch", "timing"):
        monkeypatch.setattr(f"roofwatch.collector.timing.{module}.perf_counter_ns", now_ns)


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_budget_that_is_spent_still_gives_the_least_number_of_samples() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=5)
    timed = sample_launches(lambda: sum(range(50_000)), plan)
    assert len(timed.block.samples_ns) == 5
    assert timed.method == TimingMethod(Timer.PERF_COUNTER, CacheState.HOT)


def test_no_more_than_the_greatest_number_of_samples_is_taken() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=1e9, min_samples=2, max_samples=12, relative_width=0)
    assert len(sample_launches(Counter(), plan).block.samples_ns) == 12


def test_a_launch_too_short_for_the_timer_is_repeated_inside_a_sample_and_counted() -> None:
    launch = Counter()
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=5)
    timed = sample_launches(launch, plan)
    assert timed.launches_per_sample > 100
    assert launch.calls == 3 + 5 * timed.launches_per_sample


def test_a_later_block_takes_as_many_launches_per_sample_as_it_is_told() -> None:
    plan = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=10)
    assert sample_launches(Counter(), plan, launches_per_sample=3).launches_per_sample == 3


class SlowCompanion(Ranks):
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

    set_clock(monkeypatch, lambda: now_ns)
    companion = SlowCompanion()
    timed = sample_launches(launch, SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=4), ranks=companion)
    assert list(timed.block.samples_ns) == [150_000.0] * 4
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

    set_clock(monkeypatch, lambda: now_ns)
    timed = sample_launches(launch, SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=3))
    # three launches warm up; the fastest took 40 µs, so three make a sample of at least 100 µs
    assert timed.launches_per_sample == 3
    assert timed.block.samples_ns == (52_000, 61_000, 70_000)


def test_sampling_ends_once_the_median_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    def launch() -> None:
        nonlocal now_ns
        now_ns += 200_000

    set_clock(monkeypatch, lambda: now_ns)
    plan = SamplingPlan(warmup_ms=1, budget_ms=1_000, min_samples=10)
    assert sample_launches(launch, plan).block.samples_ns == (200_000,) * 10


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


def test_why_sampling_ended_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only launches move, by 200 µs and then by 300, and so on by turns."""
    now_ns = 0

    def launch() -> None:
        nonlocal now_ns
        now_ns += 200_000 if now_ns % 500_000 == 0 else 300_000

    set_clock(monkeypatch, lambda: now_ns)

    def stopped_by(**plan: float) -> str | None:
        nonlocal now_ns
        now_ns = 0
        return sample_launches(launch, SamplingPlan(warmup_ms=0, **plan)).block.stopped_by  # type: ignore[arg-type]

    assert stopped_by(relative_width=0.6) == "precision"
    assert stopped_by(budget_ms=20) == "budget"
    assert stopped_by(max_samples=40) == "samples"


def test_precision_ends_nothing_before_patience_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    def launch() -> None:
        nonlocal now_ns
        now_ns += 200_000

    set_clock(monkeypatch, lambda: now_ns)

    def sample_count(**plan: float) -> int:
        plan_of = SamplingPlan(warmup_ms=0, budget_ms=1_000, **plan)  # type: ignore[arg-type]
        return len(sample_launches(launch, plan_of).block.samples_ns)

    assert sample_count() == 10
    assert 100 <= sample_count(patience_ms=20) <= 120
    assert 50 <= sample_count(patience_samples=50) <= 60
    assert sample_count(patience_ms=20, patience_samples=50) == sample_count(patience_ms=20)


def test_what_is_done_between_launches_is_paid_from_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of 1 ms, before each of which the cache is overwritten for 9 ms."""
    now_ns = 0

    def pass_time(elapsed_ns: int) -> None:
        nonlocal now_ns
        now_ns += elapsed_ns

    set_clock(monkeypatch, lambda: now_ns)
    monkeypatch.setattr("roofwatch.collector.timing.timing.cache_preparation", lambda *_: lambda: pass_time(9_000_000))
    plan = SamplingPlan(warmup_ms=0, budget_ms=300, relative_width=-1)
    timed = sample_launches(
        lambda: pass_time(1_000_000), plan, method=TimingMethod(Timer.PERF_COUNTER, CacheState.COLD)
    )

    assert list(timed.block.samples_ns) == [1_000_000.0] * 30
    assert timed.block.stopped_by == "budget"


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine whose last-level cache holds a MiB, so that filling it twice takes no time."""
    for module in ("memory", "timing"):
        monkeypatch.setattr(f"roofwatch.collector.timing.{module}.last_level_cache_bytes", lambda _device: 2**20)
    return 2**20


PLAN = SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=5)


def test_on_a_cold_cache_each_sample_is_one_launch_after_overwriting_twice_the_cache(
    small_cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    flush = CacheFlush.__call__

    def noted_flush(cache: CacheFlush) -> None:
        happened.append("flush")
        flush(cache)

    monkeypatch.setattr(CacheFlush, "__call__", noted_flush)
    timed = sample_launches(
        lambda: happened.append("launch"), PLAN, method=TimingMethod(Timer.PERF_COUNTER, CacheState.COLD)
    )

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
        PLAN,
        method=TimingMethod(Timer.PERF_COUNTER, CacheState.ROTATED),
        copies=Copies(make, touched_bytes=small_cache / 4),
    )

    assert called[:18] == [*range(8), *range(8), 0, 1]


class Scripted:
    """A stopwatch whose samples are given."""

    method = TimingMethod(Timer.CUPTI, CacheState.COLD)

    def __init__(self, *samples: Sample) -> None:
        self._samples = list(samples)

    def rehearse(self) -> float:
        return 1.0

    def launches_for(self, launch_ns: float) -> int:  # noqa: ARG002  of any length
        return 1

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        assert launches == 1
        taken, self._samples = self._samples[:sample_count], self._samples[sample_count:]
        return taken


def test_a_block_holds_what_the_timer_tells_beside_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        Sample(busy_ns=100, span_ns=150, host_ns=900, launch_delay_ns=30, kernels=("a", "b")),
        Sample(busy_ns=110, span_ns=140, host_ns=700, launch_delay_ns=10, kernels=("a", "b")),
        Sample(busy_ns=120, span_ns=160, host_ns=800, launch_delay_ns=20, kernels=("a", "b", "memset")),
    ]
    monkeypatch.setattr("roofwatch.collector.timing.timing.make_stopwatch", lambda *_, **__: Scripted(*samples))
    block = sample_launches(Counter(), SamplingPlan(warmup_ms=0, budget_ms=0, min_samples=3)).block

    assert (block.samples_ns, block.span_ns) == ((100, 110, 120), (150, 140, 160))
    assert (block.host_ns, block.launch_delay_ns) == (800, 20)
    assert (block.kernel_count, block.is_kernel_set_varying) == (3, True)
