"""Opening and migrating the store, and sessions that only read."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, text
from sqlalchemy.orm import Session

from roofwatch.api.limits import Limits
from roofwatch.db.engine import migrate
from roofwatch.db.engine.session import open_server, open_store, parse_url, reading_session
from roofwatch.db.errors import StoreError
from tests.databases import text_of
from tests.db.engine.definitions import definitions


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


def test_status_names_the_server(store: Engine) -> None:
    status = migrate.read_status(store)

    assert status.server == f"{store.url.query['host']}:5432/{store.url.database}"
    assert status.server_version.startswith("18.")
    assert status.schema_revision is not None
    assert set(status.row_counts.values()) == {0}


def test_a_database_of_another_encoding_is_refused(empty_database_url: URL) -> None:
    server = create_engine(empty_database_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(
            text("CREATE DATABASE of_bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        )
        with (
            pytest.raises(
                StoreError, match="has encoding SQL_ASCII; create the database with ENCODING 'UTF8'"
            ),
            open_server(text_of(empty_database_url.set(database="of_bytes"))),
        ):
            pass
        connection.execute(text("DROP DATABASE of_bytes"))
    server.dispose()


def test_unreachable_server_is_named_without_the_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with (
        pytest.raises(
            StoreError, match=rf"database 'name' on 127\.0\.0\.1:{port}: cannot be reached: "
        ) as caught,
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
    with pytest.raises(
        StoreError, match=f"{complaint}.*; write postgresql://user:password@host:5432/name"
    ) as caught:
        parse_url(url)

    assert "hunter2" not in str(caught.value)


def test_lost_connection_is_reported(database_url: URL) -> None:
    with (
        pytest.raises(StoreError, match=r"database 'test_.*: .*terminat.*connection was lost"),
        open_store(text_of(database_url)) as engine,
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def test_reading_session_cannot_write(database_url: URL) -> None:
    with (
        pytest.raises(StoreError, match="only reads"),
        open_store(text_of(database_url), connections=1) as writer,
        reading_session(writer) as session,
    ):
        session.execute(text("DELETE FROM project"))


def test_reading_session_resets_the_connection(database_url: URL) -> None:
    replica_like = text_of(database_url, options="-c default_transaction_read_only=on")
    with open_store(replica_like, connections=1) as engine:
        with reading_session(engine) as session:
            assert session.scalar(text("SHOW transaction_isolation")) == "read committed"
        with Session(engine) as session:
            # a replica refuses read-write transactions
            assert session.scalar(text("SHOW transaction_read_only")) == "on"


def test_a_snapshot_sees_one_state(store: Engine) -> None:
    with reading_session(store, sees_one_state=True) as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "repeatable read"


def test_a_statement_timeout_ends_with_its_session(store: Engine) -> None:
    with reading_session(store, timeout_s=Limits().query_s) as session:
        assert session.scalar(text("SHOW statement_timeout")) == "30s"
    with reading_session(store) as session:
        assert session.scalar(text("SHOW statement_timeout")) == "0"


def test_no_prepared_statements(store: Engine) -> None:
    with reading_session(store) as session:
        for _ in range(10):
            session.scalar(text("SELECT :number + 1"), {"number": 1})

        assert session.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0


@pytest.fixture
def blank(empty_database_url: URL) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def test_concurrent_upgrades_are_safe(store: Engine, blank: Engine) -> None:
    count = 6
    engine = create_engine(blank.url, pool_size=count)
    barrier = threading.Barrier(count)

    def upgrade(_: int) -> None:
        barrier.wait(timeout=60)
        migrate.upgrade(engine)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(upgrade, range(count)))
    engine.dispose()

    migrate.ensure_current(blank)
    assert definitions(blank) == definitions(store)


def test_failed_upgrade_is_rolled_back(blank: Engine) -> None:
    with blank.begin() as connection:
        connection.execute(text("CREATE TABLE tensor_error (already text)"))

    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(blank)

    assert inspect(blank).get_table_names() == ["tensor_error"]
