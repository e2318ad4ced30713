"""Rows into tables by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import psycopg
from sqlalchemy import Connection

Rows = Iterable[Sequence[object]]


def copy_rows(connection: Connection, table: str, columns: Iterable[str], rows: Rows) -> None:
    """Send rows to a table in the connection's transaction.

    Raises:
        psycopg.Error: a value cannot be sent or stored, or the connection is lost; from the driver, not SQLAlchemy.
    """
    names = ", ".join(f'"{name}"' for name in columns)
    with _driver(connection).cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def stage_rows(connection: Connection, table: str, columns: Mapping[str, str], rows: Rows) -> None:
    """Fill a new temporary table, gone at the end of the transaction.

    Args:
        connection: In a transaction.
        table: A name that no other table has.
        columns: Their types, by name.
        rows: In the order of the columns.

    Raises:
        psycopg.Error: as `copy_rows`.
    """
    definition = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    with _driver(connection).cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {table} ({definition}) ON COMMIT DROP".encode())
    copy_rows(connection, table, columns, rows)
    with _driver(connection).cursor() as cursor:
        # without statistics Postgres expects a thousand rows of anything
        cursor.execute(f"ANALYZE {table}".encode())


def _driver(connection: Connection) -> psycopg.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
