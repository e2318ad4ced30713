"""A watched GPU's history in a database, for views that add nothing to it; and what the database is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, event
from streamlit.testing.v1 import AppTest

import roofwatch.dashboard.app
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard import data
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.filter_option_values import Facets
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import store_gpu_history
from tests.databases import TEMPLATE, Databases


@pytest.fixture
def open_view(open_view: OpenView, monkeypatch: pytest.MonkeyPatch) -> OpenView:
    """As that of all views, but the overview, which makes the pages known, ends before it reads anything."""

    def open_it(view: str, **asked: str) -> AppTest:
        app = AppTest.from_file(str(Path(roofwatch.dashboard.app.__file__)), default_timeout=60)
        with monkeypatch.context() as patched:
            patched.setattr(data, "read_facets", _refuse)
            app.run()
        app.switch_page(f"views/{view}.py")
        app.query_params.clear()
        for parameter, value in asked.items():
            app.query_params[parameter] = value
        return app.run()

    return open_it


@pytest.fixture(scope="package")
def history(databases: Databases) -> Iterator[tuple[URL, list[RunRecord]]]:
    """A database with the runs of a watched GPU, for tests that add nothing to it; and its six records."""
    url = databases.make(TEMPLATE)
    engine = create_engine(url)
    records = store_gpu_history(engine)
    engine.dispose()
    yield url, records
    databases.finish(url)


@pytest.fixture
def records(
    open_view: OpenView, history: tuple[URL, list[RunRecord]], monkeypatch: pytest.MonkeyPatch
) -> list[RunRecord]:
    """The records of the watched GPU, which the views show."""
    url, found = history
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", url.render_as_string(hide_password=False))
    return found


def _refuse(_project: str | None) -> Facets:
    raise StoreError("not asked for")


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What the database was asked."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)
