"""Planted causes among many series: each is one regression."""

from __future__ import annotations

import pytest

from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.ci.history.history import judge_history
from roofwatch.db.values import Cause
from tests.ci.planted import PlantedHistory, plant, score


@pytest.fixture(scope="module", params=[2, 3])
def history(request: pytest.FixtureRequest) -> PlantedHistory:
    """200 series over 200 commits with nine causes; bench/grouping.py does the same at 500 by 300 by twelve."""
    return plant(request.param, shape_count=2, commit_count=200, single_count=3, family_count=5)


def test_each_planted_cause_is_one_regression(history: PlantedHistory) -> None:
    alerts = [found for found in judge_history(history.series) if found.is_alert]

    result = score(history, alerts)

    assert result.found >= result.cause_count - 1
    assert len(result.extra) <= 1, [found.summary for found in result.extra]


@pytest.mark.slow
def test_the_driver_is_one_event_with_the_driver_as_its_cause(history: PlantedHistory) -> None:
    driver = next(cause for cause in history.causes if cause.is_driver)

    events = [found for found in judge_history(history.series) if found.kernel == ALL_KERNELS]

    (event,) = events
    assert event.commit.first_parent_count - 1 == driver.commit
    assert event.cause is Cause.DRIVER
    assert "driver 570.86 → 570.124" in event.suspects[0].sentence
