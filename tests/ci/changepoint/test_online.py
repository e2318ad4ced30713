from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofwatch.ci.changepoint.online import Alarm, OnlineDetector
from tests.ci.changepoint.detector import Detector
from tests.ci.changepoint.detector import detect_offline as detect
from tests.ci.changepoint.noises import NOISES

Values = NDArray[np.float64]


def fed(values: Values) -> list[tuple[int, Alarm]]:
    """Alarms with the number of values seen when each was raised."""
    detector = OnlineDetector(min_relative_change=0.005)
    alarms = [(seen, detector.update(float(value))) for seen, value in enumerate(values, start=1)]
    return [(seen, alarm) for seen, alarm in alarms if alarm is not None]


def series(
    seed: int, *, count: int = 140, factor: float = 1.0, at: int = 90, kind: str = "normal"
) -> Values:
    logs = 0.01 * NOISES[kind](count, np.random.default_rng(seed))
    logs[at:] += math.log(factor)
    return np.asarray(1_000 * np.exp(logs))


def test_a_step_of_six_noise_widths_is_found_within_five_values() -> None:
    found = [fed(series(seed, factor=1.06)) for seed in range(40)]

    quick = [
        any(abs(alarm.index - 90) <= 2 and seen <= 95 for seen, alarm in alarms) for alarms in found
    ]
    assert sum(quick) >= 34


@pytest.mark.parametrize(
    ("kind", "per_thousand"),
    [
        ("normal", 2),
        ("skewed", 2),
        ("outliers", 2),
        ("autocorrelated", 4),
        ("two states", 9),
        ("ramp", 3),
    ],
)
def test_noise_raises_few_false_alarms(kind: str, per_thousand: float) -> None:
    alarms = [
        alarm
        for seed in range(24)
        for _, alarm in fed(series(seed, kind=kind))
        if not alarm.is_return
    ]

    assert 1_000 * len(alarms) / (24 * 110) <= per_thousand


def test_bursts_are_alarms_only_until_the_series_has_shown_some() -> None:
    values = series(3, count=260)
    for begin in (70, 110, 150, 190):
        values[begin : begin + 6] *= 1.3

    alarms = [alarm for _, alarm in fed(values)]

    assert any(alarm.is_return and 70 < alarm.index <= 80 for alarm in alarms)
    assert not [alarm for alarm in alarms if 145 <= alarm.index <= 200]


def test_an_alarm_has_both_levels_and_the_values_it_took() -> None:
    ((seen, alarm),) = fed(series(1, factor=1.2))

    assert alarm.index == 90
    assert alarm.before == pytest.approx(1_000, rel=0.01)
    assert alarm.after == pytest.approx(1_200, rel=0.01)
    assert alarm.count_after == seen - 90
    assert not alarm.is_return


def test_a_short_history_waits_for_more_evidence_than_a_long_one() -> None:
    def delay(at: int) -> float:
        found = [fed(series(seed, count=at + 20, factor=1.06, at=at))[0][0] for seed in range(6)]
        return float(np.mean(found)) - at

    assert delay(40) > delay(90) >= 5


def test_a_distant_level_waits_for_more_values_where_bursts_are_known() -> None:
    quiet = series(5, count=180, factor=1.5, at=150)
    with_bursts = quiet.copy()
    for begin, factor in ((40, 1.4), (60, 1.7), (80, 1.3), (100, 1.9), (120, 1.6)):
        with_bursts[begin : begin + 4] *= factor

    def delay(values: Values) -> int:
        return next(seen - 150 for seen, alarm in fed(values) if alarm.index == 150)

    assert delay(with_bursts) > delay(quiet) + 2


def test_a_history_that_was_judged_whole_is_followed_from_there() -> None:
    values = series(4, factor=1.2, count=200)
    values[150:] *= 1.3
    detector = Detector()

    assert detector(values[:130]) == detect(values[:130])
    for count in range(131, 200):
        found = detector(values[:count])
    assert found == detect(values)


@given(
    values=st.lists(
        st.one_of(
            st.floats(), st.integers(-5, 5), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])
        ),
        max_size=90,
    )
)
def test_no_value_is_refused(values: list[float]) -> None:
    for seen, alarm in fed(np.array(values, dtype=float)):
        assert 0 < alarm.index < seen
