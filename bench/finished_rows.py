"""The rows of a stored run, as if somebody had them finished, and the ways to bring them into the tables: binary COPY,
and SQLAlchemy's mapped classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import JSON, Engine, Table, delete, insert, inspect, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from roofwatch.db.ingest.shared_rows import as_json
from roofwatch.db.schema.records import (
    AccuracyRow,
    Base,
    CeilingRow,
    CompilationRow,
    CountersRow,
    MeasurementRow,
    RunRow,
    SampleSetRow,
    TensorErrorRow,
)
from roofwatch.db.schema.table import Coded

OF_RUN: tuple[type[Base], ...] = (
    *(RunRow, CeilingRow, MeasurementRow, SampleSetRow),
    *(AccuracyRow, TensorErrorRow, CompilationRow, CountersRow),
)
"""All that is a run's own, the run first."""

Rows = dict[type[Base], list[dict[str, Any]]]
"""By the columns of the table."""


def read_rows(engine: Engine, run_id: UUID) -> Rows:
    """All rows of a run, without what Postgres computes."""
    with Session(engine) as session:
        number = session.scalars(select(RunRow.number).where(RunRow.run_id == run_id)).one()
        rows: Rows = {}
        for mapped in OF_RUN:
            table = _table(mapped)
            of_run = table.c.run_id == run_id if "run_id" in table.c else table.c.run_number == number
            query = select(*_given(table)).where(of_run)
            rows[mapped] = [dict(row._mapping) for row in session.execute(query)]
        return rows


def remove_run(engine: Engine, run_id: UUID) -> None:
    """Make room for it to come again."""
    with engine.begin() as connection:
        connection.execute(delete(RunRow).where(RunRow.run_id == run_id))


def as_copied(rows: Rows) -> Rows:
    """The same with the values that COPY takes: codes instead of words, documents instead of what they say."""
    copied: Rows = {}
    for mapped, some in rows.items():
        kinds = {column.name: column.type for column in _given(_table(mapped))}
        copied[mapped] = [{name: _copied(kind, row[name]) for name, kind in kinds.items()} for row in some]
    return copied


def copy(engine: Engine, rows: Rows) -> None:
    """Send rows that are `as_copied`, a statement for each table, all in one transaction."""
    raw = engine.raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.Connection)
    for mapped, some in rows.items():
        _copy_table(driver, _table(mapped), some)
    driver.commit()
    raw.close()


def insert_rows(engine: Engine, rows: Rows) -> None:
    """The quickest of SQLAlchemy's ways: lists of values, no objects."""
    with Session(engine) as session, session.begin():
        for mapped, some in rows.items():
            if some:
                session.execute(insert(mapped), some)


def add_objects(engine: Engine, rows: Rows) -> None:
    """The usual way of SQLAlchemy's: an object for each row."""
    with Session(engine) as session, session.begin():
        for mapped, some in rows.items():
            session.add_all(make_objects(mapped, some))
            session.flush()


def make_objects(mapped: type[Base], rows: Sequence[dict[str, Any]]) -> list[Base]:
    """Objects of a mapped class, whose attributes may be called otherwise than the columns."""
    names = {attribute.columns[0].name: attribute.key for attribute in inspect(mapped).column_attrs}
    return [mapped(**{names[column]: value for column, value in row.items()}) for row in rows]


def _copy_table(driver: psycopg.Connection[Any], table: Table, rows: Sequence[dict[str, Any]]) -> None:
    columns = [column.name for column in _given(table)]
    with driver.cursor() as cursor:
        catalogue = "SELECT attname, atttypid::regtype::text FROM pg_attribute WHERE attrelid = %s::regclass"
        types = dict(cursor.execute(catalogue, (table.name,)).fetchall())
        named = ", ".join(f'"{column}"' for column in columns)
        with cursor.copy(f"COPY {table.name} ({named}) FROM STDIN (FORMAT BINARY)".encode()) as sending:
            # a document is the same on the way as its text
            sending.set_types(["text" if types[column] == "json" else types[column] for column in columns])
            for row in rows:
                sending.write_row([row[column] for column in columns])


def _copied(kind: Any, value: Any) -> Any:
    if isinstance(kind, Coded):
        return kind.process_bind_param(value, postgresql.dialect())
    return as_json(value) if isinstance(kind, JSON) and value is not None else value


def _given(table: Table) -> list[Any]:
    return [column for column in table.columns if column.computed is None]


def _table(mapped: type[Base]) -> Table:
    table = mapped.__table__
    assert isinstance(table, Table)
    return table
