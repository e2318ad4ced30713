"""The view Trends: which series, of which commits, on which scale."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from roofwatch.dashboard.views.trends import commits_within
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.trend_values import Trend
from roofwatch.db.regressions.triage import regression_id
from tests.builders import make_commit, make_environment, make_measurement, make_record, sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import COMMIT_COUNT, RMS_NORM, RMS_NORM_BWD, SLOWER_AT, store_history
from tests.dashboard.test_views import address, choice, many, table, texts


def test_further_metrics_and_cases_join_the_figure_and_the_address(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="rms_norm", case=RMS_NORM, values="open")
    many(app, "Further metrics").set_value(["utilisation"]).run()
    many(app, "Beside it").set_value([RMS_NORM_BWD]).run()

    assert not app.exception
    assert address(app)["further"] == ["utilisation"]
    assert address(app)["beside"] == [RMS_NORM_BWD]
    assert "utilisation" in texts(app)


@pytest.mark.slow
def test_every_scale_draws_without_an_error(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    for scale in ("relative", "logarithmic", "absolute"):
        app = open_view("trends", kernel="rms_norm", case=RMS_NORM, scale=scale)
        assert not app.exception
        assert choice(app, "Scale").value == scale


@pytest.mark.slow
def test_what_has_no_option_is_offered_only_where_an_address_asks_for_one(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="matmul")
    assert COMMIT_COUNT <= 100
    assert "Commits" not in {box.label for box in app.selectbox}
    assert "Beside it" not in {box.label for box in app.multiselect}
    assert not app.warning

    app = open_view("trends", kernel="matmul", beside="no/such")
    assert "beside it" in app.warning[0].value


@pytest.mark.slow
def test_a_window_shows_as_many_commits_as_it_says_and_can_end_anywhere(open_view: OpenView, store: Engine) -> None:
    for number in range(130):
        ingest_record(store, make_record(number, measurements=[make_measurement()]))
    app = open_view("trends", window="100", values="open")
    assert app.dataframe[-1].value["commit"].tolist() == [sha_of(number)[:8] for number in range(30, 130)]

    app = open_view("trends", window="100", end=sha_of(109), values="open")
    assert app.dataframe[-1].value["commit"].tolist() == [sha_of(number)[:8] for number in range(10, 110)]


def test_a_runner_that_measured_a_branch_alone_is_offered_where_that_branch_is_chosen(
    open_view: OpenView, store: Engine
) -> None:
    elsewhere, on_main = make_environment(device_name="Other CPU"), make_environment()
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1, commit=make_commit(1, branch="faster"), environment=elsewhere))

    def offered(app: AppTest) -> list[str]:
        """By the view, not by the filters."""
        *_, box = (box for box in app.multiselect if box.label == "Runner class")
        return list(box.options)

    assert offered(open_view("trends")) == [on_main.runner_class]
    app = open_view("trends", branch="faster", values="open", runner=elsewhere.runner_class)
    assert offered(app) == [on_main.runner_class, elsewhere.runner_class]
    assert table(app, "value")["commit"].tolist() == [sha_of(1)[:8]]
    nothing = open_view("trends", branch="faster", runner=on_main.runner_class)
    assert "Nothing of these series was measured on the chosen branch" in texts(nothing)


def test_a_box_over_a_trend_is_the_first_and_last_commit_beneath_it() -> None:
    trend = Trend((), {"a": 0, "b": 1, "d": 3, "e": 4}, 5, 5)
    assert commits_within(trend, [{"x": [3.6, 0.7]}]) == ("b", "d")
    assert commits_within(trend, [{"x": [0.6, 1.4]}]) is None
    assert commits_within(trend, []) is None


def test_any_stretch_of_a_history_can_be_asked_for(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="rms_norm", case=RMS_NORM, window="3", end=sha_of(COMMIT_COUNT - 2), values="open")
    shown = [sha_of(number)[:8] for number in range(COMMIT_COUNT - 4, COMMIT_COUNT - 1)]
    assert sorted(set(app.dataframe[-1].value["commit"])) == sorted(shown)
    assert address(app)["window"] == ["3"]
    assert address(app)["end"] == [sha_of(COMMIT_COUNT - 2)]


@pytest.mark.slow
def test_a_commit_that_the_address_pins_tells_who_made_it_what_was_measured_and_where_to_look_further(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    commit = make_commit(SLOWER_AT)
    app = open_view("trends", kernel="rms_norm", case=RMS_NORM, commit=commit.sha)
    said = texts(app)
    for part in (commit.sha[:8], commit.author, commit.subject, "◆ regressed +42.0%"):
        assert part in said
    runs = table(app, "measured at")
    assert runs["value"].tolist() == ["7.98 µs", "14.2 µs"]
    links = {one.proto.label: one.proto.query_string for one in app.get("page_link")}
    assert f"commit={commit.sha}" in links["Why"]
    assert f"base={sha_of(SLOWER_AT - 1)}" in links[f"Compare with {sha_of(SLOWER_AT - 1)[:8]}"]
    assert address(app)["commit"] == [commit.sha]


def test_a_link_to_why_opens_the_regression_of_that_commit(open_view: OpenView, store: Engine) -> None:
    slower = store_history(store)[0]
    app = open_view("regression", commit=slower.commit.sha)
    assert slower.summary in texts(app)
    assert address(app)["regression"] == [str(regression_id(slower))]


def test_a_reader_who_asks_for_nothing_sees_the_newest_regression_that_stands(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    app = open_view("trends")
    assert choice(app, "Kernel").value == "rms_norm"
    assert choice(app, "Case").value == RMS_NORM_BWD
