"""The evidence of one change: base and head side by side."""

from __future__ import annotations

import io
from dataclasses import replace

from sqlalchemy import Engine

from roofwatch.dashboard.components.evidence import condition_rows
from roofwatch.dashboard.components.ledger_series import key_of
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.machine import DeviceState
from roofwatch.model.record import ArtefactKind
from roofwatch.model.results import Counters
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_artefact,
    make_blocks,
    make_change_point,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    make_static_facts,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.seen import address, table, texts

SASS = (b"IADD R1\nFFMA R2\n", b"IADD R1\nHMMA R2\n")


def store_move(engine: Engine) -> None:
    """Store one case at two commits: slower, with other code, counters,
    toolchain and disassembly.
    """
    for number in range(2):
        values = {"dram_bytes": 100.0 * (number + 1)}
        artefact = make_artefact(SASS[number], name="k.sm_90.sass", kind=ArtefactKind.DISASSEMBLY)
        record = make_record(
            number,
            measurements=[make_measurement(median_ns=10_000.0 + 2_000.0 * number)],
            static_facts=[
                make_static_facts(
                    implementation="torch", code=str(number), registers=32 * (number + 1)
                )
            ],
            counters=[
                Counters(case_id=CASE_ID, implementation="torch", function="k", values=values)
            ],
            environment=make_environment(triton_version=f"3.{number}.0"),
            artefacts=[artefact],
        )
        ingest_record(engine, record)
        store_artefact(engine, record.run_id, artefact.sha256, io.BytesIO(SASS[number]))
    replace_regressions(
        engine, PROJECT, [make_regression(1, change_points=(make_change_point(1),))]
    )


def test_the_evidence_sets_both_sides_next_to_each_other(
    open_view: OpenView, store: Engine
) -> None:
    store_move(store)
    app = open_view("ledger", evidence="open")
    facts = table(app, "judged")
    assert facts[["judged", "registers"]].to_numpy().tolist() == [["changed", "32 → 64"]]
    counters = table(app, "counter")
    assert counters[["counter", "base", "head"]].to_numpy().tolist() == [
        ["dram bytes", "100 B", "200 B"]
    ]
    both = [one.value for one in app.dataframe if list(one.value.columns) == ["", "base", "head"]]
    assert ["triton version", "3.0.0", "3.1.0"] in [
        row for frame in both for row in frame.to_numpy().tolist()
    ]
    assert (
        "Base: median 10 µs of 2 blocks, 6 samples. Head: median 12 µs of 2 blocks, 6 samples."
        in texts(app)
    )
    assert "HMMA" not in texts(app)
    (toggle,) = [one for one in app.toggle if one.label == "Disassembly: 1 file differs"]
    toggle.set_value(True).run()
    assert address(app)["disassembly"] == ["yes"]
    assert "-FFMA R2" in texts(app)
    assert "+HMMA R2" in texts(app)


def test_a_removed_run_is_a_notice(open_view: OpenView, store: Engine) -> None:
    store_move(store)
    point = make_change_point(1)
    series = replace(point.series, runner_class="a runner that never was")
    replace_regressions(
        store, PROJECT, [make_regression(1, change_points=(replace(point, series=series),))]
    )
    app = open_view("ledger", evidence="open")
    assert "no longer stored" in texts(app)


def test_the_evidence_is_that_of_the_worst_change_until_another_is_chosen(
    open_view: OpenView, store: Engine
) -> None:
    store_move(store)
    best, other = (
        make_change_point(1),
        make_change_point(1, series=make_series_key(implementation="compile")),
    )
    replace_regressions(store, PROJECT, [make_regression(1, change_points=(best, other))])
    assert "Base: median 10 µs of 2 blocks, 6 samples" in texts(
        open_view("ledger", evidence="open")
    )
    app = open_view("ledger", evidence="open", change=key_of(other))
    assert "no samples stored" in texts(app)


def test_machine_code_that_changed_is_explained_in_the_first_sentence(
    open_view: OpenView, store: Engine
) -> None:
    store_move(store)
    assert "registers 32 → 64" in texts(open_view("ledger"))


def test_conditions_summarise_what_the_device_reported() -> None:
    states = (
        DeviceState(
            reading_count=3,
            sm_clock_mhz=1_200,
            temperature_c=80,
            clock_event_reasons=("sw_power_cap",),
        ),
        DeviceState(
            reading_count=3, sm_clock_mhz=1_400, temperature_c=86, degraded_by=("foreign_process",)
        ),
    )
    blocks = [
        block.model_copy(update={"device_state": state})
        for block, state in zip(make_blocks([1e3] * 2), states, strict=True)
    ]

    assert condition_rows(make_measurement(), make_measurement(blocks=blocks)) == {
        "SM clock": ["not read", "1,300 MHz"],
        "highest temperature": ["not read", "86 °C"],
        "throttled by": ["nothing", "sw power cap"],
        "blocks throttled or contended": ["0 of 2", "1 of 2"],
    }
