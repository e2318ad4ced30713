"""Rows on their way into tables by binary COPY: to where they stay, or, if what is there has to be asked about them,
into temporary tables that go with the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection

from db.storing.column_bytes import Column, encode


@dataclass(frozen=True)
class Target:
    """A table that rows are sent to, and the types of the columns that they have, by name. What is `json` there is sent
    as `text`: the two are the same on the way.
    """

    name: str
    columns: Mapping[str, str]

    @property
    def definition(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


@dataclass(frozen=True)
class Load:
    """Rows for a table; they may be made as they are sent."""

    target: Target
    rows: Iterable[Sequence[object]]


@dataclass(frozen=True)
class Columns:
    """The same by columns, which is quicker where there are many rows."""

    target: Target
    values: Sequence[Column]
    row_count: int


@contextmanager
def sending(connection: Connection) -> Iterator[Callable[[Load | Columns], None]]:
    """Send rows to one table after the other, in the connection's transaction: the block is given what does that.

    It returns when all rows are on their way, so that the next are got ready, columns to the last byte, while Postgres
    still stores these; before those are sent, and at the end of the block, it waits for these.

    Raises:
        psycopg.Error: a value cannot be sent or stored, or the connection is lost. It comes from the driver itself, not
            through SQLAlchemy.
    """
    with ExitStack() as last:

        def send(load: Load | Columns) -> None:
            blocks = _encoded(connection, load)
            last.close()
            last.enter_context(_copying(connection, load, blocks))

        yield send


def stage_rows(connection: Connection, load: Load | Columns) -> None:
    """Create a temporary table, whose name no other has, in the connection's transaction and fill it.

    Raises:
        psycopg.Error: as `sending`.
    """
    stage = load.target
    with _driver(connection).cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {stage.name} ({stage.definition}) ON COMMIT DROP".encode())
        with _copying(connection, load, _encoded(connection, load)):
            pass
        # without figures Postgres expects a thousand rows of anything, and joins accordingly
        cursor.execute(f"ANALYZE {stage.name}".encode())


def _encoded(connection: Connection, load: Load | Columns) -> Sequence[bytes]:
    """What can be got ready before Postgres listens: all of columns, nothing of rows."""
    if isinstance(load, Load):
        return ()
    kinds = list(load.target.columns.values())
    return list(encode(kinds, load.values, load.row_count, _driver(connection).info.encoding))


@contextmanager
def _copying(connection: Connection, load: Load | Columns, blocks: Sequence[bytes]) -> Iterator[None]:
    """Send what is encoded, or else the rows; what Postgres makes of them is heard when the block ends."""
    columns = ", ".join(f'"{name}"' for name in load.target.columns)
    statement = f"COPY {load.target.name} ({columns}) FROM STDIN (FORMAT BINARY)"
    with _driver(connection).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for block in blocks:
            copy.write(block)
        if isinstance(load, Load):
            copy.set_types(list(load.target.columns.values()))
            for row in load.rows:
                copy.write_row(row)
        yield


def _driver(connection: Connection) -> psycopg.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
