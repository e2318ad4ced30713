"""The view Compare, for sides other than two commits."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.measurement import Measurement, MemoryUse
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_commit, make_environment, make_measurement, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.test_views import address, choice, table, texts

OLD = make_environment(triton_version="3.6.0")
NEW = make_environment(triton_version="3.7.0")
OTHER_DEVICE = make_environment(device_name="Another CPU")


def measured(median_ns: float) -> list[Measurement]:
    return [make_measurement(median_ns=median_ns)]


def test_toolchains_are_compared_on_one_runner_class(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0, environment=OLD, measurements=measured(10_000.0)))
    ingest_record(store, make_record(1, environment=NEW, measurements=measured(12_000.0)))
    app = open_view("compare", by="toolchains")

    assert [choice(app, side).value for side in ("Base", "Head")] == [
        "torch 2.13.0, triton 3.6.0",
        "torch 2.13.0, triton 3.7.0",
    ]
    assert table(app, "change")["change"][0] == pytest.approx(0.2)


def test_devices_stand_side_by_side_without_a_change(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0, measurements=measured(10_000.0)))
    ingest_record(store, make_record(0, environment=OTHER_DEVICE, measurements=measured(5_000.0)))
    app = open_view("compare", by="devices")
    rows = table(app, "change")

    assert "not comparable" in app.warning[0].value
    assert rows["change"].isna().all()
    assert sorted([rows["base time"][0], rows["head time"][0]]) == [5_000.0, 10_000.0]


def test_a_branch_is_spoken_for_by_its_newest_run_on_the_runner_of_the_other(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0, measurements=measured(10_000.0)))
    on_a_branch = make_commit(1, branch="faster")
    ingest_record(store, make_record(1, commit=on_a_branch, measurements=measured(9_000.0)))
    ingest_record(store, make_record(1, commit=on_a_branch, environment=OTHER_DEVICE, measurements=measured(1.0)))
    app = open_view("compare", by="branches", base_branches="faster", head_branches="main")

    assert not app.warning
    assert table(app, "change")["base time"][0] == 9_000.0


def test_what_was_measured_beside_the_time_has_columns_and_what_was_not_has_none(
    open_view: OpenView, store: Engine
) -> None:
    for number, peak_bytes in enumerate((2**20, 2**21)):
        memory = MemoryUse(peak_allocated_bytes=peak_bytes, peak_reserved_bytes=2**22, allocation_count=1)
        taking = make_measurement(implementation="triton", memory=memory)
        ingest_record(store, make_record(number, measurements=[taking, *measured(10_000.0)]))
    app = open_view("compare")
    rows = table(app, "change").set_index("implementation")

    assert rows["peak allocated memory"].to_dict() == {"triton": "1 MiB → 2 MiB", "eager": ""}
    assert "host time of a launch" not in rows


def test_two_runs_of_one_commit_are_compared(open_view: OpenView, store: Engine) -> None:
    for median_ns in (10_000.0, 11_000.0):
        ingest_record(store, make_record(0, measurements=measured(median_ns)))
    app = open_view("compare", by="runs")

    assert len(table(app, "change")) == 1
    assert "same run" not in texts(app)


def test_one_of_a_kind_has_nothing_to_be_compared_with(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))

    assert "there are runs of 1" in texts(open_view("compare", by="devices"))


def test_rows_can_be_narrowed_to_what_changed_its_outcome(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0, measurements=[make_measurement(implementation="gone"), make_measurement()]))
    ingest_record(store, make_record(1, measurements=[make_measurement()]))

    assert table(open_view("compare", show="on one side only"), "outcome")["implementation"].tolist() == ["gone"]
    assert "No case is left" in texts(open_view("compare", show="other outcomes"))


def test_samples_of_a_case_are_drawn_on_request(open_view: OpenView, store: Engine) -> None:
    for number in (0, 1):
        ingest_record(store, make_record(number))

    assert "Every sample of this case in both runs is read" in texts(open_view("compare"))
    assert open_view("compare", samples="yes").get("plotly_chart")


def test_of_thousands_of_cases_the_most_relevant_are_shown_first_and_all_on_request(
    open_view: OpenView, store: Engine
) -> None:
    cases = [f"softmax/n_rows={number},n_cols=8/float32/fwd" for number in range(130)]
    for number in (0, 1):
        ingest_record(
            store,
            make_record(
                number,
                measurements=[
                    make_measurement(case_id, median_ns=2_000.0 if number and case_id == cases[99] else 1_000.0)
                    for case_id in cases
                ],
            ),
        )

    app = open_view("compare")
    shown = table(app, "base time")["case"].tolist()
    app.toggle[0].set_value(True).run()

    assert len(shown) == 100
    assert shown[0] == cases[99]
    assert len(table(app, "base time")) == 130
    assert address(app)["all"] == ["yes"]
