"""Machines: cards, a runner class, a run, and what measuring costs."""

from __future__ import annotations

import io
import re
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text, update

from roofwatch.dashboard.charts.runners import hours_by_activity
from roofwatch.dashboard.components.spending import Spent
from roofwatch.db.agenda import finish_job, take_job
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.schema.runs import RunRow
from roofwatch.model.agenda import JobKind, PlannedJob
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import MemoryUse
from roofwatch.model.record import RunRecord
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_activity,
    make_artefact,
    make_ceiling,
    make_commit,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_profile,
    make_record,
    sha_of,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import GEMM, RUN_COUNT, SOFTMAX, gpu, gpu_record, store_gpu_history
from tests.dashboard.history import MATMUL, RMS_NORM, RMS_NORM_BWD
from tests.dashboard.seen import address, choice, figures, markup, read_at_most, table, texts
from tests.dashboard.values import make_fleet_run

TRACE = Path(__file__).parents[2] / "data" / "profiles" / "triton_a100.json.gz"
MACHINES = ("a" * 12, "b" * 12)


def body(app: Any) -> str:
    return "\n".join(part.proto.body for part in app.get("html"))


def cards(app: Any) -> list[str]:
    return re.findall(r"<article class=rw-card>.*?</article>", body(app), re.DOTALL)


def words(html: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", html).split())


# --- cards


def test_each_physical_machine_has_a_card_beside_its_siblings(
    open_view: OpenView, store: Engine
) -> None:
    for number in range(4):
        ingest_record(store, make_record(number, machine=MACHINES[number % 2]))
    seen = cards(open_view("machines"))
    assert [MACHINES[0][:6] in seen[0], MACHINES[1][:6] in seen[1]] == [True, True]
    assert "2 since 1 Mar" in words(seen[0])
    assert "median 0.0% against its 1 sibling" in words(seen[0])


def test_the_one_slow_machine_of_eight_stands_out_against_its_siblings(
    open_view: OpenView, store: Engine
) -> None:
    slow_machine = "5" * 12
    for number in range(8):
        machine = str(number) * 12
        bytes_per_s = 9e9 if machine == slow_machine else 10e9
        ceilings = (make_ceiling(per_s=bytes_per_s),)
        ingest_record(store, make_record(number, machine=machine, ceilings=ceilings))
    seen = cards(open_view("machines"))
    assert len(seen) == 8
    conspicuous = [card for card in seen if "<span class=rw-slower>median" in card]
    (card,) = conspicuous
    assert slow_machine[:6] in card
    assert "median -10.0% against its 7 siblings" in words(card)


def test_the_noise_of_a_machine_stands_beside_that_of_its_siblings(
    open_view: OpenView, store: Engine
) -> None:
    for number in range(24):
        is_noisy = number % 2 == 1
        factor = 1.0
        if is_noisy:
            factor = 1.1 if number % 4 == 1 else 1.0
        control = make_measurement(implementation="torch", median_ns=20_000.0 * factor)
        machine = MACHINES[number % 2]
        ingest_record(store, make_record(number, measurements=[control], machine=machine))

    quiet, noisy = cards(open_view("machines"))

    assert "controls ±0.0% from run to run, siblings ±10." in words(quiet)
    assert "from run to run, siblings ±0.0%" in words(noisy)
    assert "<span class=rw-slower>siblings" in noisy
    assert "<span class=rw-slower>siblings" not in quiet


def test_a_machine_with_one_run_of_long_ago_is_silent(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))

    (card,) = cards(open_view("machines"))

    assert "○ silent, last result" in words(card)
    assert "● ok" not in words(card)


def test_a_silent_machine_stands_before_those_that_report(
    open_view: OpenView, store: Engine
) -> None:
    """Although it is the last by name, and made fewer runs."""
    now = datetime.now(UTC)
    other = make_environment(device_name="A GPU that reports")
    for number in range(6):
        started_at = now - timedelta(hours=6 - number)
        finished_at = started_at + timedelta(minutes=5)
        record = make_record(
            number, environment=other, started_at=started_at, finished_at=finished_at
        )
        ingest_record(store, record)
    ingest_record(store, make_record(6, environment=make_environment(device_name="Z GPU")))

    silent, reporting = cards(open_view("machines"))

    assert "○ silent" in words(silent)
    assert "● ok" in words(reporting)


def test_a_new_driver_leads_to_what_changed_with_it(open_view: OpenView, store: Engine) -> None:
    for number, driver in enumerate(("570.86", "570.86", "580.65")):
        environment = make_environment(driver_version=driver)
        ingest_record(store, make_record(number, environment=environment))

    (card,) = cards(open_view("machines"))

    assert "570.86 → 580.65 from" in words(card)
    assert f"base={sha_of(1)}&amp;head={sha_of(2)}" in card


def test_a_card_says_what_all_runs_of_a_machine_show(open_view: OpenView, store: Engine) -> None:
    store_gpu_history(store)
    (card,) = cards(open_view("machines"))
    assert f"{RUN_COUNT + 2} since 1 Mar, 2 of them in pairs" in words(card)
    assert "class=throttled" in card
    assert "silent" in words(card)
    assert "dram 4.1 TB/s 0.0%" in words(card)
    assert "580.65.06" in words(card)


def test_a_card_has_no_driver_of_an_import(open_view: OpenView, store: Engine) -> None:
    imported = make_environment(device_kind="unknown", imported_from="asv")
    ingest_record(store, make_record(0, environment=imported))
    (card,) = cards(open_view("machines"))
    assert "imported from asv" in words(card)
    assert "<dt>driver</dt>" not in card


def test_a_card_shows_its_agenda_beside_where_the_minutes_went(
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

    said = words(cards(open_view("machines"))[0])

    assert "◐ now new" in said
    assert "○ fill" in said
    assert "confirm 2 min 100%" in said


def test_cases_without_a_value_on_this_runner_are_not_covered(
    open_view: OpenView, store: Engine
) -> None:
    broken = [
        make_measurement(RMS_NORM),
        make_measurement(RMS_NORM_BWD, outcome=Outcome.CRASHED),
        make_measurement(MATMUL, outcome=Outcome.UNSUPPORTED),
    ]
    ingest_record(store, make_record(0, measurements=broken))
    elsewhere = make_environment(device_name="Another CPU", thread_count=8)
    ingest_record(
        store, make_record(0, measurements=[make_measurement(RMS_NORM)], environment=elsewhere)
    )
    gaps = table(open_view("machines", gaps="open"), "gap")
    found = sorted(zip(gaps["gap"], gaps["kernel"], gaps["cases"], gaps["outcome"], strict=True))
    assert found == [
        ("failing", "rms_norm", "1 of 2", "crashed"),
        ("never measured", "matmul", "1 of 1", ""),
        ("never measured", "rms_norm", "1 of 2", ""),
        ("unsupported", "matmul", "1 of 1", ""),
    ]


# --- a runner class


def test_the_noise_table_shows_the_detectable_changes_of_each_floor(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("machines", runner=gpu().runner_class, noise="open")
    noise = table(app, "A/A verdict")
    assert noise["case"].tolist() == [SOFTMAX]
    assert (
        0.03
        < noise["min. detectable change (40 blocks)"].item()
        <= noise["min. detectable change (8 blocks)"].item()
    )
    assert noise["A/A verdict"].tolist() == ["no change"]
    assert "0 of 1 verdicts of equal code were false alarms" in texts(app)


@pytest.mark.usefixtures("records")
def test_the_history_of_a_case_counts_degraded_runs(open_view: OpenView) -> None:
    app = open_view(
        "machines",
        runner=gpu().runner_class,
        history="open",
        case=SOFTMAX,
        implementation="triton",
    )
    # six runs and both sides of the calibration
    assert "8 runs" in texts(app)
    assert "in 1 of them" in texts(app)
    assert "<b>SM clock</b>" in markup(app)
    assert not app.get("plotly_chart"), "no figure that loads megabytes"


@pytest.mark.usefixtures("records")
def test_ceilings_are_shown_beside_the_datasheet(open_view: OpenView) -> None:
    app = open_view("machines", runner=gpu().runner_class, ceilings="open")
    assert "peak (datasheet) 4.8 TB/s" in markup(app)
    ceilings = table(app, "datasheet").set_index("ceiling")
    assert ceilings.loc["dram", "datasheet"] == "4.8 TB/s"
    assert ceilings.loc["cache", "datasheet"] == ""


def test_differences_between_environments_are_listed(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))
    ingest_record(
        store, make_record(1, environment=make_environment(triton_version="3.8.0", os="Linux 6.9"))
    )
    app = open_view("machines", runner=make_environment().runner_class, environments="open")
    differences = table(app, "may move times").set_index("what")
    assert differences["may move times"].to_dict() == {"triton version": "toolchain", "os": ""}


def test_the_runs_of_a_class_lead_to_each_run(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("machines", runner=gpu().runner_class)
    assert f"Runs {RUN_COUNT + 2} started" in words(body(app))
    for record in records:
        assert f"run={record.run_id}" in body(app)


# --- a run


def test_a_run_shows_all_that_its_record_holds(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("machines", run=str(records[-1].run_id))
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
    link = body(app).partition("Compare with the previous run")[0].rpartition("<a ")[2]
    assert f"base={sha_of(RUN_COUNT - 2)}" in link
    assert f"head={sha_of(RUN_COUNT - 1)}" in link


def test_a_run_shows_what_a_launch_costs_the_host(open_view: OpenView, store: Engine) -> None:
    memory = MemoryUse(peak_allocated_bytes=2**20, peak_reserved_bytes=2**21, allocation_count=3)
    known = make_measurement(implementation="triton", memory=memory)
    blocks = tuple(block.model_copy(update={"host_ns": 4_000.0}) for block in known.blocks)
    record = make_record(
        measurements=[known.model_copy(update={"blocks": blocks}), make_measurement()]
    )
    ingest_record(store, record)

    launches = table(open_view("machines", run=str(record.run_id)), "allocated")

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
    record = make_record(profiles=[profile, make_profile(implementation="torch")])
    ingest_record(store, record)

    app = open_view("machines", run=str(record.run_id), profiled=f"{CASE_ID} triton")

    assert "3 calls in 10 µs, idle 20.0% of it" in texts(app)
    assert choice(app, "Profiled").options == [f"{CASE_ID} triton", f"{CASE_ID} torch"]
    rows = table(app, "of a call")
    assert rows["name"].tolist() == ["void gemm<128>(<b>)", "Memcpy DtoD", "2 more together"]
    assert rows["share"].tolist() == [0.75, 0.1875, 0.0625]
    assert rows["of a call"].tolist()[:2] == [2, 1]
    assert rows["grid"].tolist()[0] == "8 × 1 × 1"
    assert not {"block", "longest", "occupancy"} & set(rows)


def test_a_run_on_a_cpu_says_what_it_lacks_instead_of_empty_headings(
    open_view: OpenView, store: Engine
) -> None:
    record = make_record()
    ingest_record(store, record)
    app = open_view("machines", run=str(record.run_id))
    assert "No GPU telemetry" in texts(app)
    assert "no recent run" in texts(app)
    assert "Profiles and other files" not in [part.value for part in app.header]


def test_an_older_run_opens_by_its_address(
    open_view: OpenView, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_most(monkeypatch, 2)
    app = open_view("machines", run=str(records[0].run_id))
    assert address(app)["run"] == [str(records[0].run_id)]
    assert "Duration 30 s" in texts(app)


@pytest.mark.usefixtures("records")
def test_a_run_that_is_gone_keeps_its_address(open_view: OpenView) -> None:
    gone = open_view("machines", run=str(UUID(int=7)))
    assert "not stored any more" in words(body(gone))
    assert address(gone)["run"] == [str(UUID(int=7))]


def test_a_run_without_kept_samples_shows_the_statistics_that_remain(
    open_view: OpenView, store: Engine
) -> None:
    record = make_record()
    ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(text("DELETE FROM sample_set"))
    app = open_view("machines", run=str(record.run_id))
    assert not app.error
    assert "no longer kept" in app.info[0].value
    remaining = table(app, "median")
    assert list(remaining["median"]) == [case.median_ns for case in record.measurements]


def read_trace(open_view: OpenView, store: Engine, content: bytes) -> Any:
    artefact = make_artefact(content, name="trace.json.gz")
    record = gpu_record(artefacts=[artefact])
    ingest_record(store, record)
    store_artefact(store, record.run_id, artefact.sha256, io.BytesIO(content))
    app = open_view("machines", run=str(record.run_id))
    (read,) = [one for one in app.toggle if one.label == "Read it"]
    return read.set_value(True).run()


def test_a_stored_trace_is_drawn_beside_its_download(open_view: OpenView, store: Engine) -> None:
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
def test_an_unreadable_trace_is_a_notice_beside_its_download(
    open_view: OpenView, store: Engine, content: bytes, words: str
) -> None:
    app = read_trace(open_view, store, content)
    assert not app.exception
    assert words in app.warning[0].value
    assert len(app.get("download_button")) == 1


LEFT = make_record(9, commit=make_commit(9), measurements=[make_measurement(median_ns=20_000.0)])


def test_the_run_before_is_one_of_the_branch(open_view: OpenView, store: Engine) -> None:
    newest = make_record(
        10, commit=make_commit(2), started_at=LEFT.finished_at, finished_at=LEFT.finished_at
    )
    for record in (make_record(0), make_record(1), LEFT, newest):
        ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(
            update(RunRow).where(RunRow.run_id == LEFT.run_id).values(is_unreachable=True)
        )
    app = open_view("machines", run=str(newest.run_id))
    # its link leads past what was left to what is on the branch
    assert f"the previous run, of {sha_of(1)[:8]}" in texts(app)


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


def test_a_quarantined_run_that_its_link_opens_is_marked(
    open_view: OpenView, half_trusted: Engine
) -> None:
    linked = open_view("machines", run=str(DOUBTED.run_id))
    assert address(linked)["run"] == [str(DOUBTED.run_id)]
    assert "in quarantine: it is from an untrusted source" in linked.warning[0].value
    assert "Duration 5 min" in texts(linked)
    assert "Compare with" not in texts(linked)


@pytest.mark.usefixtures("half_trusted")
def test_a_quarantined_run_costs_nothing(open_view: OpenView) -> None:
    costs = open_view("machines", costs="open")
    assert table(costs, "per commit")["runs"].tolist() == [2]


def test_machines_links_to_quarantined_runs_by_their_count(
    open_view: OpenView, half_trusted: Engine
) -> None:
    shown = body(open_view("machines"))
    assert "Quarantined (unverified) runs: 1" in shown
    assert f"run={DOUBTED.run_id}" in shown
    assert "Quarantined" not in body(open_view("machines", branch="main"))


# --- costs


def test_the_fleet_adds_up_what_its_devices_cost(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("machines", costs="open")
    said = texts(app)
    # six runs and two sides of a pair, of 30 s each
    assert "Device time 4 min" in said
    assert "Device energy 71.9 kJ" in said
    assert "no price set" in said
    runners = table(app, "per commit")
    assert runners["runs"].tolist() == [RUN_COUNT + 2]
    assert "cost" not in runners.columns
    assert runners["checks"].item() == pytest.approx(9 / 30)


@pytest.mark.usefixtures("records")
def test_the_bars_of_costs_can_be_chosen(open_view: OpenView) -> None:
    app = open_view("machines", costs="open")
    for show in ("runner", "family", "runner-energy", "family-energy", "activity"):
        choice(app, "Bars").set_value(show).run()
        assert not app.exception
        assert address(app)["bars"] == [show]
        assert figures(app) == 1


def test_a_price_turns_hours_into_money(
    open_view: OpenView, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", '{"NVIDIA H200*": 6.0}')
    monkeypatch.setenv("ROOFWATCH_CURRENCY", "EUR")
    app = open_view("machines", costs="open", bars="runner-money")
    assert "Cost 0.40 EUR" in texts(app)
    assert table(app, "cost")["cost"].item() == pytest.approx(4 / 60 * 6.0)
    assert address(app)["bars"] == ["runner-money"]


HALF_HOUR_NS = 1_800_000_000_000


def test_time_without_an_activity_is_not_counted() -> None:
    runs = [make_fleet_run(spent_ns={"timing": HALF_HOUR_NS // 2}), make_fleet_run()]
    commit = make_commit_ref()
    assert list(hours_by_activity(runs)) == [
        (commit, "timing", 0.25),
        (commit, "unattributed", 0.25),
        (commit, "unattributed", 0.5),
    ]


def test_the_first_pattern_that_matches_a_runner_class_is_its_price() -> None:
    spent = Spent([make_fleet_run()], {}, {"NVIDIA H200*": 6.0, "NVIDIA*": 2.0}, "USD")
    assert spent.money == 3.0
    assert Spent(spent.runs, {}, {"NVIDIA L4*": 6.0, "NVIDIA*": 2.0}, "USD").money == 1.0
    assert spent.money_of(make_fleet_run(environment=make_environment())) is None


def test_what_is_known_of_costs_is_added_up() -> None:
    runs = [make_fleet_run(0, environment=make_environment()), make_fleet_run(1), make_fleet_run(2)]
    spent = Spent(runs, {"run 1": 100.0, "run 2": 300.0}, {"NVIDIA*": 2.0}, "USD")
    assert (spent.energy_j, spent.money, spent.watched.commit_count) == (400.0, 2.0, 2)
    unknown = Spent(runs[:1], {}, {}, "USD")
    assert (unknown.energy_j, unknown.money) == (None, None)
