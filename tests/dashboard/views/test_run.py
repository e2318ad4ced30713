"""Run: results of one run, and the choice of a run."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text, update

from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.schema.runs import RunRow
from roofwatch.model.measurement import MemoryUse
from roofwatch.model.record import RunRecord
from tests.builders import (
    CASE_ID,
    make_activity,
    make_artefact,
    make_commit,
    make_measurement,
    make_profile,
    make_record,
    sha_of,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import GEMM, RUN_COUNT, gpu_record
from tests.dashboard.seen import address, choice, figures, read_at_most, table, texts

TRACE = Path(__file__).parents[2] / "data" / "profiles" / "triton_a100.json.gz"


def test_a_run_shows_its_outcomes_its_ceilings_and_a_link_to_the_run_before_it(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("run", run=str(records[-1].run_id))
    said = texts(app)
    assert "Duration 30 s" in said
    assert "Measured 5 of 6" in said
    assert "Failed 1" in said
    assert "Device energy n/a" not in said
    assert "Device energy 12 kJ" in said
    spent = table(app, "share of the run")
    assert spent["activity"].tolist()[-1] == "unattributed"
    assert spent["share of the run"].sum() == pytest.approx(1)
    failures = table(app, "message")
    assert failures["case"].tolist() == [GEMM]
    assert failures["outcome"].tolist() == ["out_of_memory"]
    assert failures["help"].str.endswith("how-to/outcomes.html#out_of_memory").all()
    ceilings = table(app, "datasheet").set_index("of")
    assert ceilings.loc["dram", "datasheet"] == "4.8 TB/s"
    assert ceilings.loc["dram", "share of datasheet"] == pytest.approx(4.1 / 4.8)
    assert ceilings.loc["cache", "datasheet"] == ""
    (link,) = app.get("page_link")
    assert f"base={sha_of(RUN_COUNT - 2)}" in link.proto.query_string
    assert f"head={sha_of(RUN_COUNT - 1)}" in link.proto.query_string


def test_a_run_shows_host_time_and_memory_per_launch(open_view: OpenView, store: Engine) -> None:
    memory = MemoryUse(peak_allocated_bytes=2**20, peak_reserved_bytes=2**21, allocation_count=3)
    known = make_measurement(implementation="triton", memory=memory)
    blocks = tuple(block.model_copy(update={"host_ns": 4_000.0}) for block in known.blocks)
    record = make_record(
        measurements=[known.model_copy(update={"blocks": blocks}), make_measurement()]
    )
    ingest_record(store, record)

    launches = table(open_view("run"), "allocated")

    assert launches.to_dict("records") == [
        {
            "case": CASE_ID,
            "implementation": "triton",
            "host time": 4_000.0,
            "allocated": 2**20,
            "reserved": 2**21,
            "allocations": 3,
        }
    ]


def test_a_run_shows_launched_kernels_with_their_share_of_time(
    open_view: OpenView, store: Engine
) -> None:
    gemm = make_activity(
        "void gemm<128>(<b>)", count=6, total_ns=6_000, grid=(8, 1, 1), registers=64
    )
    copy = make_activity("Memcpy DtoD", kind="memcpy", total_ns=1_500, bytes=2**20)
    profile = make_profile(
        CASE_ID, gemm, copy, span_ns=10_000, busy_ns=8_000, left_out_count=2, left_out_ns=500
    )
    ingest_record(store, make_record(profiles=[profile, make_profile(implementation="torch")]))

    app = open_view("run", profiled=f"{CASE_ID} triton")

    assert "3 calls in 10 µs, idle 20.0% of it" in texts(app)
    assert choice(app, "Profiled").options == [f"{CASE_ID} triton", f"{CASE_ID} torch"]
    rows = table(app, "of a call")
    assert rows["name"].tolist() == ["void gemm<128>(<b>)", "Memcpy DtoD", "2 more together"]
    assert rows["share"].tolist() == [0.75, 0.1875, 0.0625]
    assert rows["of a call"].tolist()[:2] == [2, 1]
    assert rows["grid"].tolist()[0] == "8 × 1 × 1"
    assert not {"block", "longest", "occupancy"} & set(rows)


def test_a_run_on_a_cpu_has_no_device_readings(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record())
    app = open_view("run")
    assert "No GPU telemetry" in texts(app)
    assert "Not recorded" in texts(app)
    assert "no recent run" in texts(app)
    assert "Not profiled" in texts(app)


def test_an_older_run_opens_by_its_address(
    open_view: OpenView, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_most(monkeypatch, 2)
    assert len(choice(open_view("run"), "Run").options) == 2
    app = open_view("run", run=str(records[0].run_id))
    assert address(app)["run"] == [str(records[0].run_id)]
    assert len(choice(app, "Run").options) == 3
    assert not app.warning


def test_a_run_without_kept_samples_is_a_notice(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record())
    with store.begin() as connection:
        connection.execute(text("DELETE FROM sample_set"))
    app = open_view("run")
    assert not app.error
    assert "no longer kept" in app.info[0].value


def read_trace(open_view: OpenView, store: Engine, content: bytes) -> Any:
    artefact = make_artefact(content, name="trace.json.gz")
    record = gpu_record(artefacts=[artefact])
    ingest_record(store, record)
    store_artefact(store, record.run_id, artefact.sha256, io.BytesIO(content))
    app = open_view("run")
    (read,) = [one for one in app.toggle if one.label == "Read it"]
    return read.set_value(True).run()


def test_a_stored_trace_is_drawn_and_downloadable(open_view: OpenView, store: Engine) -> None:
    app = read_trace(open_view, store, TRACE.read_bytes())
    assert not app.exception
    assert not app.warning
    assert len(app.get("download_button")) == 1
    assert "ui.perfetto.dev" in texts(app)
    assert figures(app) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x1f\x8bno gzip", "damaged or incomplete"),
        (zlib.compress(b"{}", wbits=zlib.MAX_WBITS | 16)[:-4], "damaged or incomplete"),
        (b'{"other": 1}', "not a trace of torch.profiler"),
    ],
)
def test_an_unreadable_trace_is_a_notice_and_downloadable(
    open_view: OpenView, store: Engine, content: bytes, words: str
) -> None:
    app = read_trace(open_view, store, content)
    assert not app.exception
    assert words in app.warning[0].value
    assert len(app.get("download_button")) == 1


WORDS = "(no longer on its branch)"
ON_BRANCH = [make_record(0), make_record(1)]
LEFT_SHA = sha_of(9)
LEFT = make_record(9, commit=make_commit(9), measurements=[make_measurement(median_ns=20_000.0)])
NEWEST = make_record(
    10, commit=make_commit(2), started_at=LEFT.finished_at, finished_at=LEFT.finished_at
)


@pytest.fixture
def rewritten(store: Engine) -> Engine:
    for record in (*ON_BRANCH, LEFT, NEWEST):
        ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(
            update(RunRow).where(RunRow.run_id == LEFT.run_id).values(is_unreachable=True)
        )
    return store


def marked(options: list[str]) -> list[bool]:
    assert all(LEFT_SHA[:8] in option for option in options if WORDS in option)
    return [WORDS in option for option in options]


def test_runs_that_are_no_longer_on_their_branch_are_marked(
    open_view: OpenView, rewritten: Engine
) -> None:
    app = open_view("run")

    # the newest run first
    assert marked(choice(app, "Run").options) == [False, True, False, False]
    # and its link leads past what was left to what is on the branch
    (link,) = [one.proto for one in app.get("page_link") if "previous run" in one.proto.label]
    assert f"of {sha_of(1)[:8]}" in link.label
    of_left = open_view("run", run=str(LEFT.run_id))
    assert any("previous run" in one.proto.label for one in of_left.get("page_link"))


def test_compared_commits_are_marked_and_start_on_the_branch(
    open_view: OpenView, rewritten: Engine
) -> None:
    app = open_view("compare")

    # in the order of their counts, the highest first
    assert (
        marked(choice(app, "Base").options)
        == marked(choice(app, "Head").options)
        == [True, False, False, False]
    )
    assert (address(app)["base"], address(app)["head"]) == ([sha_of(1)], [sha_of(2)])


TRUSTED, DOUBTED = (
    [make_record(number) for number in range(2)],
    make_record(5, commit=make_commit(5, branch="fork")),
)


@pytest.fixture
def half_trusted(store: Engine) -> Engine:
    for record in TRUSTED:
        ingest_record(store, record)
    ingest_record(store, DOUBTED, is_quarantined=True)
    return store


def test_a_quarantined_run_is_marked_opens_by_its_link_and_is_in_no_other_view(
    open_view: OpenView, half_trusted: Engine
) -> None:
    app = open_view("run")
    assert address(app)["run"] == [str(TRUSTED[-1].run_id)]
    assert [one.startswith("⊘ quarantined") for one in choice(app, "Run").options] == [
        True,
        False,
        False,
    ]
    assert not app.warning

    linked = open_view("run", run=str(DOUBTED.run_id))
    assert address(linked)["run"] == [str(DOUBTED.run_id)]
    assert "in quarantine: it is from an untrusted source" in linked.warning[0].value
    assert "Duration 5 min" in texts(linked)
    assert not linked.get("page_link")

    compared = open_view("compare")
    assert (address(compared)["base"], address(compared)["head"]) == ([sha_of(0)], [sha_of(1)])
    assert table(open_view("fleet"), "per commit")["runs"].tolist() == [2]
    values = table(open_view("roof", values="open"), "value")
    assert values["commit"].tolist() == [sha_of(0)[:8], sha_of(1)[:8]]


def test_the_overview_counts_quarantined_runs_and_links_to_them(
    open_view: OpenView, half_trusted: Engine
) -> None:
    def links(**asked: str) -> list[str]:
        told = [
            one.proto
            for one in open_view("ledger", **asked).get("page_link")
            if "uarantine" in one.proto.label
        ]
        return [f"{one.label} {one.page}?{one.query_string}" for one in told]

    assert links() == [
        f"Quarantined (unverified) runs: 1 run?project=example%2Fproject&run={DOUBTED.run_id}"
    ]
    assert links(branch="main") == []
