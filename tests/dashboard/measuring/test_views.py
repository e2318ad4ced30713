"""What holds for all views about what measures: Run, Runners, Fleet economics; and for Kernel on a watched GPU."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import (
    make_case,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.dashboard.conftest import OpenView, forget_answers
from tests.dashboard.gpu_history import SOFTMAX, gpu, store_gpu_history
from tests.dashboard.measuring.seen import figures
from tests.dashboard.test_views import HOSTILE, address, texts

VIEWS = ["run", "runners", "fleet"]
PARTS = ["health and noise", "history of a case", "ceilings", "environments"]


@pytest.mark.parametrize("view", VIEWS)
def test_without_any_run_a_view_says_which_commands_bring_one(open_view: OpenView, view: str) -> None:
    app = open_view(view)
    assert not app.exception
    assert "roofwatch run" in texts(app)
    assert "roofwatch ingest" in texts(app)


@pytest.mark.parametrize("view", VIEWS)
def test_a_run_without_results_is_no_error(open_view: OpenView, store: Engine, view: str) -> None:
    ingest_record(store, make_record(measurements=[], ceilings=()))
    app = open_view(view)
    assert not app.exception
    assert not app.error


@pytest.mark.parametrize(
    ("view", "asked"),
    [
        ("run", {}),
        ("fleet", {}),
        ("kernel", {"kernel": "softmax", "path": f"{SOFTMAX} triton"}),
        *(("runners", {"show": part}) for part in PARTS),
    ],
)
def test_a_view_of_a_watched_gpu_asks_six_times_at_most_and_its_address_opens_it_again(
    open_view: OpenView, records: list[RunRecord], statements: list[str], view: str, asked: dict[str, str]
) -> None:
    app = open_view(view, **asked)
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert figures(app) or asked.get("show") == "environments"
    forget_answers()
    statements.clear()
    again = open_view(view, **address(app))
    assert len(statements) <= 6, "\n\n".join(statements)
    assert address(again) == address(app)
    assert texts(again) == texts(app)


@pytest.mark.parametrize("view", [*VIEWS, "kernel"])
def test_filters_that_leave_nothing_say_so(open_view: OpenView, store: Engine, view: str) -> None:
    store_gpu_history(store)
    ingest_record(store, make_record(7, commit=make_commit(7, branch="other")))
    app = open_view(view, **{"branch": "other", "class": gpu().runner_class})
    assert not app.exception
    assert "widen" in app.info[0].value


def hostile_record(number: int) -> RunRecord:
    case_id = f"{HOSTILE.replace('/', '')}/n=1/float32/fwd"
    return make_record(
        number,
        commit=make_commit(number, author=HOSTILE, subject=HOSTILE),
        environment=make_environment(device_name=HOSTILE, os=f"{HOSTILE} {number}"),
        measurements=[
            make_measurement(case_id, implementation=HOSTILE),
            make_measurement(case_id, implementation="failed", outcome=Outcome.CRASHED, message=HOSTILE),
        ],
        static_facts=[make_static_facts(case_id, function=HOSTILE, target=HOSTILE)],
        cases=(make_case(case_id, family=HOSTILE),),
        spent_ns={HOSTILE: 1_000_000},
    )


@pytest.mark.parametrize(
    ("view", "asked"),
    [("run", {}), ("fleet", {}), ("kernel", {}), *(("runners", {"show": part}) for part in PARTS)],
)
def test_text_from_records_reaches_markdown_only_inside_code(
    open_view: OpenView, store: Engine, view: str, asked: dict[str, str]
) -> None:
    for number in range(2):
        ingest_record(store, hostile_record(number))
    app = open_view(view, **asked)
    assert not app.exception
    for kind in (app.markdown, app.caption, app.info, app.warning, app.success, app.subheader, app.metric):
        for element in kind:
            outside = re.sub(r"(`+).*?\1", "", str(element.value))
            assert "<img" not in outside
            assert "javascript" not in outside
