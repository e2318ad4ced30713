"""Single timings without blocks: what is told, what cannot be told, and how often it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofwatch.ci.ab.timings import MIN_TIMINGS, Order, compare_timings
from roofwatch.ci.reason import Reason
from roofwatch.db.values import Verdict

FLIPPED = {Verdict.IMPROVED: Verdict.REGRESSED, Verdict.REGRESSED: Verdict.IMPROVED}
MOVED = frozenset(FLIPPED)

Floats = NDArray[np.float64]

times_ns = st.floats(min_value=1.0, max_value=1e12)
sides_ns = st.lists(st.tuples(times_ns, times_ns), min_size=1, max_size=24)


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


# --- verdicts


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


def test_fewer_timings_than_eight_decide_nothing() -> None:
    judged = compare_timings([1.0] * (MIN_TIMINGS - 1), [2.0] * (MIN_TIMINGS - 1))

    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason is Reason.TOO_FEW_BLOCKS


# --- one side after the other


def test_a_clear_change_between_two_steady_sides_is_found() -> None:
    base, head = one_after_the_other(np.random.default_rng(5).normal(0, 0.01, 100), factor=1.05)

    assert compare_timings(base, head, order=Order.BLOCKED).verdict is Verdict.REGRESSED


def test_what_a_drift_explains_is_inconclusive_and_says_so() -> None:
    rng = np.random.default_rng(6)
    base, head = one_after_the_other(np.linspace(0, 0.1, 100) + rng.normal(0, 0.01, 100))

    judged = compare_timings(base, head, order=Order.BLOCKED, threshold=0.01)

    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason is Reason.NOT_PAIRED


# --- properties


@given(sides=sides_ns)
@settings(max_examples=60)
def test_swapping_the_sides_flips_the_verdict_and_nothing_else(sides: list[tuple[float, float]]) -> None:
    base, head = [side[0] for side in sides], [side[1] for side in sides]

    there, back = compare_timings(base, head), compare_timings(head, base)

    assert back.verdict is FLIPPED.get(there.verdict, there.verdict)
    assert back.log_ratio == pytest.approx(-there.log_ratio, abs=1e-6)
    assert back.log_interval == pytest.approx((-there.log_interval[1], -there.log_interval[0]), abs=1e-6)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("factor", [1e-6, 1 / 3, 1e6])
def test_scaling_all_timings_changes_nothing(factor: float, order: Order) -> None:
    for seed in range(5):
        base, head = taken_in_turn(np.random.default_rng(seed).normal(0, 0.01, 60), factor=1.02)

        there = compare_timings(base, head, order=order, threshold=0.005)
        scaled = compare_timings(factor * base, factor * head, order=order, threshold=0.005)

        assert scaled.verdict is there.verdict
        assert scaled.log_interval == pytest.approx(there.log_interval, abs=1e-6)


# --- calibration: the numbers of docs/explanation/verdicts.md


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
def test_of_a_hundred_equal_interleaved_sides_two_are_accused_at_an_error_rate_of_two(kind: str) -> None:
    trials = 80

    # two in a hundred and three standard errors of the simulation
    assert alarms(kind, Order.INTERLEAVED, trials) <= trials * 0.02 + 3 * math.sqrt(trials * 0.02 * 0.98)


@pytest.mark.slow
def test_drift_makes_one_of_twenty_sides_look_changed_at_most() -> None:
    rng = np.random.default_rng(11)
    trials, accused = 60, 0
    for _ in range(trials):
        base, head = one_after_the_other(0.01 * (3 * np.linspace(0, 1, 80) + rng.standard_normal(80)))
        accused += compare_timings(base, head, order=Order.BLOCKED, threshold=1e-9, error_rate=0.02).verdict in MOVED

    assert accused <= trials * 0.05 + 3 * math.sqrt(trials * 0.05 * 0.95)
