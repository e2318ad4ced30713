"""What a series says of its own noise."""

from dataclasses import replace

import pytest

from roofwatch.ci.history.time_steps import series_noise
from tests.ci.values import make_point, make_series, stepped


def test_a_series_tells_its_noise_and_the_smallest_step_it_shows_however_it_stepped() -> None:
    quiet = series_noise(make_series(stepped(count=60, factor=1.4, noise=0.002)))
    noisy = series_noise(make_series(stepped(count=60, factor=1.4, noise=0.05)))

    assert quiet is not None
    assert noisy is not None
    assert quiet.deviation == pytest.approx(0.002, rel=0.4)
    assert noisy.deviation == pytest.approx(0.05, rel=0.4)
    assert quiet.minimum_detectable_change == 0.05  # less is not told however quiet it is
    assert noisy.minimum_detectable_change > 0.1


def test_what_was_timed_otherwise_does_not_count_as_noise() -> None:
    old = make_series(stepped(count=40, factor=1.0, noise=0.3)).points
    new = [
        make_point(40 + place, value, timing="cupti, cold")
        for place, value in enumerate(stepped(count=40, factor=1.0, noise=0.01))
    ]

    found = series_noise(replace(make_series([]), points=(*old, *new)))

    assert found is not None
    assert found.deviation == pytest.approx(0.01, rel=0.4)


def test_a_short_series_and_another_metric_say_nothing() -> None:
    assert series_noise(make_series(stepped(count=19, factor=1.0))) is None
    assert series_noise(make_series([])) is None
    assert series_noise(make_series(stepped(count=40, factor=1.0), metric="utilisation")) is None
