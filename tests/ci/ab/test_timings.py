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
    assert judged.log_interval[0] < math.log(1.02) < judged.log_interval[1]


NOISE = np.random.default_rng(6).normal(0, 0.01, 100)


@pytest.mark.parametrize(
    ("timings", "order", "verdict"),
    [
        (taken_in_turn(np.linspace(0, 0.5, 100) + 0.2 * NOISE), Order.INTERLEAVED, Verdict.UNCHANGED),
        (one_after_the_other(NOISE, factor=1.05), Order.BLOCKED, Verdict.REGRESSED),
        (one_after_the_other(np.linspace(0, 0.1, 100) + NOISE), Order.BLOCKED, Verdict.INCONCLUSIVE),
    ],
    ids=["drift cancels", "a change between steady sides", "drift may be the cause"],
)
def test_drift_is_no_change(timings: tuple[Floats, Floats], order: Order, verdict: Verdict) -> None:
    judged = compare_timings(*timings, order=order, threshold=0.01)

    assert judged.verdict is verdict
    assert (judged.reason is Reason.NOT_PAIRED) == (verdict is Verdict.INCONCLUSIVE)
