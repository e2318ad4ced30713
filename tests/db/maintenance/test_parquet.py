"""Export to Parquet: all rows, no secrets."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, func, select

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.parquet import SECRET, export_parquet
from roofwatch.db.schema import Base
from tests.db.queries.test_records import full_record


def test_all_rows_are_exported(store: Engine, tmp_path: Path) -> None:
    ingest_record(store, full_record())
    exported = export_parquet(store, tmp_path / "out")
    with store.connect() as connection:
        for table in exported:
            stored = connection.scalar(select(func.count()).select_from(Base.metadata.tables[table.name]))
            assert pq.read_metadata(tmp_path / "out" / f"{table.name}.parquet").num_rows == stored == table.row_count
    assert {table.name for table in exported} == Base.metadata.tables.keys() - SECRET
    assert not [file for file in (tmp_path / "out").iterdir() if file.suffix != ".parquet"]


def test_samples_are_exported_as_lists(store: Engine, tmp_path: Path) -> None:
    record = full_record()
    ingest_record(store, record)
    export_parquet(store, tmp_path)
    samples = pq.read_table(tmp_path / "sample_set.parquet")["samples_ns"].to_pylist()
    measured = [
        [sample for block in one.blocks for sample in block.samples_ns] for one in record.measurements if one.blocks
    ]
    assert sorted(samples) == sorted(measured)


def test_existing_export_is_not_overwritten(store: Engine, tmp_path: Path) -> None:
    export_parquet(store, tmp_path)
    with pytest.raises(StoreError, match="exists already; choose an empty folder"):
        export_parquet(store, tmp_path)
