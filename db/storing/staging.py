"""Rows on their way into tables: sent by binary COPY into temporary tables that go with the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection


@dataclass(frozen=True)
class Stage:
    """A temporary table: a name that no other table has, and the types of its columns by name."""

    name: str
    columns: Mapping[str, str]

    @property
    def definition(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


def stage_rows(connection: Connection, stage: Stage, rows: Iterable[Sequence[object]]) -> None:
    """Create the table in the connection's transaction and fill it.

    Raises:
        psycopg.Error: a value cannot be sent or stored, or the connection is lost. It comes from the driver itself, not
            through SQLAlchemy.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    with driver.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {stage.name} ({stage.definition}) ON COMMIT DROP".encode())
        with cursor.copy(f"COPY {stage.name} FROM STDIN (FORMAT BINARY)".encode()) as copy:
            copy.set_types(list(stage.columns.values()))
            for row in rows:
                copy.write_row(row)
        # without figures Postgres expects a thousand rows of anything, and joins accordingly
        cursor.execute(f"ANALYZE {stage.name}".encode())
