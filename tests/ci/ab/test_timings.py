"""The benchmark's rule for single timings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.timings import Order, compare_timings
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import Verdict

Floats = NDArray[np.float64]


def taken_in_turn(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    """Timings of noise that runs through both sides, shape [2 * timings]."""
    times = 1_000.0 * np.exp(log_noise)
    return times[0::2], factor * times[1::2]


def one_after_the_other(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    times = 1_000.0 * np.exp(log_noise)
    half = len(times) // 2
    return times[:half], factor * times[half:]


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
