"""Suspicions of the newest values of a series."""

from __future__ import annotations

import numpy as np
import pytest

from roofwatch.ci.changepoint.suspicion import find_suspicion

EDGE = 0.03


def noisy(count: int, *, seed: int, noise: float = 0.004) -> list[float]:
    generator = np.random.default_rng(seed)
    return list(1_000.0 * np.exp(generator.normal(0, noise, size=count)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("factor", [1.09, 1 / 1.09])
def test_a_step_of_nine_percent_is_suspected_from_its_first_value(seed: int, factor: float) -> None:
    values = noisy(20, seed=seed)
    values[-1] *= factor

    found = find_suspicion(values, min_relative_change=EDGE)

    assert found is not None
    assert found.value_count == 1
    assert (found.log_change > 0) == (factor > 1)


def test_a_kernel_ten_times_slower_after_four_values_is_suspected() -> None:
    found = find_suspicion([100.0, 101.0, 99.0, 100.0, 1_000.0], min_relative_change=EDGE)

    assert found is not None
    assert found.noise_widths > 10


def test_at_most_one_value_in_ten_of_pure_noise_is_suspected() -> None:
    prefixes = [
        noisy(60, seed=seed, noise=0.02)[:end] for seed in range(20) for end in range(10, 60)
    ]

    suspected = [find_suspicion(values, min_relative_change=EDGE) for values in prefixes]

    assert sum(found is not None for found in suspected) <= 0.1 * len(prefixes)


def test_too_few_values_raise_no_suspicion() -> None:
    assert find_suspicion([1.0, 5.0, 9.0, 5.0], min_relative_change=EDGE) is None


def test_a_level_that_stays_raises_no_suspicion() -> None:
    assert find_suspicion([7.0] * 30, min_relative_change=EDGE) is None


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_all_values_changes_nothing(scale: float) -> None:
    values = [*noisy(20, seed=3), 1_100.0, 1_098.0]

    base = find_suspicion(values, min_relative_change=EDGE)
    scaled = find_suspicion([scale * value for value in values], min_relative_change=EDGE)

    assert base is not None
    assert scaled is not None
    assert scaled.noise_widths == pytest.approx(base.noise_widths)
