"""Export every table to a Parquet file."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Column, Engine, MetaData, NullPool, Table, create_engine, select
from sqlalchemy import types as sql
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError

SECRET = frozenset({"token", "project_access", "queued_content", "alembic_version"})
"""Tables that are not exported."""
# bounds the memory of an export
_BATCH_ROWS = 10_000
_ARROW_TYPES: tuple[tuple[type[sql.TypeEngine[Any]], pa.DataType], ...] = (
    (sql.Uuid, pa.string()),
    (sql.JSON, pa.string()),
    (sql.Integer, pa.int64()),
    (sql.Boolean, pa.bool_()),
    (sql.Float, pa.float64()),
    (sql.DateTime, pa.timestamp("us", tz="UTC")),
    (sql.Date, pa.date32()),
    (sql.LargeBinary, pa.binary()),
    (sql.String, pa.string()),
)


@dataclass(frozen=True)
class ExportedTable:
    name: str
    row_count: int
    size_bytes: int


def export_parquet(
    engine: Engine,
    folder: Path,
    *,
    on_progress: Callable[[str, int], None] = lambda _table, _rows: None,
) -> list[ExportedTable]:
    """Write `<table>.parquet` for every table, from one snapshot.

    Samples are lists of nanoseconds, one row per measurement. JSON columns are text. `on_progress`
    gets a table and the rows written so far.

    Raises:
        StoreError: a file exists already, or cannot be written; no partial file is left.
    """
    schema = MetaData()
    # the tables that are there: a database of any revision can be exported. Reflection reads values
    # as text, our own engines receive them in binary
    schema.reflect(create_engine(engine.url, poolclass=NullPool))
    tables = [table for table in schema.sorted_tables if table.name not in SECRET]
    existing = [table.name for table in tables if (folder / f"{table.name}.parquet").exists()]
    if existing:
        raise StoreError(f"{folder / existing[0]}.parquet exists already; choose an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Session(engine.execution_options(isolation_level="REPEATABLE READ")) as session:
            return [_export(session, table, folder, on_progress) for table in tables]
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror}") from None


def _export(
    session: Session,
    table: Table,
    folder: Path,
    on_progress: Callable[[str, int], None],
) -> ExportedTable:
    path = folder / f"{table.name}.parquet"
    temporary = folder / f".{table.name}.parquet.tmp"
    schema = pa.schema([_field(column) for column in table.columns])
    rows = session.execute(select(table).execution_options(yield_per=_BATCH_ROWS))
    row_count = 0
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for batch in rows.partitions():
                of_columns = zip(table.columns, schema, zip(*batch, strict=True), strict=True)
                arrays = [_array(column, field, values) for column, field, values in of_columns]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                row_count += len(batch)
                on_progress(table.name, row_count)
        # under its own name only when whole
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return ExportedTable(table.name, row_count, path.stat().st_size)


def _field(column: Column[Any]) -> pa.Field:
    return pa.field(column.name, _arrow_type(column.type))


def _arrow_type(kind: sql.TypeEngine[Any]) -> pa.DataType:
    if isinstance(kind, sql.ARRAY):
        return pa.list_(_arrow_type(kind.item_type))
    return next(arrow for sql_type, arrow in _ARROW_TYPES if isinstance(kind, sql_type))


def _array(column: Column[Any], field: pa.Field, values: Iterable[Any]) -> pa.Array:
    return pa.array([_value(column, value) for value in values], field.type)


def _value(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, sql.JSON):
        return json.dumps(value)
    if not isinstance(column.type, sql.Uuid):
        return value
    return str(value)
