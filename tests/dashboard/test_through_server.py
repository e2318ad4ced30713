"""The dashboard reading through a server instead of a database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE
from roofwatch.commands import serve
from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError
from roofwatch.dashboard.navigation import VIEWS
from roofwatch.db.regressions.deciding import DecisionKind, TriageDecision
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import Scope
from tests.api.conftest import served, token_of_today
from tests.builders import PROJECT
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import store_history
from tests.dashboard.seen import texts


def _refuse() -> None:
    raise AssertionError("the database is opened")


@pytest.mark.slow
def test_views_read_through_a_server_until_it_is_down(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slower = store_history(store)[0]
    token = token_of_today(store, Scope.READ)
    with served(store) as (host, port):
        monkeypatch.delenv("ROOFWATCH_DATABASE_URL")
        for name, value in {
            "ROOFWATCH_SERVER_URL": f"http://{host}:{port}",
            "ROOFWATCH_DATA_DIR": str(tmp_path),
            "ROOFWATCH_TRIAGERS": "@example.com",
            TOKEN_VARIABLE: token,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(data, "open_configured_store", _refuse)
        monkeypatch.setattr("roofwatch.configuration.arguments.open_configured_store", _refuse)

        for view in VIEWS:
            assert _shown(open_view(view)), view
        ledger = open_view("ledger", regression=str(regression_id(slower)))
        assert slower.summary in _shown(ledger)
        with Session(store) as session:
            about = list_triaged(session, PROJECT)[-1]
        me = Signature(person="somebody@example.com", actor="a test")
        with pytest.raises(NotAllowedError, match="reads through a server"):
            data.decide(PROJECT, about, TriageDecision(kind=DecisionKind.UNDO), me)

        monkeypatch.setenv(TOKEN_VARIABLE, wrong := token[:-1] + ("A" if token[-1] != "A" else "B"))
        forget_everything()
        (error,) = open_view("ledger").error
        assert "The server cannot be read" in error.value
        assert "HTTP 401" in error.value
        assert wrong not in error.value
    forget_everything()
    (error,) = open_view("ledger").error
    assert "no connection" in error.value


def _shown(app: AppTest) -> str:
    assert not app.error
    return texts(app)


def test_the_command_asks_the_server_before_it_serves(
    store: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr("roofwatch.dashboard.serve.serve", lambda **fields: asked.update(fields))
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://nobody@nowhere/nothing")
    monkeypatch.setenv(TOKEN_VARIABLE, token_of_today(store, Scope.READ))
    with served(store) as (host, port):
        url = f"http://{host}:{port}"
        serve.dashboard(url=url)
    assert asked["server_url"] == url

    asked.clear()
    with pytest.raises(SpoolError, match="no connection"):
        serve.dashboard(url=url)
    assert asked == {}
