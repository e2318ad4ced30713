"""Regression: changes, causes and evidence."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.dashboard.access import Person
from roofwatch.dashboard.components import regressions
from roofwatch.dashboard.components.evidence import condition_rows
from roofwatch.dashboard.components.page import SourceLinks
from roofwatch.dashboard.wording import code_span
from roofwatch.db.bisections import request_bisection
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Outline, Regression
from roofwatch.model.machine import DeviceState
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.record import ArtefactKind
from roofwatch.model.results import Counters
from roofwatch.model.triage import BisectionRange, TriageState
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_artefact,
    make_blocks,
    make_change_point,
    make_commit_ref,
    make_environment,
    make_imported,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    make_static_facts,
    sha_of,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import SLOWER_AT, store_history
from tests.dashboard.seen import address, choice, table, texts
from tests.databases import ingest_all

STEP = "transformer_training/B=1,T=128/float32/fwd"
SASS = (b"IADD R1\nFFMA R2\n", b"IADD R1\nHMMA R2\n")


def of(regression: Regression) -> str:
    return str(regression_id(regression))


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


def test_the_cost_for_a_workload_follows_from_its_newest_profile_on_the_runner(
    open_view: OpenView, store: Engine
) -> None:
    for number, (share, runner) in enumerate([(0.5, {}), (0.1, {}), (0.9, {"thread_count": 64})]):
        value = make_imported(
            STEP,
            metric=f"{SHARE_OF_STEP}_rms_norm_kernel",
            statistic="value",
            unit="share",
            value=share,
        )
        facts = make_static_facts(implementation="torch")
        environment = make_environment(**runner)
        ingest_record(
            store,
            make_record(number, imported=[value], static_facts=[facts], environment=environment),
        )
    slower = make_regression(1, change_points=(make_change_point(1, standard_errors=20.0),))
    replace_regressions(store, PROJECT, [slower])

    said = texts(open_view("regression", regression=of(slower)))

    assert (
        f"Predicted: +2.0% (+1.8% to +2.2%) of a step of {STEP} asv; 10.0% of it is rms_norm."
        in said
    )


def test_the_most_urgent_regression_is_shown_first_and_settled_ones_can_be_chosen(
    open_view: OpenView, judged: list[Regression]
) -> None:
    *_, dismissed = judged
    box = choice(open_view("regression"), "Regression")
    assert box.value == of(judged[2])
    assert len(box.options) == len(judged)
    assert dismissed.summary in texts(open_view("regression", regression=of(dismissed)))


def test_base_and_head_are_shown_side_by_side_and_the_difference_of_the_disassembly_on_request(
    open_view: OpenView, store: Engine
) -> None:
    store_move(store)
    app = open_view("regression")
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
    app = open_view("regression")
    assert "no longer stored" in texts(app)


def test_a_requested_bisection_is_shown(open_view: OpenView, store: Engine) -> None:
    slower = store_history(store)[0]
    series = slower.change_points[0].series
    asked = BisectionRange(
        PROJECT, series.case_id, series.implementation, sha_of(SLOWER_AT - 1), sha_of(SLOWER_AT)
    )
    with Session(store) as session, session.begin():
        request_bisection(
            session, asked, requested_by="somebody", regression_id=regression_id(slower)
        )
    assert "○ waits for a runner" in texts(open_view("regression", regression=of(slower)))


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("view", ["ledger", "regression"])
def test_without_a_provider_there_is_no_sign_in_or_triage_form(
    open_view: OpenView, view: str
) -> None:
    assert [one.label for one in open_view(view).button] == []


LINKS = SourceLinks.of_project("https://github.com/{project}", "owner/kernels")


def test_commits_and_lines_link_to_the_repository() -> None:
    assert LINKS.commit("abc") == "[`abc`](https://github.com/owner/kernels/commit/abc)"
    assert LINKS.line("abc", "kernels/soft max.py", 12) == (
        "[`kernels/soft "
        "max.py:12`](https://github.com/owner/kernels/blob/abc/kernels/soft%20max.py#L12)"
    )


def test_a_file_outside_the_repository_has_no_link_and_text_from_records_cannot_end_one() -> None:
    for file in ("../../evil/repo/blob/x.py", "a/../../x.py", "/etc/passwd", "a\\..\\x.py"):
        assert LINKS.line("abc", file, 1) == code_span(f"{file}:1")
    named, _, address = LINKS.line("abc", "a)](javascript:alert(1)) [x](y", 1).rpartition("](")
    assert named == "[`a)](javascript:alert(1)) [x](y:1`"
    assert not set("()[] ") & set(address.removesuffix(")"))


def test_the_commit_of_a_regression_is_a_link(
    open_view: OpenView, judged: list[Regression], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_REPOSITORY_URL", "https://git.example.com/{project}")
    slower, sha = judged[0], sha_of(SLOWER_AT)
    address = f"https://git.example.com/example/project/commit/{sha}"
    assert f"[`{sha[:8]}`]({address})" in texts(open_view("regression", regression=of(slower)))
    assert any(f'href="{address}"' in one.proto.body for one in open_view("ledger").get("html"))


def test_the_evidence_is_that_of_the_first_change_point_until_another_is_chosen(
    open_view: OpenView, store: Engine
) -> None:
    store_move(store)
    best, other = (
        make_change_point(1),
        make_change_point(1, series=make_series_key(implementation="compile")),
    )
    replace_regressions(store, PROJECT, [make_regression(1, change_points=(best, other))])
    app = open_view("regression")
    assert "Base: median 10 µs of 2 blocks, 6 samples" in texts(app)
    assert list(table(app, "series").iloc[0])[2:] == ["▶ +20.0%"]
    key = f"median_ns|{CASE_ID}|compile|{other.series.runner_class}||||{other.commit.short_sha}"
    app = open_view("regression", change=key)
    assert "no samples stored" in texts(app)
    assert list(table(app, "series").iloc[1])[2:] == ["▶ +20.0%"]


def test_a_drift_accuses_no_commit(open_view: OpenView, store: Engine) -> None:
    store_move(store)
    drift = make_change_point(1, is_gradual=True, weekly_change=0.014)
    outline = Outline((1.0, 1.0, 1.1, 1.2), 2)
    replace_regressions(
        store, PROJECT, [make_regression(1, change_points=(drift,), outline=outline)]
    )
    overview, regression = open_view("ledger"), open_view("regression")
    for app in (overview, regression):
        assert "+1.4% a week" in texts(app)
        assert "drift" in texts(app)
        assert drift.commit.author not in texts(app)
    assert any("data:image/svg+xml" in one.proto.body for one in overview.get("html"))


def test_a_range_accuses_no_commit(open_view: OpenView, store: Engine) -> None:
    store_move(store)
    ingest_all(store, make_record(5))
    base, head = make_commit_ref(1), make_commit_ref(5)
    point = make_change_point(5, previous_commit=base)
    replace_regressions(store, PROJECT, [make_regression(5, change_points=(point,))])

    for app in (open_view("ledger"), open_view("regression")):
        shown = texts(app) + "".join(one.proto.body for one in app.get("html"))
        assert "one of 4 commits after" in shown.replace("In one", "one")
        assert head.author not in shown


def test_those_who_may_triage_select_regressions_in_the_rows(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = store_history(store)
    person = Person(subject="1", email="ada@example.com")
    monkeypatch.setenv("ROOFWATCH_TRIAGERS", "ada@example.com")
    monkeypatch.setattr(regressions, "person_here", lambda: person)
    monkeypatch.setattr(regressions, "find_triager", lambda _: (person, ""))
    app = open_view("ledger")
    for one in app.checkbox:
        one.check()
    app.run()
    next(one for one in app.button if one.label == "Set status").click()
    app.run()
    assert "A reason is required" in app.warning[0].value
    next(one for one in app.text_input if one.label == "Reason").input("A known cost")
    next(one for one in app.button if one.label == "Set status").click()
    app.run()
    assert not app.exception
    assert [one.value for one in app.warning] == []
    assert texts(app).count("◐ acknowledged") == len(app.checkbox) == 3
    # what was decided stays selected in the form
    assert (
        open_view("regression", regression=of(judged[0])).radio[0].value is TriageState.ACKNOWLEDGED
    )


def test_conditions_have_the_median_clock_the_highest_temperature_and_the_reasons_for_throttling() -> (
    None
):
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
