"""The dashboard needs no more of the database than to read it."""

import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine

from roofwatch.db.engine.readers import grant_reader
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import store_history


@pytest.fixture
def reader(store: Engine) -> Iterator[str]:
    # roles are the whole server's, which other tests share
    role = f"reader_{uuid.uuid4().hex[:12]}"
    grant_reader(store, role, password="x", actor="a test")
    yield role
    with store.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")


@pytest.mark.parametrize("view", ["overview", "trends", "compare", "kernel"])
def test_every_view_opens_as_a_role_that_only_reads(
    store: Engine, database_url: URL, reader: str, open_view: OpenView, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    store_history(store)
    url = database_url.set(username=reader, password="x")
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", url.render_as_string(hide_password=False))

    app = open_view(view)

    assert not app.exception
    assert not app.error
    assert app.title
    forget_everything()
