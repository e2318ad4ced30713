"""Rows are sent by a thread beside the one that gets them ready."""

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text

from roofwatch.db.ingest.column_bytes import Column
from roofwatch.db.ingest.staging import Columns, Target, sending

FIRST, SECOND = (Target(name, {"number": "int4"}) for name in ("first", "second"))


@pytest.fixture
def tables(store: Engine) -> Engine:
    with store.begin() as connection:
        for target in (FIRST, SECOND):
            connection.execute(text(f"CREATE TABLE {target.name} (number int CHECK (number > 0))"))
    return store


def numbers(target: Target, values: list[int]) -> Columns:
    columns: list[Column] = [values]
    return Columns(target, columns, len(values))


def stored(connection: Connection, target: Target) -> list[int]:
    return list(connection.scalars(text(f"SELECT number FROM {target.name} ORDER BY number")))


def test_tables_get_their_rows_in_the_transaction_of_the_connection(tables: Engine) -> None:
    with tables.connect() as connection:
        with sending(connection) as send:
            send(numbers(FIRST, [1, 2]))
            send(numbers(SECOND, [3]))
            send(numbers(FIRST, [4]))
        assert (stored(connection, FIRST), stored(connection, SECOND)) == ([1, 2, 4], [3])
    with tables.connect() as connection:
        assert stored(connection, FIRST) == []


def send_all(connection: Connection, loads: list[Columns], failure: Exception | None = None) -> None:
    with sending(connection) as send:
        for load in loads:
            send(load)
        if failure is not None:
            raise failure


def test_the_end_of_the_block_says_what_postgres_refused_first(tables: Engine) -> None:
    loads = [numbers(SECOND, [1]), numbers(FIRST, [-1]), numbers(SECOND, [-1])]
    with tables.connect() as connection, pytest.raises(psycopg.errors.CheckViolation, match="first"):
        send_all(connection, loads)


def test_a_block_that_fails_does_not_wait_for_what_postgres_waits_for(tables: Engine) -> None:
    loads = [numbers(SECOND, [1]), numbers(FIRST, [1]), numbers(SECOND, [2])]
    with tables.connect() as other, tables.connect() as connection:
        other.execute(text("LOCK TABLE first IN ACCESS EXCLUSIVE MODE"))
        attempt = connection.begin()
        with pytest.raises(ZeroDivisionError):
            send_all(connection, loads, ZeroDivisionError())
        attempt.rollback()
        assert stored(connection, SECOND) == []
