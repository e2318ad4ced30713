"""Compare."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.measurement import CacheState, Measurement, MemoryUse
from tests.builders import (
    NOON,
    make_blocks,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
    sha_of,
)
from tests.ci.values import stepped
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import COMMIT_COUNT, RMS_NORM, SLOWER_AT, SPILLS_AT
from tests.dashboard.seen import address, choice, table, texts


@pytest.mark.usefixtures("judged")
def test_comparing_starts_with_the_two_newest_commits(open_view: OpenView) -> None:
    asked = address(open_view("compare"))
    assert (asked["base"], asked["head"]) == (
        [sha_of(COMMIT_COUNT - 2)],
        [sha_of(COMMIT_COUNT - 1)],
    )


@pytest.mark.usefixtures("judged")
def test_comparing_shows_the_change_the_stored_verdict_and_the_targets_whose_code_changed(
    open_view: OpenView,
) -> None:
    app = open_view(
        "compare", base=sha_of(SLOWER_AT - 1), head=sha_of(SLOWER_AT), show="everything"
    )
    rows = table(app, "verdict")
    assert rows["case"][0] == RMS_NORM
    assert rows["implementation"][0] == "torch"
    assert rows["change"][0] == pytest.approx(0.42, abs=0.01)
    assert rows["verdict"].tolist() == [f"regressed {sha_of(SLOWER_AT)[:8]}", "", "", "", ""]
    app = open_view(
        "compare", base=sha_of(SPILLS_AT - 1), head=sha_of(SPILLS_AT), show="everything"
    )
    rows = table(app, "machine code")
    assert rows["implementation"][0] == "triton"
    assert (
        rows["machine code"][0] == "changed on 6 of 6: gfx942, gfx950, sm_80, sm_90, sm_100, sm_120"
    )
    assert rows["verdict"][0] == f"regressed {sha_of(SPILLS_AT)[:8]} (local memory per thread)"


def test_only_what_leaves_the_noise_is_shown_first(open_view: OpenView, store: Engine) -> None:
    slow, quiet = (
        stepped(count=12, at=11, noise=0.01),
        stepped(count=12, factor=1.0, noise=0.01, seed=1),
    )
    for number in range(12):
        measurements = [
            make_measurement(implementation="slow", median_ns=slow[number]),
            make_measurement(implementation="quiet", median_ns=quiet[number]),
        ]
        code = make_static_facts(implementation="slow", code=str(number))
        facts = [code] if number in (10, 11) else []
        ingest_record(store, make_record(number, measurements=measurements, static_facts=facts))
        if number == 11:  # a newer run of the same commit, without compiled code
            ingest_record(
                store,
                make_record(number, measurements=measurements, started_at=NOON + timedelta(days=9)),
            )

    app = open_view("compare")

    rows = table(app, "claim")
    assert rows["implementation"].tolist() == ["slow"]
    assert rows["claim"].tolist() == ["undecided: separate runs"]
    assert rows["machine code"].tolist() == ["changed on 1 of 1: sm_90"]
    assert "95 % interval" not in rows
    assert "**2** undecided: separate runs" in texts(app)
    assert "slower" not in texts(app)
    everything = table(open_view("compare", show="everything"), "claim")
    assert set(everything["implementation"]) == {"slow", "quiet"}
    newest = texts(open_view("ledger"))
    assert "undecided: 2 values since a possible change of +" in newest
    assert "judged after a pair or 3 more" in newest


def test_one_sided_rows_are_marked_and_rows_can_be_filtered(
    open_view: OpenView, store: Engine
) -> None:
    for number, name in enumerate(("gone", "new")):
        measurements = [make_measurement(implementation=name), make_measurement()]
        ingest_record(store, make_record(number, measurements=measurements))
    rows = table(open_view("compare", show="on one side only"), "outcome").set_index(
        "implementation"
    )["outcome"]
    assert rows.to_dict() == {"gone": "only on the base: ok", "new": "only on the head: ok"}
    assert "No such case" in texts(open_view("compare", show="outcome changed"))


def test_runs_of_different_runner_classes_are_not_compared(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1, environment=OTHER_DEVICE))
    app = open_view("compare")
    assert "not comparable" in app.warning[0].value
    assert "Another CPU" in app.warning[0].value
    assert table(app, "change")["change"].isna().all()


OTHER_DEVICE = make_environment(device_name="Another CPU")


def measured(median_ns: float) -> list[Measurement]:
    return [make_measurement(median_ns=median_ns)]


def test_toolchains_are_compared_on_one_runner_class(open_view: OpenView, store: Engine) -> None:
    for number, (triton, median_ns) in enumerate([("3.6.0", 10_000.0), ("3.7.0", 12_000.0)]):
        environment = make_environment(triton_version=triton)
        ingest_record(
            store, make_record(number, environment=environment, measurements=measured(median_ns))
        )
    app = open_view("compare", by="toolchains")

    assert [choice(app, side).value for side in ("Base", "Head")] == [
        "torch 2.13.0, triton 3.6.0",
        "torch 2.13.0, triton 3.7.0",
    ]
    assert table(app, "change")["change"][0] == pytest.approx(0.2)


def test_branches_are_compared_by_their_newest_runs_on_one_runner(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0, measurements=measured(10_000.0)))
    on_a_branch = make_commit(1, branch="faster")
    ingest_record(store, make_record(1, commit=on_a_branch, measurements=measured(9_000.0)))
    ingest_record(
        store,
        make_record(1, commit=on_a_branch, environment=OTHER_DEVICE, measurements=measured(1.0)),
    )
    app = open_view("compare", by="branches", base_branches="faster", head_branches="main")

    assert not app.warning
    assert table(app, "change")["base time"][0] == 9_000.0


def test_further_metrics_have_columns_only_if_measured(open_view: OpenView, store: Engine) -> None:
    for number, peak_bytes in enumerate((2**20, 2**21)):
        memory = MemoryUse(
            peak_allocated_bytes=peak_bytes, peak_reserved_bytes=2**22, allocation_count=1
        )
        taking = make_measurement(implementation="triton", memory=memory)
        ingest_record(store, make_record(number, measurements=[taking, *measured(10_000.0)]))
    app = open_view("compare")
    rows = table(app, "change").set_index("implementation")

    assert rows["peak allocated memory"].to_dict() == {"triton": "1 MiB → 2 MiB", "torch": ""}
    assert "host time of a launch" not in rows


def test_samples_of_a_case_are_drawn_on_request(open_view: OpenView, store: Engine) -> None:
    for number in (0, 1):
        ingest_record(store, make_record(number))

    assert "Loads all samples of this case in both runs" in texts(open_view("compare"))
    assert open_view("compare", samples="yes").get("plotly_chart")


def test_the_table_shows_why_a_row_has_no_change(open_view: OpenView, store: Engine) -> None:
    for number, cache, median_ns in ((0, CacheState.HOT, 10_000.0), (1, CacheState.COLD, 4_000.0)):
        blocks = make_blocks([median_ns] * 2)
        ingest_record(
            store, make_record(number, measurements=[make_measurement(cache=cache, blocks=blocks)])
        )
    app = open_view("compare")

    rows = table(app, "not compared")
    assert rows["change"].isna().all()
    assert rows["not compared"].tolist() == ["cache hot and cold"]
    assert "1 of 1 cases are not comparable" in app.warning[0].value
