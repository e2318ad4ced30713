"""Overview: open regressions, kernel changes and runner health."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Cause, Regression, Suspect
from roofwatch.model.machine import Outcome
from roofwatch.model.triage import TriageState
from roofwatch.model.verdict import Verdict
from tests.builders import (
    PROJECT,
    make_environment,
    make_measurement,
    make_record,
    make_source_line,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import MATMUL, RMS_NORM, RMS_NORM_BWD, store_history
from tests.dashboard.seen import choice, table, texts
from tests.databases import set_triage


def decide(store: Engine, regression: Regression, state: TriageState) -> None:
    set_triage(
        store,
        PROJECT,
        regression_id(regression),
        state,
        person="somebody",
        reason="a reason",
        actor="a test",
    )


def rows(app: AppTest, judged: list[Regression]) -> list[str]:
    """Return the summaries of the open regressions in the order shown."""
    summaries = {str(regression_id(one)): one.summary for one in judged}
    asked = [parse_qs(link.proto.query_string) for link in app.get("page_link")]
    return [summaries[one["regression"][0]] for one in asked if "regression" in one]


def test_open_regressions_come_first_and_others_are_folded(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger", improvements="open", settled="open")
    assert rows(app, judged) == [
        "rms_norm is incorrect on 1 series",
        "matmul keeps 96 bytes per thread in local memory on 6 targets",
        "rms_norm became 42 % slower on 1 series",
    ]
    improved, settled = (one.value for one in app.dataframe if "reason" in one.value.columns)
    assert list(improved["what"]) == ["matmul became 30 % faster on 1 series"]
    assert list(settled["what"]) == ["matmul became 10 % slower on 1 series"]
    assert list(settled["state"]) == ["not confirmed when measured again"]


def test_inconclusive_changes_are_listed_separately(open_view: OpenView, store: Engine) -> None:
    judged = store_history(store)
    moved = replace(judged[0], verdict=Verdict.INCONCLUSIVE, cause=Cause.CLOCK)
    replace_regressions(store, PROJECT, [moved, *judged[1:]])
    app = open_view("ledger", inconclusive="open")
    assert moved.summary not in rows(app, judged)
    assert moved.summary in [
        what for one in app.dataframe if "reason" in one.value.columns for what in one.value["what"]
    ]


def test_acknowledged_regressions_stay_open_and_expected_ones_do_not(
    open_view: OpenView, store: Engine
) -> None:
    judged = store_history(store)
    slower, spills, broken, *_ = judged
    decide(store, slower, TriageState.EXPECTED)
    decide(store, broken, TriageState.ACKNOWLEDGED)
    app = open_view("ledger")
    assert rows(app, judged) == [spills.summary, broken.summary]
    assert "◐ acknowledged" in texts(app)
    assert "somebody" in texts(app)


def test_a_row_names_the_worst_change_with_its_levels_and_the_likeliest_cause(
    open_view: OpenView, store: Engine
) -> None:
    judged = store_history(store)
    suspects = (
        Suspect(Cause.CODE, 0.8, "the machine code differs"),
        Suspect(Cause.CLOCK, 0.2, "the clock fell"),
    )
    replace_regressions(store, PROJECT, [replace(judged[0], suspects=suspects), *judged[1:]])
    said = texts(open_view("ledger"))
    for part in (
        "+42.0%",
        "time, 10 µs → 14.2 µs",
        "✕ fails",
        "time, 30 µs → failed",
        "0 B → 96 B",
        "Suspect: code, 80%: the machine",
        "normalisation",  # the family of the kernel
    ):
        assert part in said


def test_only_kernels_that_changed_are_in_the_map_and_doubtful_cells_are_marked(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    elsewhere = make_environment(device_name="Another CPU")
    quiet = make_measurement("quiet/n=1/float32/fwd")
    ingest_record(
        store, make_record(0, measurements=[make_measurement(MATMUL), quiet], environment=elsewhere)
    )
    app = open_view("ledger", window="all")
    body = next(one.proto.body for one in app.get("html") if "rw-map" in one.proto.body)
    rows = {row.partition(" ")[0]: row for row in re.findall("<th scope=row>(.*?)</tr>", body)}
    assert set(rows) == {"matmul", "rms_norm"}
    assert "matmul ▲ spills</th>" in rows["matmul"]
    assert ">-30.0%</a>" in rows["matmul"]
    assert ">✕ fails</a>" in rows["rms_norm"]
    # the other runner has not measured the newest commit
    assert re.search('<td class="rw-stale"[^>]*>[?]</td>', rows["matmul"])
    assert "2 kernels" not in texts(app)
    assert "Not listed: undecided, with too few values: 1 kernel." in texts(app)
    assert choice(app, "Time range").value == "all"


def test_a_kernel_that_became_slower_in_too_few_runs_is_undecided_and_never_unchanged(
    open_view: OpenView, store: Engine
) -> None:
    for number, time_us in enumerate((1.0, 1.02, 10.1, 10.8, 10.4, 11.9)):
        measured = make_measurement(median_ns=1e3 * time_us)
        untimed = make_measurement(MATMUL, outcome=Outcome.UNSUPPORTED)
        ingest_record(store, make_record(number, measurements=[measured, untimed]))

    seen = texts(open_view("ledger", window="all"))

    assert "unchanged" not in seen
    assert "undecided: 4 values since a possible change of +949 %; judged after a pair or" in seen
    listed = "Not listed: undecided, with too few values: 1 kernel; without a time: 1 kernel."
    assert listed in seen


def test_cases_that_fail_or_that_only_another_runner_measures_are_not_covered(
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
    gaps = table(open_view("ledger"), "gap")
    found = sorted(zip(gaps["gap"], gaps["kernel"], gaps["cases"], gaps["outcome"], strict=True))
    assert found == [
        ("failing", "rms_norm", "1 of 2", "crashed"),
        ("never measured", "matmul", "1 of 1", ""),
        ("never measured", "rms_norm", "1 of 2", ""),
        ("unsupported", "matmul", "1 of 1", ""),
    ]


def test_the_false_alarm_rate_counts_refuted_and_invalid_regressions(
    open_view: OpenView, store: Engine
) -> None:
    _, _, broken, *_ = store_history(store)
    decide(store, broken, TriageState.INVALID)
    app = open_view("ledger")
    shown = {one.label: one.value for one in app.metric}
    # of four told one was refuted by a pair, one called invalid, and two are confirmed
    assert shown == {"False-alarm rate": "50%", "Alerts": "4", "False": "2", "Untriaged": "0"}


def test_each_row_names_the_owner_of_its_kernel(
    open_view: OpenView, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners of rms_norm come from CODEOWNERS, those of matmul from the rules."""
    (tmp_path / "CODEOWNERS").write_text("/kernels/norm/ @ml/norms\n")
    (tmp_path / "alerts.toml").write_text(
        'codeowners = "CODEOWNERS"\n[[owners]]\nkernels = ["mat*"]\nowners = ["ada@example.com"]\n'
    )
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "alerts.toml"))
    judged = store_history(store)
    ingest_record(
        store, make_record(9, source_lines=(make_source_line(file="kernels/norm/rms_norm.py"),))
    )
    replace_regressions(store, PROJECT, judged)
    said = texts(open_view("ledger"))
    assert said.count("@ml/norms") == 2
    assert said.count("ada@example.com") == 1


@pytest.mark.usefixtures("judged")
def test_views_work_without_readable_alert_rules(
    open_view: OpenView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "gone.toml"))
    app = open_view("ledger")
    assert "Open regressions: 3" in texts(app)
