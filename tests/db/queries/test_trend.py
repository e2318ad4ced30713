"""Series as they are drawn: long ones as a median with a band."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries import trend
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.queries.trend import BAND_QUANTILES, TrendQuestion, read_trend
from roofwatch.model.history import Series, SeriesKey, SeriesPoint
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState
from roofwatch.model.metrics import STORED
from roofwatch.model.stored_results import Trend
from tests.builders import (
    PROJECT,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_series_key,
    sha_of,
)
from tests.dashboard.gpu_history import HOT_AT, SOFTMAX, gpu_record
from tests.databases import Databases, ingest_all
from tests.db.made_up_store import Shape, fill
from tests.db.queries.test_series import varied_records

LONG = Shape("thinned", run_count=4_000, series_count=2, day_count=60)
KEY = SeriesKey(LONG.project(0), LONG.case_id(0), "triton", "median_ns", runner_class="made up")
HIGH_AT, LOW_AT, CRASHED_AT, UPDATED_AT, ASKED_AT = 1_111, 1_777, 2_222, 2_999, 3_333


@pytest.fixture(scope="module")
def long_history(databases: Databases) -> Iterator[Engine]:
    """Thousands of runs, of which one is slow, one fast, one crashed, and later ones had another
    toolchain.
    """
    with databases.store() as engine:
        fill(engine, LONG, 0)
        with engine.begin() as connection:
            for statement in (
                "UPDATE measurement SET median_ns = median_ns * 50, q1_ns = q1_ns * 50, q3_ns = "
                "q3_ns * 50 "
                f"WHERE run_number = {HIGH_AT}",
                f"UPDATE measurement SET median_ns = 1, q1_ns = 1, q3_ns = 1 WHERE run_number = "
                f"{LOW_AT}",
                "UPDATE measurement SET median_ns = NULL, q1_ns = NULL, q3_ns = NULL, "
                "sample_count = NULL, block_count = NULL, "
                f"{', '.join(f'{metric.key} = NULL' for metric in STORED)}, "
                f"outcome = 'crashed' WHERE run_number = {CRASHED_AT}",
                "INSERT INTO environment SELECT (jsonb_populate_record(environment, "
                """'{"id": 4711, "fingerprint": "other", "torch_version": "2.14"}')).* FROM environment""",
                f"UPDATE run SET environment_id = 4711 WHERE number >= {UPDATED_AT}",
            ):
                connection.execute(text(statement))
        yield engine


def trend_of(engine: Engine, question: TrendQuestion) -> Trend:
    with Session(engine) as session:
        return read_trend(session, question)


def whole_series(engine: Engine) -> Series:
    with Session(engine) as session:
        return read_series(session, KEY.project, keys=[KEY])[0]


def test_short_series_of_every_layer_are_those_that_are_read_whole(store: Engine) -> None:
    ingest_all(store, *varied_records())
    with Session(store) as session:
        keys = tuple(list_series_keys(session, PROJECT))
        whole = {one.key: one.points for one in read_series(session, PROJECT, keys=keys)}

    trend = trend_of(store, TrendQuestion(PROJECT, keys))

    assert {key.metric for key in keys} >= {"median_ns", "flop_per_s", "rmse_ratio", "registers"}
    assert [one.key for one in trend.series] == list(keys)
    for one in trend.series:
        assert one.points == whole[one.key], one.key
    commits = sorted({point.commit for points in whole.values() for point in points})
    assert trend.places == {commit.sha: place for place, commit in enumerate(commits)}
    assert (trend.commit_count, trend.is_thinned) == (len(commits), False)


def test_a_long_series_is_a_band_without_loss_of_events(long_history: Engine) -> None:
    whole = whole_series(long_history)
    trend = trend_of(long_history, TrendQuestion(KEY.project, (KEY,)))

    (thinned,) = trend.series
    assert len(thinned.points) <= 160
    assert trend.is_thinned
    assert (trend.run_count, trend.commit_count) == (LONG.run_count, LONG.run_count)
    assert [point.outcome for point in thinned.points if point.value is None] == [Outcome.CRASHED]
    stretches: dict[int, list[SeriesPoint]] = {}
    for place, point in enumerate(whole.points):
        stretches.setdefault(place * 150 // len(whole.points), []).append(point)
    assert len(thinned.band) == len(stretches) == 150
    for drawn, stretch in zip(thinned.band, stretches.values(), strict=True):
        values = [point.value for point in stretch if point.value is not None]
        assert [drawn.low, drawn.median, drawn.high] == pytest.approx(
            np.quantile(values, BAND_QUANTILES)
        )
        assert (drawn.commit, drawn.run_count) == (
            stretch[(len(stretch) - 1) // 2].commit,
            len(values),
        )
    assert thinned.points[-1] == whole.points[-1]
    of_run = dict(enumerate(whole.points, start=1))
    assert of_run[UPDATED_AT].commit.sha in {point.commit.sha for point in thinned.points}
    assert {
        dict(point.setting.toolchain)["torch"] for point in thinned.points if point.setting
    } == {"2.13", "2.14"}
    assert list(thinned.points) == [point for point in whole.points if point in thinned.points]
    assert trend.places == {
        point.commit.sha: place
        for place, point in enumerate(whole.points)
        if point.commit.sha in {kept.commit.sha for kept in thinned.points}
    }


def test_commits_that_are_asked_for_stay_with_the_one_before(long_history: Engine) -> None:
    whole = whole_series(long_history)
    plain = {
        point.commit.sha
        for point in trend_of(long_history, TrendQuestion(KEY.project, (KEY,))).series[0].points
    }
    at = next(
        place
        for place in range(ASKED_AT, LONG.run_count)
        if whole.points[place].commit.sha not in plain
    )
    asked, before = whole.points[at].commit.sha, whole.points[at - 1].commit.sha

    trend = trend_of(long_history, TrendQuestion(KEY.project, (KEY,), kept_commits=(asked,)))

    assert {asked, before} <= {point.commit.sha for point in trend.series[0].points}


def test_a_range_of_dates_has_the_commits_from_its_first_to_its_last_day(
    long_history: Engine,
) -> None:
    commits = [point.commit for point in whole_series(long_history).points]
    first, last = commits[200], commits[299]
    question = TrendQuestion(KEY.project, (KEY,), since=first.committed_at, until=last.committed_at)

    within = trend_of(long_history, question)

    assert [point.commit for point in within.series[0].points] == commits[200:300]
    assert (within.commit_count, min(within.places.values())) == (100, 0)


def test_two_series_share_one_axis(store: Engine) -> None:
    other = make_series_key(implementation="triton")
    ingest_record(store, make_record(0, measurements=[make_measurement()]))
    ingest_record(store, make_record(1, measurements=[make_measurement(implementation="triton")]))
    ingest_record(
        store,
        make_record(
            2, measurements=[make_measurement()], environment=make_environment(thread_count=3)
        ),
    )

    trend = trend_of(store, TrendQuestion(PROJECT, (other, make_series_key())))

    assert [series.key for series in trend.series] == [other, make_series_key()]
    assert [len(series.points) for series in trend.series] == [1, 1]
    assert trend.places == {sha_of(0): 0, sha_of(1): 1}


def test_a_trend_of_nothing_is_empty(store: Engine) -> None:
    ingest_record(store, make_record(0, measurements=[make_measurement()]))
    unmeasured = make_series_key(implementation="none")

    assert trend_of(store, TrendQuestion(PROJECT, ())) == Trend((), {}, 0, 0)
    assert trend_of(store, TrendQuestion(PROJECT, (unmeasured,))).series == ()


def test_a_branch_shows_what_was_measured_under_its_name(store: Engine) -> None:
    ingest_all(store, make_record(0), make_record(1, commit=make_commit(1, branch="faster")))
    question = TrendQuestion(PROJECT, (make_series_key(),))

    assert [*trend_of(store, question).places] == [sha_of(0)]
    assert [*trend_of(store, replace(question, branches=("faster",))).places] == [
        make_commit(1, branch="faster").sha
    ]


def test_thinning_keeps_the_first_point_of_a_new_way_of_timing(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trend, "MAX_POINTS", 4)
    monkeypatch.setattr(trend, "_MIN_POINTS", 4)
    for number in range(60):
        cache = CacheState.HOT if number < 41 else CacheState.COLD
        ingest_record(store, make_record(number, measurements=[make_measurement(cache=cache)]))

    with Session(store) as session:
        keys = list_series_keys(session, PROJECT, metric="median_ns")
    (series,) = trend_of(store, TrendQuestion(PROJECT, tuple(keys))).series

    timings = {point.commit.sha: point.timing for point in series.points}
    assert len(timings) < 60
    assert timings[sha_of(0)] == "perf_counter, hot"
    assert timings[sha_of(41)] == "perf_counter, cold"


def test_a_point_says_whether_the_device_was_degraded(store: Engine) -> None:
    ingest_all(store, *(gpu_record(number) for number in (HOT_AT - 1, HOT_AT)))

    with Session(store) as session:
        keys = list_series_keys(session, PROJECT, cases=[SOFTMAX], metric="utilisation")
    found = trend_of(store, TrendQuestion(PROJECT, tuple(keys)))

    by_implementation = {
        series.key.implementation: [point.degraded_by for point in series.points]
        for series in found.series
    }
    assert by_implementation["triton"] == [(), ("throttled or shared",)]
    assert by_implementation["torch"] == [(), ()]
