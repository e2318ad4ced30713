"""How often a view asks the database when nobody asked before: six times at most, whatever it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

import roofwatch.dashboard.app
from roofwatch.dashboard import data
from roofwatch.db.auth.values import TriageState
from roofwatch.db.bisections import request_bisection
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id, set_triage
from roofwatch.db.values import BisectionRange
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.dashboard.conftest import forget_answers, forget_everything
from tests.dashboard.gpu_history import HOT_AT, SOFTMAX, SOFTMAX_SMALL, gpu, store_gpu_history
from tests.dashboard.test_regression_view import store_move
from tests.dashboard.test_views import texts
from tests.databases import TEMPLATE, Databases

MOST_QUESTIONS = 6
MOVED = "moved/project"
"""Whose disassembly is stored. An address names its project, and such a one is opened here."""
HOT_SERIES = make_series_key(case_id=SOFTMAX, implementation="triton", runner_class=gpu().runner_class)
SLOWER = make_regression(HOT_AT, kernel="softmax", change_points=(make_change_point(HOT_AT, series=HOT_SERIES),))
TREND = {"kernel": "softmax", "case": SOFTMAX, "metric": "median_ns"}


@pytest.fixture(scope="module")
def everything(databases: Databases) -> Iterator[URL]:
    """A watched GPU's runs and one on a CPU, a regression, what was decided about it, and its bisection."""
    url = databases.make(TEMPLATE)
    engine = create_engine(url)
    store_gpu_history(engine)
    ingest_record(engine, make_record(7, commit=make_commit(7, branch="other"), measurements=[make_measurement()]))
    _judge(engine)
    store_move(engine, project=MOVED)
    engine.dispose()
    yield url
    databases.finish(url)


def _judge(engine: Engine) -> None:
    replace_regressions(engine, PROJECT, [SLOWER])
    found = regression_id(SLOWER)
    set_triage(engine, PROJECT, found, TriageState.ACKNOWLEDGED, person="somebody", reason="a reason", actor="a test")
    asked = BisectionRange(PROJECT, SOFTMAX, "triton", sha_of(HOT_AT - 1), sha_of(HOT_AT))
    with Session(engine) as session, session.begin():
        request_bisection(session, asked, requested_by="somebody", regression_id=found)


@pytest.fixture
def statements(everything: URL, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the database was asked; the dashboard is open, and remembers nothing."""
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", everything.render_as_string(hide_password=False))
    forget_everything()
    data.read_facets(None)
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append(f"{statement}\n{parameters}")

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)
    forget_everything()


def _refuse(_project: str | None) -> Facets:
    raise StoreError("the pages are known now")


@pytest.mark.parametrize(
    ("view", "asked", "seen"),
    [
        ("overview", {}, "Open regressions: 1"),
        ("regression", {}, "waits for a runner"),
        ("regression", {"project": MOVED, "disassembly": "yes"}, "+HMMA R2"),
        ("trends", TREND, "Change points"),
        (
            "trends",
            {**TREND, "further": ["utilisation", "rmse_ratio", "registers"], "beside": [SOFTMAX_SMALL]},
            "Change points",
        ),
        ("trends", {**TREND, "window": "3"}, "Change points"),
        ("compare", {}, "comparable"),
        ("compare", {"base": sha_of(0), "head": sha_of(1), "samples": "yes"}, "Samples of one case"),
        *(("compare", {"by": by}, "Samples of one case") for by in ("runs", "branches", "toolchains", "devices")),
        ("kernel", {"kernel": "softmax", "path": f"{SOFTMAX} triton"}, "Roofline"),
        ("run", {}, "Took"),
        *(
            ("runners", {"show": show}, "")
            for show in ("health and noise", "history of a case", "ceilings", "environments")
        ),
        *(("fleet", {"show": show}, "By kernel family") for show in ("activity", "runner-energy")),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(map(str, one)),
)
def test_a_view_asks_six_times_at_most(
    statements: list[str], monkeypatch: pytest.MonkeyPatch, view: str, asked: dict[str, str | list[str]], seen: str
) -> None:
    app = AppTest.from_file(str(Path(roofwatch.dashboard.app.__file__)), default_timeout=60)
    with monkeypatch.context() as patched:
        patched.setattr(data, "read_facets", _refuse)
        app.run()
    app.switch_page(f"views/{view}.py")
    for parameter, value in asked.items():
        app.query_params[parameter] = value
    forget_answers()
    statements.clear()

    app.run()

    assert not app.exception
    assert not app.error
    assert seen in texts(app)
    assert 0 < len(statements) <= MOST_QUESTIONS, "\n\n".join(statements)
    assert len(set(statements)) == len(statements), "\n\n".join(statements)
