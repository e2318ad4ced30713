"""Runners and fleet economics."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Engine

from roofwatch.dashboard.charts.runners import hours_by_activity
from roofwatch.dashboard.views.fleet import Spent
from roofwatch.db.agenda import finish_job, take_job
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.agenda import JobKind, PlannedJob
from roofwatch.model.record import RunRecord
from tests.builders import PROJECT, make_commit_ref, make_environment, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import RUN_COUNT, SOFTMAX, gpu, store_gpu_history
from tests.dashboard.seen import address, choice, figures, table, texts
from tests.dashboard.values import make_fleet_run


def test_every_runner_class_shows_its_last_result_interval_and_noise(
    open_view: OpenView, store: Engine
) -> None:
    store_gpu_history(store)
    ingest_record(store, make_record(9))
    health = table(open_view("machines"), "runner class").set_index("runner class")
    mine = health.loc[gpu().runner_class]
    assert mine["runs"] == RUN_COUNT + 2
    assert mine["usually every"] == pytest.approx(3.6e12)
    assert mine["state"].startswith("no results for ")
    assert mine["throttled or contended"] == pytest.approx(1 / 38)
    assert mine["calibrated noise"] < 0.01
    assert mine["false alarms"] == "0 of 1"
    assert health.loc[make_environment().runner_class, "false alarms"] == "not calibrated"
    assert health.loc[make_environment().runner_class, "state"] == "too few results to tell"


def test_the_noise_table_shows_floor_and_detectable_changes(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    noise = table(open_view("machines", runner=gpu().runner_class), "A/A verdict")
    assert noise["case"].tolist() == [SOFTMAX]
    assert (
        0.03
        < noise["min. detectable change (40 blocks)"].item()
        <= noise["min. detectable change (8 blocks)"].item()
    )
    assert noise["A/A verdict"].tolist() == ["no change"]


@pytest.mark.usefixtures("records")
def test_the_history_of_a_case_counts_degraded_runs_and_ceilings_are_shown_beside_the_datasheet(
    open_view: OpenView,
) -> None:
    app = open_view("machines", show="history of a case", case=SOFTMAX, implementation="triton")
    # six runs and both sides of the calibration
    assert "8 runs" in texts(app)
    assert "in 1 of them" in texts(app)
    ceilings = table(open_view("machines", show="ceilings"), "datasheet").set_index("ceiling")
    assert ceilings.loc["dram", "datasheet"] == "4.8 TB/s"
    assert ceilings.loc["cache", "datasheet"] == ""


def test_differences_between_comparable_environments_are_listed(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0))
    ingest_record(
        store, make_record(1, environment=make_environment(triton_version="3.8.0", os="Linux 6.9"))
    )
    ingest_record(store, make_record(2, harness_version="2"))
    app = open_view("machines", show="environments")
    classes = table(app, "harness")
    assert sorted(zip(classes["harness"], classes["environments"], strict=True)) == [
        ("1", 2),
        ("2", 1),
    ]
    differences = table(app, "may move times").set_index("what")
    assert differences["may move times"].to_dict() == {"triton version": "toolchain", "os": ""}


def test_the_agenda_shows_reasons_and_where_the_minutes_went(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0))
    runner, runner_class = UUID(int=1), make_environment().runner_class
    jobs = [
        PlannedJob(
            key=str(kind),
            kind=kind,
            reason=f"why {kind}",
            expected_s=90.0,
            base_sha=None,
            head_sha=make_commit_ref(1).sha,
        )
        for kind in (JobKind.CONFIRM, JobKind.NEW, JobKind.FILL)
    ]
    take_job(store, PROJECT, runner_class, jobs, runner)
    finish_job(store, PROJECT, runner_class, "confirm", runner, 120.0)
    take_job(store, PROJECT, runner_class, jobs[1:], runner)

    app = open_view("machines", show="agenda", runner=runner_class)

    planned = table(app, "why")
    assert planned["why"].tolist() == ["why new", "why fill"]
    assert planned["state"].tolist() == ["taken", "planned"]
    assert planned["expected"].tolist() == [9e10, 9e10]
    spent = table(app, "jobs")
    assert (spent["job"].item(), spent["time"].item()) == ("confirm", 1.2e11)


def test_the_fleet_adds_up_device_time_and_energy_and_its_bars_can_be_chosen(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("fleet")
    said = texts(app)
    # six runs and two sides of a pair, of 30 s each
    assert "Device time 4 min" in said
    assert "Device energy 71.9 kJ" in said
    assert "no price set" in said
    runners = table(app, "per commit")
    assert runners["runs"].tolist() == [RUN_COUNT + 2]
    assert "cost" not in runners.columns
    assert runners["checks"].item() == pytest.approx(9 / 30)
    for show in ("runner", "family", "runner-energy", "family-energy", "activity"):
        choice(app, "Show").set_value(show).run()
        assert not app.exception
        assert address(app)["show"] == [show]
        assert figures(app) == 1


def test_a_price_turns_hours_into_money(
    open_view: OpenView, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", '{"NVIDIA H200*": 6.0}')
    monkeypatch.setenv("ROOFWATCH_CURRENCY", "EUR")
    app = open_view("fleet", show="runner-money")
    assert "Cost 0.40 EUR" in texts(app)
    assert table(app, "cost")["cost"].item() == pytest.approx(4 / 60 * 6.0)
    assert address(app)["show"] == ["runner-money"]


HALF_HOUR_NS = 1_800_000_000_000


def test_time_without_an_activity_is_not_counted() -> None:
    runs = [make_fleet_run(spent_ns={"timing": HALF_HOUR_NS // 2}), make_fleet_run()]
    commit = make_commit_ref()
    assert list(hours_by_activity(runs)) == [
        (commit, "timing", 0.25),
        (commit, "unattributed", 0.25),
        (commit, "unattributed", 0.5),
    ]


def test_the_first_pattern_that_matches_a_runner_class_is_its_price_and_what_is_known_is_added_up() -> (
    None
):
    spent = Spent([make_fleet_run()], {}, {"NVIDIA H200*": 6.0, "NVIDIA*": 2.0}, "USD")
    assert spent.money == 3.0
    assert Spent(spent.runs, {}, {"NVIDIA L4*": 6.0, "NVIDIA*": 2.0}, "USD").money == 1.0
    assert spent.money_of(make_fleet_run(environment=make_environment())) is None
    runs = [make_fleet_run(0, environment=make_environment()), make_fleet_run(1), make_fleet_run(2)]
    spent = Spent(runs, {"run 1": 100.0, "run 2": 300.0}, {"NVIDIA*": 2.0}, "USD")
    assert (spent.energy_j, spent.money, spent.watched.commit_count) == (400.0, 2.0, 2)
    unknown = Spent(runs[:1], {}, {}, "USD")
    assert (unknown.energy_j, unknown.money) == (None, None)
