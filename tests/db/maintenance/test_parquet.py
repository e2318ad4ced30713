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


def test_all_rows_are_exported_with_samples_as_lists(store: Engine, tmp_path: Path) -> None:
    record, folder = full_record(), tmp_path / "out"
    ingest_record(store, record)
    exported = export_parquet(store, folder)
    with store.connect() as connection:
        for table in exported:
            stored = connection.scalar(select(func.count()).select_from(Base.metadata.tables[table.name]))
            assert pq.read_metadata(folder / f"{table.name}.parquet").num_rows == stored == table.row_count
    assert {table.name for table in exported} == Base.metadata.tables.keys() - SECRET
    assert not [file for file in folder.iterdir() if file.suffix != ".parquet"]
    samples = pq.read_table(folder / "sample_set.parquet")["samples_ns"].to_pylist()
    assert sorted(samples) == sorted(list(one.samples_ns) for one in record.measurements if one.blocks)


def test_existing_export_is_not_overwritten(store: Engine, tmp_path: Path) -> None:
    export_parquet(store, tmp_path)
    with pytest.raises(StoreError, match="exists already; choose an empty folder"):
        export_parquet(store, tmp_path)
