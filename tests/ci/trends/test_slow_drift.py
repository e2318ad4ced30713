"""Slow changes of a history, and how much each of its values weighs."""

from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from ci.trends.history import judge_history, unconfirmed
from db.values import Regression, Series, Verdict
from tests.builders import NOON, make_commit_ref, make_series_key
from tests.ci.values import (
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
