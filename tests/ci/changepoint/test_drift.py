from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.drift import Drift, find_drift
from tests.ci.changepoint.noises import NOISES

Values = NDArray[np.float64]


def half_a_percent_a_week(seed: int, *, quiet_after: int = 0) -> tuple[Values, Values]:
    """Eight quiet weeks, then ten in which it gets slower by half a percent each, then quiet ones;
    times in weeks.
    """
    weeks = np.arange((18 + quiet_after) * 7) / 7
    logs = 0.01 * np.random.default_rng(seed).standard_normal(len(weeks))
    return np.asarray(1_000 * np.exp(logs + math.log(1.005) * np.clip(weeks - 8, 0, 10))), weeks


def drifts_found(seed_count: int, *, quiet_after: int = 0) -> list[tuple[Drift, Values]]:
    """The drifts of those histories in which one is found, with the times in weeks."""
    histories = [half_a_percent_a_week(seed, quiet_after=quiet_after) for seed in range(seed_count)]
    return [
        (drift, weeks)
        for values, weeks in histories
        if (drift := find_drift(values, weeks)) is not None
    ]


def test_half_a_percent_a_week_over_ten_weeks_is_found_with_its_rate() -> None:
    found = drifts_found(40)

    assert len(found) >= 38
    assert all(drift.end is None for drift, _ in found)
    assert np.median([drift.rate for drift, _ in found]) == pytest.approx(0.005, rel=0.1)
    assert np.median([weeks[drift.start] for drift, weeks in found]) == pytest.approx(8, abs=1)
    assert np.median([drift.relative_change for drift, _ in found]) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("quiet_after", [8, 16])
def test_a_drift_that_ended_is_found_with_the_rate_that_it_had(
    quiet_after: int,
) -> None:
    found = drifts_found(12, quiet_after=quiet_after)

    assert len(found) >= 11
    assert np.median([drift.rate for drift, _ in found]) == pytest.approx(0.005, rel=0.1)
    assert np.median([weeks[drift.start] for drift, weeks in found]) == pytest.approx(8, abs=1)
    assert np.median(
        [weeks[drift.end] if drift.end else math.nan for drift, weeks in found]
    ) == pytest.approx(18, abs=1)
    assert np.median([drift.relative_change for drift, _ in found]) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("kind", [kind for kind in NOISES if kind != "ramp"])
def test_noise_whose_level_stays_is_no_drift(kind: str) -> None:
    found = 0
    for seed in range(30):
        found += (
            find_drift(1_000 * np.exp(0.02 * NOISES[kind](150, np.random.default_rng(seed))))
            is not None
        )

    assert found <= (4 if kind == "two states" else 1)


@pytest.mark.parametrize(("kind", "budget"), [("normal", 1), ("autocorrelated", 3)])
def test_a_step_is_no_drift(kind: str, budget: int) -> None:
    found = 0
    for seed in range(40):
        logs = 0.02 * NOISES[kind](150, np.random.default_rng(seed))
        logs[90:] += math.log(1.06)
        found += find_drift(1_000 * np.exp(logs)) is not None

    assert found <= budget
