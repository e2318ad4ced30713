"""Statements that stay prepared from one question to the next, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import psycopg
import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from roofwatch.api.limits import Limits
from roofwatch.db.engine.client_programs import describe_server
from roofwatch.db.engine.session import make_engine, open_sibling, open_store, parse_url, reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.runs import list_commits, list_projects
from roofwatch.db.schema.partitions import ensure_partitions
from roofwatch.store.database_source import DatabaseSource
from tests.builders import PROJECT, make_record

OFTEN = 7
"""More than it takes the driver to prepare a statement."""


@pytest.fixture
def store(database_url: URL) -> Iterator[Engine]:
    """A store with a run, and one connection to it."""
    with open_store(text_of(database_url), connections=1) as engine:
        ingest_record(engine, make_record(1))
        yield engine


def text_of(url: URL, **query: str) -> str:
    return url.update_query_dict(query).render_as_string(hide_password=False)


def ask_often(engine: Engine) -> None:
    for _ in range(OFTEN):
        with reading_session(engine) as session:
            assert [commit.sha for commit in list_commits(session, PROJECT)]


def prepared(engine: Engine) -> set[str]:
    """Statements about commits that are."""
    with reading_session(engine) as session:
        found = session.scalars(text("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%commit%'"))
        return {statement for statement in found if "pg_prepared" not in statement}


def test_a_question_stays_prepared_until_one_fails(store: Engine) -> None:
    ask_often(store)
    assert len(prepared(store)) == 1
    DatabaseSource(store).list_projects()
    assert len(prepared(store)) == 1

    with pytest.raises(ProgrammingError, match="no_such_table"), reading_session(store) as session:
        session.execute(text("SELECT 1 FROM no_such_table"))

    assert prepared(store) == set()


def test_a_question_that_the_reader_gives_up_is_rolled_back(store: Engine) -> None:
    ask_often(store)

    with pytest.raises(StoreError, match="given up"), reading_session(store):
        raise StoreError("given up")

    assert store.pool.checkedout() == 0  # type: ignore[attr-defined]  # a pool with a size
    with reading_session(store) as session:
        assert list_projects(session) == [PROJECT]


def test_a_session_that_reads_can_change_nothing_and_leaves_the_connection_as_it_was(database_url: URL) -> None:
    replica_like = text_of(database_url, options="-c default_transaction_read_only=on")
    with open_store(replica_like, connections=1) as engine:
        with (
            pytest.raises(StoreError, match="only reads"),
            open_store(text_of(database_url), connections=1) as writer,
            reading_session(writer) as session,
        ):
            session.execute(text("DELETE FROM project"))
        with reading_session(engine) as session:
            assert session.scalar(text("SHOW transaction_isolation")) == "read committed"
        with Session(engine) as session:
            # a replica refuses a transaction that is said to write
            assert session.scalar(text("SHOW transaction_read_only")) == "on"


def test_one_state_is_seen_for_a_bounded_time_where_that_is_asked_for(store: Engine) -> None:
    with reading_session(store, sees_one_state=True, timeout_s=Limits().query_s) as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "repeatable read"
        assert session.scalar(text("SHOW statement_timeout")) == "30s"
    with reading_session(store) as session:
        assert session.scalar(text("SHOW statement_timeout")) == "0"


def test_what_is_added_to_the_schema_meanwhile_costs_no_question(store: Engine) -> None:
    ask_often(store)
    with open_sibling(store, str(store.url.database)) as other:
        with other.begin() as connection:
            connection.execute(text("ALTER TABLE commit ADD more text"))
            connection.execute(text("CREATE TABLE more (id int)"))
        ensure_partitions(other, date(2031, 1, 1))

    ask_often(store)

    assert len(prepared(store)) == 1


def test_tables_that_are_changed_meanwhile_cost_one_question_for_all_connections(store: Engine) -> None:
    many = make_engine(store.url, pool_size=2, max_overflow=0)
    before = backends(many)
    ask_often(many)
    ask_often(many)
    with open_sibling(store, str(store.url.database)) as other, other.begin() as connection:
        connection.execute(text("ALTER TABLE commit ALTER author TYPE varchar(500)"))

    with pytest.raises(OperationalError, match="its tables are others than a moment ago"):
        ask_often(many)

    ask_often(many)
    assert backends(many).isdisjoint(before)
    many.dispose()


def backends(engine: Engine) -> set[int]:
    """Of the two connections that an engine has."""
    with engine.connect() as one, engine.connect() as other:
        return {connection.execute(text("SELECT pg_backend_pid()")).scalar_one() for connection in (one, other)}


def test_a_proxy_that_changes_connections_is_told_with_the_way_out(store: Engine) -> None:
    ask_often(store)
    with store.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.pgconn.exec_(b"DEALLOCATE ALL")  # as the driver does not know

    with pytest.raises(OperationalError, match=r"not on this connection.*add prepare_threshold=none to the database"):
        ask_often(store)


def test_nothing_is_prepared_where_the_url_says_so(database_url: URL) -> None:
    with open_store(text_of(database_url, prepare_threshold="none"), connections=1) as engine:
        ingest_record(engine, make_record(1))
        ask_often(engine)

        assert prepared(engine) == set()
        assert "prepare" not in describe_server(engine).conninfo


def test_what_is_prepared_on_a_connection_is_bounded(store: Engine) -> None:
    with reading_session(store) as session:
        driver = session.connection().connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        most = driver.prepared_max
        assert most == 100
        with driver.cursor() as cursor:
            for number in range(most + 20):
                cursor.execute(f"SELECT {number} + %s", (1,), prepare=True)
        count = session.scalar(text("SELECT count(*) FROM pg_prepared_statements"))

    assert count in {most, most + 1}


@pytest.mark.parametrize("said", ["soon", "-1", "5.5"])
def test_a_threshold_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(StoreError, match=f"says prepare_threshold='{said}': write prepare_threshold=none"):
        parse_url(f"postgresql://host/name?prepare_threshold={said}")
