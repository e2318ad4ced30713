"""Slow changes of a history, and how much each of its values weighs."""

import math
import re
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.db.values import Regression, Series, Verdict
from tests.builders import NOON, make_commit_ref, make_series_key
from tests.ci.values import (
    make_pair,
    make_point,
    only,
    stepped,
)


def daily(values: NDArray[np.float64]) -> Series:
    """One commit a day."""
    points = [
        make_point(number, float(value), measured_at=NOON + timedelta(days=number))
        for number, value in enumerate(values)
    ]
    return Series(make_series_key(), tuple(points))


def test_half_a_percent_a_week_is_found_with_its_start_and_its_rate() -> None:
    days = np.arange(120)
    values = np.array(stepped(count=120, factor=1.0)) * np.exp(0.005 * np.maximum(days - 50, 0) / 7)

    found = only(judge_history([daily(values)]))

    (change,) = found.change_points
    assert change.is_gradual
    assert abs(change.commit.first_parent_count - 51) <= 12
    assert found.verdict is Verdict.REGRESSED
    assert "% a week since then" in change.evidence
    assert change.relative_change == pytest.approx(0.05, abs=0.02)
    assert unconfirmed([found]) == []  # two neighbours hardly differ


def test_a_drift_that_ended_is_told_with_both_ends_and_the_rate_that_it_had() -> None:
    days = np.arange(170)
    values = np.array(stepped(count=170, factor=1.0)) * np.exp(0.005 * np.clip(days - 50, 0, 70) / 7)

    (change,) = only(judge_history([daily(values)])).change_points

    rate, until = re.findall(r"drifted by \+(\S+)% a week from then to (\w+),", change.evidence)[0]
    assert float(rate) == pytest.approx(0.5, abs=0.08)
    assert min(abs(number - 120) for number in range(170) if make_commit_ref(number).short_sha == until) <= 12
    assert abs(change.commit.first_parent_count - 51) <= 12
    assert change.relative_change == pytest.approx(0.05, abs=0.01)


def test_a_drift_that_the_detector_cuts_into_steps_is_told_as_a_drift_unless_a_pair_shows_a_step() -> None:
    days = np.arange(150)
    values = np.array(stepped(count=150, factor=1.0)) * np.exp(math.log(1.15) * np.clip((days - 50) / 70, 0, 1))

    (change,) = only(judge_history([daily(values)])).change_points
    at = find_change_points(values, min_relative_change=0.05)[-1].index
    measured_again = judge_history([daily(values)], [make_pair(at - 1, at, factor=1.07)])

    assert change.is_gradual
    assert change.relative_change == pytest.approx(0.15, abs=0.02)
    assert [one.change_points[0].is_gradual for one in measured_again if one.commit == make_commit_ref(at)] == [False]


def test_a_drift_that_begins_after_a_step_is_told_beside_it() -> None:
    days = np.arange(130)
    values = np.array(stepped(count=130, at=60, factor=0.8)) * np.exp(0.005 * np.maximum(days - 60, 0) / 7)

    slower, faster = sorted(judge_history([daily(values)]), key=lambda one: one.verdict is Verdict.IMPROVED)

    assert (slower.verdict, slower.change_points[0].is_gradual) == (Verdict.REGRESSED, True)
    assert slower.change_points[0].relative_change == pytest.approx(0.05, abs=0.02)
    assert slower.commit.first_parent_count > make_commit_ref(60).first_parent_count
    assert (faster.verdict, faster.commit) == (Verdict.IMPROVED, make_commit_ref(60))


def test_a_level_that_a_fix_brought_back_in_part_is_named() -> None:
    values = np.array(stepped(count=60, factor=1.0))
    values[20:] *= 1.4
    values[40:] /= 1.2

    worse, better = judge_history([daily(values)])

    assert worse.commit == make_commit_ref(20)
    fix = make_commit_ref(40)
    assert better.commit == fix
    assert f"a fix at {fix.short_sha} brought it back to" in worse.change_points[0].evidence
    assert "of the change is still there" in worse.change_points[0].evidence


# --- how sure each value is


def test_values_that_are_known_badly_weigh_less() -> None:
    values = stepped(count=30, at=20, factor=1.1)

    def history(spread: float) -> list[Regression]:
        points = [
            make_point(
                number,
                value,
                low=value * (1 - (spread if number >= 20 else 0.01)),
                high=value * (1 + (spread if number >= 20 else 0.01)),
                block_count=5,
            )
            for number, value in enumerate(values)
        ]
        return judge_history([Series(make_series_key(), tuple(points))])

    assert len(history(0.01)) == 1
    assert history(0.5) == []
