"""Runners."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_environment, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import RUN_COUNT, SOFTMAX, gpu, store_gpu_history
from tests.dashboard.seen import table, texts


def test_every_runner_class_shows_its_last_result_interval_and_noise(open_view: OpenView, store: Engine) -> None:
    store_gpu_history(store)
    ingest_record(store, make_record(9))
    health = table(open_view("runners"), "runner class").set_index("runner class")
    mine = health.loc[gpu().runner_class]
    assert mine["runs"] == RUN_COUNT + 2
    assert mine["usually every"] == pytest.approx(3.6e12)
    assert mine["state"].startswith("no results for ")
    assert mine["throttled or contended"] == pytest.approx(1 / 38)
    assert mine["calibrated noise"] < 0.01
    assert mine["false alarms"] == "0 of 1"
    assert health.loc[make_environment().runner_class, "false alarms"] == "not calibrated"
    assert health.loc[make_environment().runner_class, "state"] == "too few results to tell"


def test_the_noise_table_shows_floor_and_detectable_changes(open_view: OpenView, records: list[RunRecord]) -> None:
    noise = table(open_view("runners", runner=gpu().runner_class), "A/A verdict")
    assert noise["case"].tolist() == [SOFTMAX]
    assert (
        0.03 < noise["min. detectable change (40 blocks)"].item() <= noise["min. detectable change (8 blocks)"].item()
    )
    assert noise["A/A verdict"].tolist() == ["no change"]


@pytest.mark.usefixtures("records")
def test_the_history_of_a_case_counts_degraded_runs_and_ceilings_are_shown_beside_the_datasheet(
    open_view: OpenView,
) -> None:
    app = open_view("runners", show="history of a case", case=SOFTMAX, implementation="triton")
    # six runs and both sides of the calibration
    assert "8 runs" in texts(app)
    assert "in 1 of them" in texts(app)
    ceilings = table(open_view("runners", show="ceilings"), "datasheet").set_index("ceiling")
    assert ceilings.loc["dram", "datasheet"] == "4.8 TB/s"
    assert ceilings.loc["cache", "datasheet"] == ""


def test_differences_between_comparable_environments_are_listed(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1, environment=make_environment(triton_version="3.8.0", os="Linux 6.9")))
    ingest_record(store, make_record(2, harness_version="2"))
    app = open_view("runners", show="environments")
    classes = table(app, "harness")
    assert sorted(zip(classes["harness"], classes["environments"], strict=True)) == [("1", 2), ("2", 1)]
    differences = table(app, "may move times").set_index("what")
    assert differences["may move times"].to_dict() == {"triton version": "toolchain", "os": ""}
