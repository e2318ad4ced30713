"""The view Trends with several runners and kernels in one figure."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_environment, make_measurement, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.test_views import address, many, texts

MINE, OTHER = make_environment(), make_environment(device_name="Other CPU")
SOFTMAX, WIDE, GEMM = "softmax/n=8/float32/fwd", "softmax/n=16/float32/fwd", "gemm/M=8/float32/fwd"
BASE = {"kernel": "softmax", "case": SOFTMAX, "runner": MINE.runner_class, "values": "open"}


def runners(app: AppTest) -> Any:
    """The filter of all views has the same label."""
    return next(box for box in app.multiselect if box.key == "trends:runner")


@pytest.fixture
def two_runners(store: Engine) -> Engine:
    for environment in (MINE, OTHER):
        measured = [make_measurement(case_id) for case_id in (SOFTMAX, WIDE, GEMM)]
        ingest_record(store, make_record(environment=environment, measurements=measured))
    return store


def test_two_runners_share_a_figure_and_an_address(open_view: OpenView, two_runners: Engine) -> None:
    app = open_view("trends", **BASE)
    assert runners(app).value == [MINE.runner_class]
    assert len(app.dataframe) == 1

    runners(app).set_value([MINE.runner_class, OTHER.runner_class]).run()
    assert address(app)["runner"] == [MINE.runner_class, OTHER.runner_class]
    assert len(app.dataframe) == 2
    for environment in (MINE, OTHER):
        assert environment.runner_class in texts(app)


def test_a_reader_who_leaves_no_runner_sees_one_all_the_same(open_view: OpenView, two_runners: Engine) -> None:
    app = open_view("trends", **BASE)
    runners(app).set_value([]).run()
    app.run()
    assert len(runners(app).value) == 1
    assert not app.exception


def test_a_runner_that_is_not_there_is_said(open_view: OpenView, two_runners: Engine) -> None:
    app = open_view("trends", **{**BASE, "runner": "no such"})
    assert "runner class" in app.warning[0].value
    assert runners(app).value == [MINE.runner_class]


def test_two_kernels_share_a_figure(open_view: OpenView, two_runners: Engine) -> None:
    app = open_view("trends", **BASE)
    many(app, "Further kernels").set_value(["gemm"]).run()
    # its first case, as long as none is named
    assert address(app)["kernels"] == ["gemm"]
    assert [case in texts(app) for case in (SOFTMAX, GEMM, WIDE)] == [True, True, False]
    assert many(app, "Beside it").options == [WIDE, GEMM]

    again = open_view("trends", **address(app))
    assert texts(again) == texts(app)
