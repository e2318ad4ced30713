"""Long series with fewer points."""

from __future__ import annotations

import random

from collector.part import Outcome
from dashboard.thinning import thin
from tests.builders import sha_of
from tests.dashboard.values import make_series

GENERATOR = random.Random(7)
VALUES: list[float | None] = [GENERATOR.uniform(9_000, 11_000) for _ in range(5_000)]


def test_a_short_series_stays_as_it_is() -> None:
    series = make_series(VALUES[:100])

    assert thin(series, most=100) is series


def test_the_extremes_of_every_stretch_stay() -> None:
    series = make_series([*VALUES[:1_234], 50_000.0, *VALUES[1_234:3_000], 1.0, *VALUES[3_000:]])

    thinned = thin(series, most=300)

    values = [point.value for point in thinned.points]
    assert len(values) <= 300
    assert {50_000.0, 1.0, series.points[0].value, series.points[-1].value} <= set(values)
    assert list(thinned.points) == sorted(thinned.points, key=lambda point: point.commit)


def test_one_failure_among_thousands_of_runs_is_still_seen() -> None:
    thinned = thin(make_series([*VALUES[:2_500], None, *VALUES[2_500:]]), most=300)

    assert [point.outcome for point in thinned.points if point.value is None] == [Outcome.CRASHED]


def test_the_commits_of_change_points_stay() -> None:
    flat = make_series([10_000.0] * 1_000)

    assert 777 not in {point.commit.first_parent_count - 1 for point in thin(flat, most=100).points}
    kept = thin(flat, kept_commits={sha_of(777)}, most=100)
    assert 777 in {point.commit.first_parent_count - 1 for point in kept.points}


def test_a_series_that_only_failed_keeps_its_ends() -> None:
    thinned = thin(make_series([None] * 1_000), most=60)

    assert thinned.points[0].commit.first_parent_count == 1
    assert thinned.points[-1].commit.first_parent_count == 1_000
