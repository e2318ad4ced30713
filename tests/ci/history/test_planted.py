"""Planted causes among many series: each is one regression."""

from __future__ import annotations

import pytest

from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.ci.history.history import judge_history
from roofwatch.db.values import Cause
from tests.ci.planted import plant, score


@pytest.mark.parametrize("seed", [2, 3])
def test_each_planted_cause_is_one_regression(seed: int) -> None:
    # 200 series over 200 commits with nine causes; bench/grouping.py does the same at 500 by 300 by twelve
    history = plant(seed, shape_count=2, commit_count=200, single_count=3, family_count=5)

    found = judge_history(history.series)

    result = score(history, [one for one in found if one.is_alert])
    assert result.found >= result.cause_count - 1
    assert len(result.extra) <= 1, [one.summary for one in result.extra]
    (event,) = [one for one in found if one.kernel == ALL_KERNELS]
    assert event.commit.first_parent_count - 1 == next(cause.commit for cause in history.causes if cause.is_driver)
    assert event.cause is Cause.DRIVER
    assert "driver 570.86 → 570.124" in event.suspects[0].sentence
