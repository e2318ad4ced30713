"""Opening the store."""

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
def test_embedded_store_keeps_records(tmp_path: Path) -> None:
    record = make_record()
    with open_store(folder=tmp_path / "store") as engine:
        ingest_record(engine, record)

    with open_store(folder=tmp_path / "store") as engine, Session(engine) as session:
        assert load_record(session, record.run_id) == record


@pytest.mark.parametrize("scheme", ["postgresql://", "postgres://", "postgresql+psycopg://"])
def test_postgres_url_schemes(database_url: URL, scheme: str) -> None:
    url = text_of(database_url).replace("postgresql+psycopg://", scheme)

    with open_store(url) as engine:
        assert migrate.current_revision(engine) == migrate.head_revision()


def test_store_without_schema_is_refused_until_upgraded(empty_database_url: URL) -> None:
    url = text_of(empty_database_url)
    with pytest.raises(StoreError, match="run: roofwatch db upgrade"), open_store(url):
        pass

    with open_server(url) as engine:
        migrate.upgrade(engine)

    with open_store(url) as engine:
        migrate.ensure_current(engine)


def test_unreachable_server_is_named_without_the_password() -> None:
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
        ("hunter2", "cannot be read"),
        ("postgresql://user:hunter2@host:port/name", "cannot be read"),
    ],
)
def test_invalid_url_is_refused_without_quoting_it(url: str, complaint: str) -> None:
    with pytest.raises(StoreError, match=f"{complaint}.*; write postgresql://user:password@host:5432/name") as caught:
        parse_url(url)

    assert "hunter2" not in str(caught.value)


def test_lost_connection_is_reported(database_url: URL) -> None:
    with (
        pytest.raises(StoreError, match=r"database 'test_.*: .*terminat.*connection was lost"),
        open_store(text_of(database_url)) as engine,
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
