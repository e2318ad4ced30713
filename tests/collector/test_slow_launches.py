"""Kernels so slow that a block has no room for its usual samples, on a clock that only launches move."""

import pytest

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.collector.timing.timing import relative_width_of_median, sample_launches
from roofwatch.collector.workers.protocol import Failure, TimedBlock, check_limit, compile_limit, explained


def timed(monkeypatch: pytest.MonkeyPatch, launch_s: float, preset: Preset) -> tuple[TimedBlock, float]:
    """A block of launches that take turns to last so long and a fifth longer, and the seconds of all of them."""
    now_ns, count = 0, 0

    def launch() -> None:
        nonlocal now_ns, count
        count += 1
        now_ns += int(launch_s * 1e9 * (1.2 if count % 2 else 1.0))

    for module in ("stopwatch", "timing"):
        monkeypatch.setattr(f"roofwatch.collector.timing.{module}.perf_counter_ns", lambda: now_ns)
    return sample_launches(launch, EFFORTS[preset].sampling), now_ns / 1e9


@pytest.mark.parametrize("preset", Preset)
def test_a_slow_kernel_has_as_many_samples_as_an_interval_takes_and_is_done_in_time(
    preset: Preset, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, spent_s = timed(monkeypatch, 4.5, preset)

    assert len(taken.block.samples_ns) == 6
    assert 0 < relative_width_of_median(taken.block.samples_ns) < 1
    assert taken.block.stopped_by == "budget"
    assert spent_s < RunPlan(sampling=EFFORTS[preset].sampling).block_timeout_s


@pytest.mark.parametrize("preset", [Preset.QUICK, Preset.GATE])
def test_a_block_of_a_noisy_kernel_ends_with_its_time_whatever_samples_it_would_like(
    preset: Preset, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, spent_s = timed(monkeypatch, 1.0, preset)

    assert 6 < len(taken.block.samples_ns) < EFFORTS[preset].sampling.min_samples
    assert spent_s <= 15 + 1.2 + max(3 * 1.2, EFFORTS[preset].sampling.warmup_ms / 1e3 + 1.2)


def test_what_is_not_done_in_time_says_what_the_limit_is_made_of_and_the_way_out() -> None:
    plan = RunPlan(sampling=EFFORTS[Preset.GATE].sampling, launch_timeout_s=5)
    failure = explained(Failure(outcome=Outcome.TIMED_OUT, message="not done after 208 s"), plan.block_timeout_in_words)

    assert failure is not None
    assert plan.block_timeout_s == 208
    assert failure.message == (
        "not done after 208 s: a block has 120 s to prepare, 3 s to warm up, 15 s of samples and 14 launches of 5 s "
        "each; a kernel that is slower and does not hang takes a larger --launch-timeout, and one that is tuned for "
        "longer a larger --preparation-timeout"
    )


def test_each_limit_names_its_option() -> None:
    assert "a check has 300 s" in check_limit(300)
    assert "--check-timeout" in check_limit(300)
    assert "a case has 0.5 s to compile" in compile_limit(0.5)
    assert "--compile-timeout" in compile_limit(0.5)
