"""The benchmark's rule for single timings."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.timings import Order, compare_timings
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import Verdict

MOVED = frozenset({Verdict.IMPROVED, Verdict.REGRESSED})

Floats = NDArray[np.float64]


def taken_in_turn(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    """Timings of noise that runs through both sides, shape [2 * timings]."""
    times = 1_000.0 * np.exp(log_noise)
    return times[0::2], factor * times[1::2]


def one_after_the_other(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    times = 1_000.0 * np.exp(log_noise)
    half = len(times) // 2
    return times[:half], factor * times[half:]


def autoregression(rng: np.random.Generator, count: int, phi: float) -> Floats:
    noise = rng.standard_normal(count)
    for i in range(1, count):
        noise[i] = phi * noise[i - 1] + math.sqrt(1 - phi**2) * noise[i]
    return noise


def test_a_slowdown_of_two_percent_in_one_percent_noise_is_found() -> None:
    base, head = taken_in_turn(np.random.default_rng(1).normal(0, 0.01, 100), factor=1.02)

    judged = compare_timings(base, head, threshold=0.001)

    assert judged.verdict is Verdict.REGRESSED
    assert judged.relative_change == pytest.approx(0.02, abs=0.006)
    assert judged.log_interval[0] < math.log(1.02) < judged.log_interval[1]


def test_drift_through_interleaved_timings_cancels() -> None:
    rng = np.random.default_rng(3)
    base, head = taken_in_turn(np.linspace(0, 0.5, 80) + rng.normal(0, 0.002, 80))

    judged = compare_timings(base, head, threshold=0.01)

    assert judged.verdict is Verdict.UNCHANGED


def test_a_clear_change_between_two_steady_sides_is_found() -> None:
    base, head = one_after_the_other(np.random.default_rng(5).normal(0, 0.01, 100), factor=1.05)

    assert compare_timings(base, head, order=Order.BLOCKED).verdict is Verdict.REGRESSED


def test_a_change_that_drift_explains_is_not_paired() -> None:
    rng = np.random.default_rng(6)
    base, head = one_after_the_other(np.linspace(0, 0.1, 100) + rng.normal(0, 0.01, 100))

    judged = compare_timings(base, head, order=Order.BLOCKED, threshold=0.01)

    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason is Reason.NOT_PAIRED


NOISES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "skewed": lambda rng, count: np.exp(0.9 * rng.standard_normal(count)) - 1,
    "heavy tails": lambda rng, count: rng.standard_t(2, count),
    "outliers": lambda rng, count: rng.standard_normal(count) + 15 * (rng.random(count) < 0.05),
    "hang together": lambda rng, count: autoregression(rng, count, 0.85),
}


def alarms(kind: str, order: Order, trials: int) -> int:
    rng = np.random.default_rng(2026)
    arrange = taken_in_turn if order is Order.INTERLEAVED else one_after_the_other
    sides = [arrange(0.01 * NOISES[kind](rng, 60)) for _ in range(trials)]
    return sum(
        compare_timings(base, head, order=order, threshold=1e-9, error_rate=0.02).verdict in MOVED
        for base, head in sides
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISES)
def test_equal_interleaved_sides_keep_the_error_rate(kind: str) -> None:
    trials = 80

    # two in a hundred and three standard errors of the simulation
    assert alarms(kind, Order.INTERLEAVED, trials) <= trials * 0.02 + 3 * math.sqrt(trials * 0.02 * 0.98)


@pytest.mark.slow
def test_drift_is_a_false_alarm_in_five_percent_at_most() -> None:
    rng = np.random.default_rng(11)
    trials, accused = 60, 0
    for _ in range(trials):
        base, head = one_after_the_other(0.01 * (3 * np.linspace(0, 1, 80) + rng.standard_normal(80)))
        accused += compare_timings(base, head, order=Order.BLOCKED, threshold=1e-9, error_rate=0.02).verdict in MOVED

    assert accused <= trials * 0.05 + 3 * math.sqrt(trials * 0.05 * 0.95)
