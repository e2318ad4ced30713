"""Rows into tables by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from roofwatch.db.engine.session import driver_connection

Rows = Iterable[Sequence[object]]


def copy_rows(connection: Connection, table: str, columns: Iterable[str], rows: Rows) -> None:
    """Send rows to a table in the connection's transaction.

    Raises:
        psycopg.Error: a value cannot be sent or stored, or the connection is lost; from the driver, not SQLAlchemy.
    """
    names = ", ".join(f'"{name}"' for name in columns)
    with (
        driver_connection(connection).cursor() as cursor,
        cursor.copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy,
    ):
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
    with driver_connection(connection).cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {table} ({definition}) ON COMMIT DROP".encode())
    copy_rows(connection, table, columns, rows)
    with driver_connection(connection).cursor() as cursor:
        # without statistics Postgres expects a thousand rows of anything
        cursor.execute(f"ANALYZE {table}".encode())
