"""Trends: choice of series, commits and scale."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from roofwatch.dashboard.components.trend import window_of
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import Trend
from tests.builders import make_commit, make_environment, make_measurement, make_record, sha_of
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import BROKEN_AT, COMMIT_COUNT, RMS_NORM, RMS_NORM_BWD, SLOWER_AT
from tests.dashboard.seen import address, choice, many, table, texts


@pytest.mark.usefixtures("judged")
def test_trends_list_stored_change_points_with_commit_and_standing(open_view: OpenView) -> None:
    changes = table(open_view("roof", kernel="rms_norm", case=RMS_NORM), "verdict")
    assert changes.to_dict("records") == [
        {
            "verdict": "regressed",
            "status": "open, confirmed",
            "implementation": "torch",
            "change": pytest.approx(0.42),
            "cause": "code",
            "level": "10 µs → 14.2 µs",
            "commit": sha_of(SLOWER_AT)[:8],
            "author": "Test Author",
            "subject": f"Change number {SLOWER_AT}",
            "evidence": "median rose from 10 µs to 12 µs",
        }
    ]


@pytest.mark.usefixtures("judged")
def test_trends_open_on_the_newest_open_regression_whose_failed_runs_have_no_value(
    open_view: OpenView,
) -> None:
    app = open_view("roof", values="open")
    assert choice(app, "Kernel").value == "rms_norm"
    assert choice(app, "Case").value == RMS_NORM_BWD
    values = table(app, "value")
    assert values["value"].isna().tolist() == [
        number >= BROKEN_AT for number in range(COMMIT_COUNT)
    ]
    assert values["outcome"][BROKEN_AT] == "incorrect"


def test_trends_offer_unsupported_implementations_only_without_others(
    open_view: OpenView, store: Engine
) -> None:
    never = make_measurement(implementation="triton", outcome=Outcome.UNSUPPORTED)
    ingest_record(store, make_record(0, measurements=[never]))
    assert many(open_view("roof"), "Implementations").options == ["triton"]
    ingest_record(
        store, make_record(1, measurements=[never, make_measurement(implementation="torch")])
    )
    forget_everything()
    assert many(open_view("roof"), "Implementations").options == ["torch"]


def test_runs_of_uncommitted_changes_are_shown_only_on_request(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0, commit=make_commit(0, is_dirty=True)))
    assert "no series yet" in texts(open_view("roof"))
    assert len(table(open_view("roof", dirty="yes", values="open"), "value")) == 1


@pytest.mark.usefixtures("judged")
def test_further_metrics_and_cases_join_the_figure_and_the_address(open_view: OpenView) -> None:
    app = open_view("roof", kernel="rms_norm", case=RMS_NORM, values="open")
    many(app, "Add metric").set_value(["utilisation"]).run()
    many(app, "Add case").set_value([RMS_NORM_BWD]).run()

    assert not app.exception
    assert address(app)["further"] == ["utilisation"]
    assert address(app)["beside"] == [RMS_NORM_BWD]
    assert "utilisation" in texts(app)


def test_a_runner_of_one_branch_is_offered_for_that_branch(
    open_view: OpenView, store: Engine
) -> None:
    elsewhere, on_main = make_environment(device_name="Other CPU"), make_environment()
    ingest_record(store, make_record(0))
    ingest_record(
        store, make_record(1, commit=make_commit(1, branch="faster"), environment=elsewhere)
    )

    def offered(app: AppTest) -> list[str]:
        """By the view, not by the filters."""
        *_, box = (box for box in app.multiselect if box.label == "Runner class")
        return list(box.options)

    assert offered(open_view("roof")) == [on_main.runner_class]
    app = open_view("roof", branch="faster", values="open", runner=elsewhere.runner_class)
    assert offered(app) == [on_main.runner_class, elsewhere.runner_class]
    assert table(app, "value")["commit"].tolist() == [sha_of(1)[:8]]
    nothing = open_view("roof", branch="faster", runner=on_main.runner_class)
    assert "These series have no runs on the chosen branch" in texts(nothing)


def test_a_range_becomes_the_window_of_the_commits_within() -> None:
    trend = Trend((), {"a": 0, "b": 1, "d": 3, "e": 4}, 5, 5)
    assert window_of(trend, [0.7, 3.6]) == ("3", "d")
    assert window_of(trend, [-0.6, 2.4]) == ("4", "d")
    assert window_of(trend, [1.1, 9.0]) == ("3", "e")
    assert window_of(trend, [0.6, 1.4]) is None


@pytest.mark.usefixtures("judged")
def test_the_address_may_ask_for_any_window(open_view: OpenView) -> None:
    app = open_view(
        "roof",
        kernel="rms_norm",
        case=RMS_NORM,
        window="3",
        end=sha_of(COMMIT_COUNT - 2),
        values="open",
    )
    shown = [sha_of(number)[:8] for number in range(COMMIT_COUNT - 4, COMMIT_COUNT - 1)]
    assert sorted(set(app.dataframe[-1].value["commit"])) == sorted(shown)
    assert address(app)["window"] == ["3"]
    assert address(app)["end"] == [sha_of(COMMIT_COUNT - 2)]


@pytest.mark.slow
@pytest.mark.usefixtures("judged")
def test_a_commit_in_the_address_is_shown_with_author_values_and_links(open_view: OpenView) -> None:
    commit = make_commit(SLOWER_AT)
    app = open_view("roof", kernel="rms_norm", case=RMS_NORM, commit=commit.sha)
    said = texts(app)
    for part in (commit.sha[:8], commit.author, commit.subject, "◆ regressed +42.0%"):
        assert part in said
    runs = table(app, "measured at")
    assert runs["value"].tolist() == ["7.98 µs", "14.2 µs"]
    links = {one.proto.label: one.proto.query_string for one in app.get("page_link")}
    assert f"commit={commit.sha}" in links["Details"]
    assert f"base={sha_of(SLOWER_AT - 1)}" in links[f"Compare with {sha_of(SLOWER_AT - 1)[:8]}"]
    assert address(app)["commit"] == [commit.sha]


MINE, OTHER = make_environment(), make_environment(device_name="Other CPU")
SOFTMAX, WIDE, GEMM = "softmax/n=8/float32/fwd", "softmax/n=16/float32/fwd", "gemm/M=8/float32/fwd"
BASE = {"kernel": "softmax", "case": SOFTMAX, "runner": MINE.runner_class, "values": "open"}


def runners(app: AppTest) -> Any:
    """Return the view's own choice; the filter of all views has the same label."""
    return next(box for box in app.multiselect if box.key == "roof:runner")


@pytest.fixture
def two_runners(store: Engine) -> Engine:
    for environment in (MINE, OTHER):
        measured = [make_measurement(case_id) for case_id in (SOFTMAX, WIDE, GEMM)]
        ingest_record(store, make_record(environment=environment, measurements=measured))
    return store


def test_two_runners_share_a_figure_and_an_address(
    open_view: OpenView, two_runners: Engine
) -> None:
    app = open_view("roof", **BASE)
    assert runners(app).value == [MINE.runner_class]
    assert len(app.dataframe) == 1

    runners(app).set_value([MINE.runner_class, OTHER.runner_class]).run()
    assert address(app)["runner"] == [MINE.runner_class, OTHER.runner_class]
    assert len(app.dataframe) == 2
    for environment in (MINE, OTHER):
        assert environment.runner_class in texts(app)


def test_two_kernels_share_a_figure(open_view: OpenView, two_runners: Engine) -> None:
    app = open_view("roof", **BASE)
    many(app, "Add kernel").set_value(["gemm"]).run()
    # its first case, as long as none is named
    assert address(app)["kernels"] == ["gemm"]
    assert [case in texts(app) for case in (SOFTMAX, GEMM, WIDE)] == [True, True, False]
    assert many(app, "Add case").options == [WIDE, GEMM]

    again = open_view("roof", **address(app))
    assert texts(again) == texts(app)
