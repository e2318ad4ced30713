"""Rows on their way into tables by binary COPY: to where they stay, or, if what is there has to be asked about them,
into temporary tables that go with the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection

from roofwatch.db.ingest.column_bytes import Column, encode

_CANCEL_TIMEOUT_S = 5.0
_MOMENT_S = 0.2


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
    """Send rows to one table after the other, in the connection's transaction: the block is given what does that, and
    asks nothing else of the connection.

    It returns at once: a thread sends the rows and waits for Postgres, while the block gets the next ready, columns to
    the last byte. The end of the block waits for all of it.

    Raises:
        psycopg.Error: a value cannot be sent or stored, or the connection is lost. It comes from the driver itself, not
            through SQLAlchemy.
    """
    driver = _driver(connection)
    with ThreadPoolExecutor(1) as beside:
        sent: list[Future[None]] = []

        def send(load: Load | Columns) -> None:
            blocks = _encoded(driver, load)
            sent.append(beside.submit(_copy, driver, load, blocks))

        try:
            yield send
            for copied in sent:
                copied.result()
        except BaseException:
            beside.shutdown(wait=False, cancel_futures=True)
            going_on = [copied for copied in sent if not copied.cancelled()]
            # nothing of it is kept, so Postgres, which may be waiting for others, is told to stop until it does
            while wait(going_on, timeout=_MOMENT_S).not_done:
                with suppress(psycopg.Error):
                    driver.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
            raise


def stage_rows(connection: Connection, load: Load | Columns) -> None:
    """Create a temporary table, whose name no other has, in the connection's transaction and fill it.

    Raises:
        psycopg.Error: as `sending`.
    """
    stage = load.target
    with _driver(connection).cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {stage.name} ({stage.definition}) ON COMMIT DROP".encode())
        _copy(_driver(connection), load, _encoded(_driver(connection), load))
        # without figures Postgres expects a thousand rows of anything, and joins accordingly
        cursor.execute(f"ANALYZE {stage.name}".encode())


def _encoded(driver: psycopg.Connection, load: Load | Columns) -> Sequence[bytes]:
    """What can be got ready before Postgres listens: all of columns, nothing of rows."""
    if isinstance(load, Load):
        return ()
    kinds = list(load.target.columns.values())
    return list(encode(kinds, load.values, load.row_count, driver.info.encoding))


def _copy(driver: psycopg.Connection, load: Load | Columns, blocks: Sequence[bytes]) -> None:
    """Send what is encoded, or else the rows, and wait until Postgres has them."""
    columns = ", ".join(f'"{name}"' for name in load.target.columns)
    statement = f"COPY {load.target.name} ({columns}) FROM STDIN (FORMAT BINARY)"
    with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for block in blocks:
            copy.write(block)
        if isinstance(load, Load):
            copy.set_types(list(load.target.columns.values()))
            for row in load.rows:
                copy.write_row(row)


def _driver(connection: Connection) -> psycopg.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
