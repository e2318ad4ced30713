"""The line of a level: what is told of it by the width of its noise alone."""

import numpy as np
import pytest

from bench.detector_series import NOISES
from roofwatch.ci.changepoint.baseline import fit_slope, is_drifting, may_drift, residuals_of
from roofwatch.ci.changepoint.noise import deviation_of, estimate_noise, tick_of

FLOOR = 0.001


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("is_sticky", [False, True])
def test_what_may_not_drift_does_not_whatever_is_learnt_of_its_noise(kind: str, *, is_sticky: bool) -> None:
    told = set()
    for seed, per_value in ((seed, rise) for seed in range(12) for rise in (0.0, 1e-5, 1e-4, 1e-3)):
        values = 0.01 * NOISES[kind](90, np.random.default_rng(seed)) + per_value * np.arange(90)
        slope = fit_slope(values, FLOOR)
        left = residuals_of(values, slope)
        tick = tick_of(left)
        deviation = deviation_of(left, floor=FLOOR, tick=tick)
        noise = estimate_noise(left, [], np.zeros(90, dtype=bool), is_sticky=is_sticky, floor=FLOOR, tick=tick)

        assert deviation == noise.deviation
        told.add((may_drift(slope, left, deviation), is_drifting(slope, left, noise)))

    assert (False, True) not in told
    assert (True, True) in told
