"""Copy the tables into Parquet files, one per table, for people who want the data elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Column, Engine, Table, select
from sqlalchemy import types as sql
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.samples import unpack
from roofwatch.db.schema.every import Base
from roofwatch.db.schema.table import Coded

SECRET = frozenset({"token"})
"""Tables that stay out."""
_BATCH_ROWS = 10_000
_ARROW: tuple[tuple[type[sql.TypeEngine[Any]], pa.DataType], ...] = (
    (Coded, pa.string()),
    (sql.Uuid, pa.string()),
    (sql.JSON, pa.string()),
    (sql.BigInteger, pa.int64()),
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
    """Of the file."""


def export_parquet(
    engine: Engine, folder: Path, *, on_progress: Callable[[str, int], None] = lambda _table, _rows: None
) -> list[ExportedTable]:
    """Write `<table>.parquet` for every table, all as of one moment.

    Samples are lists of nanoseconds, one row per measurement. Documents are JSON text.

    Args:
        engine: Of a store with a current schema.
        folder: Made if it is not there.
        on_progress: Called with the table and the rows written so far.

    Raises:
        StoreError: a file is there already, or cannot be written; nothing half-written is left.
    """
    tables = [table for table in Base.metadata.sorted_tables if table.name not in SECRET]
    existing = [table.name for table in tables if (folder / f"{table.name}.parquet").exists()]
    if existing:
        raise StoreError(f"{folder / existing[0]}.parquet: is there already; choose an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Session(engine.execution_options(isolation_level="REPEATABLE READ")) as session:
            return [_export(session, table, folder, on_progress) for table in tables]
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror}") from None


def _export(session: Session, table: Table, folder: Path, on_progress: Callable[[str, int], None]) -> ExportedTable:
    path = folder / f"{table.name}.parquet"
    temporary = folder / f".{table.name}.parquet.tmp"
    row_count = 0
    try:
        with pq.ParquetWriter(temporary, _schema(table), compression="zstd") as writer:
            for batch in _batches(session, table):
                writer.write_batch(batch)
                row_count += batch.num_rows
                on_progress(table.name, row_count)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return ExportedTable(table.name, row_count, path.stat().st_size)


def _schema(table: Table) -> pa.Schema:
    return pa.schema([_field(column) for column in table.columns])


def _field(column: Column[Any]) -> pa.Field:
    if _is_samples(column):
        return pa.field("samples_ns", pa.list_(pa.float64()))
    return pa.field(column.name, _arrow_type(column.type))


def _is_samples(column: Column[Any]) -> bool:
    return (column.table.name, column.name) == ("sample_set", "content")


def _arrow_type(kind: sql.TypeEngine[Any]) -> pa.DataType:
    if isinstance(kind, sql.ARRAY):
        return pa.list_(_arrow_type(kind.item_type))
    return next(arrow for sql_type, arrow in _ARROW if isinstance(kind, sql_type))


def _batches(session: Session, table: Table) -> Iterator[pa.RecordBatch]:
    schema = _schema(table)
    rows = session.execute(select(table).execution_options(yield_per=_BATCH_ROWS))
    for part in rows.partitions():
        columns = [
            [_value(column, value) for value in values]
            for column, values in zip(table.columns, zip(*part, strict=True), strict=True)
        ]
        yield pa.record_batch(
            [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
        )


def _value(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if _is_samples(column):
        return unpack(value).samples_ns
    if isinstance(column.type, sql.JSON):
        return json.dumps(value)
    if isinstance(column.type, sql.Uuid):
        return str(value)
    return value
