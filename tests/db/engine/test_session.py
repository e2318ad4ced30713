"""Opening the store: embedded, or wherever a URL says."""

import re
import socket
from pathlib import Path

import pytest
from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from roofwatch.db.engine import migrate
from roofwatch.db.engine.session import open_server, open_store, parse_url
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from tests.builders import make_record


def text_of(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.slow
def test_the_embedded_store_is_ready_to_use_and_keeps_what_it_is_given(tmp_path: Path) -> None:
    record = make_record()
    with open_store(folder=tmp_path / "store") as engine:
        ingest_record(engine, record)

    with open_store(folder=tmp_path / "store") as engine, Session(engine) as session:
        assert load_record(session, record.run_id) == record


@pytest.mark.parametrize("scheme", ["postgresql://", "postgres://", "postgresql+psycopg://"])
def test_a_url_is_taken_as_people_write_it(database_url: URL, scheme: str) -> None:
    url = text_of(database_url).replace("postgresql+psycopg://", scheme)

    with open_store(url) as engine:
        assert migrate.current_revision(engine) == migrate.head_revision()


def test_a_store_without_a_schema_is_refused_until_it_is_upgraded(empty_database_url: URL) -> None:
    url = text_of(empty_database_url)
    with pytest.raises(StoreError, match="run: roofwatch db upgrade"), open_store(url):
        pass

    with open_server(url) as engine:
        migrate.upgrade(engine)

    with open_store(url) as engine:
        migrate.ensure_current(engine)


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with (
        pytest.raises(StoreError, match=rf"database 'name' on 127\.0\.0\.1:{port}: cannot be reached: ") as caught,
        open_store(f"postgresql://user:hunter2@127.0.0.1:{port}/name"),
    ):
        pass

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://user:hunter2@host/name", "starts with mysql://, which is not Postgres"),
        ("postgresql+asyncpg://user:hunter2@host/name", "which is not Postgres"),
        ("hunter2", "cannot be read"),
        ("", "cannot be read"),
        ("postgresql://user:hunter2@host:port/name", "cannot be read"),
    ],
)
def test_what_is_no_postgres_url_is_refused_with_the_form_it_should_have(url: str, complaint: str) -> None:
    with pytest.raises(StoreError, match=f"{complaint}.*; write postgresql://user:password@host:5432/name") as caught:
        parse_url(url)

    assert "hunter2" not in str(caught.value)


def test_a_server_lost_in_the_middle_is_one_clear_error(database_url: URL) -> None:
    with (
        pytest.raises(StoreError, match=r"database 'test_.*: .*terminat.*connection was lost"),
        open_store(text_of(database_url)) as engine,
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def test_engines_are_made_in_one_place() -> None:
    root = Path(__file__).parents[3]
    packages = ("collector", "db", "ci", "api", "dashboard", "roofwatch")
    files = [file for package in packages for file in (root / package).rglob("*.py")]

    makers = {str(file.relative_to(root)) for file in files if re.search(r"\bcreate_engine\b", file.read_text())}

    assert makers == {"db/engine/session.py"}
