"""Backup and restore: complete, or the database is unchanged. Export to Parquet: all rows, no
secrets.
"""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import URL, Engine, create_engine, func, select, text

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import restore_backup, write_backup
from roofwatch.db.maintenance.parquet import SECRET, export_parquet
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.schema import Base
from tests.builders import make_record
from tests.databases import stored_record
from tests.db.queries.test_records import full_record


def kept_databases(store: Engine) -> list[str]:
    query = text("SELECT datname FROM pg_database WHERE datname LIKE :pattern")
    with store.connect() as connection:
        return list(connection.scalars(query, {"pattern": f"{store.url.database}\\_%"}))


def restore(store: Engine, path: Path, *, replaces: bool = True) -> None:
    assert restore_backup(store, path, replaces=replaces, actor="a test").is_whole


def test_restore_returns_to_the_state_of_the_backup(store: Engine, tmp_path: Path) -> None:
    record, later = full_record(), make_record(5)
    ingest_record(store, record)
    write_backup(store, tmp_path / "roofwatch.dump")
    assert (tmp_path / "roofwatch.dump").stat().st_mode & 0o777 == 0o600, (
        "it holds hashes of tokens"
    )
    ingest_record(store, later)

    restore(store, tmp_path / "roofwatch.dump")

    assert kept_databases(store) == []
    verification = verify_store(store)
    assert (verification.run_count, verification.proven_count) == (1, 1)
    assert stored_record(store, record.run_id) == record
    assert ingest_record(store, later).was_new


def test_database_with_data_is_replaced_only_on_request(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, make_record())
    write_backup(store, path)

    with pytest.raises(
        StoreError, match=r"is not empty \(table \w+\); back it up, then use --replace"
    ):
        restore(store, path, replaces=False)

    with store.begin() as connection:
        connection.execute(text("TRUNCATE project, environment, audit_entry CASCADE"))
    restore(store, path, replaces=False)
    assert verify_store(store).run_count == 1


def test_backup_with_damaged_runs_is_not_restored(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, make_record())
    with store.begin() as connection:
        connection.execute(text("UPDATE run SET harness_version = 'another'"))
    write_backup(store, path)
    with store.begin() as connection:
        connection.execute(text("UPDATE run SET harness_version = '1'"))

    verification = restore_backup(store, path, replaces=True, actor="a test")

    assert "reads back with other content" in verification.problems[0]
    assert kept_databases(store) == []
    assert verify_store(store).is_whole


def test_truncated_backup_is_not_restored(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, full_record())
    write_backup(store, path)
    whole = path.read_bytes()

    for length in (len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=rf"{path}: .*pg_restore: .*another"):
            restore(store, path)

    assert kept_databases(store) == []
    assert verify_store(store).proven_count == 1


def test_backup_of_another_program_is_refused(
    store: Engine, empty_database_url: URL, tmp_path: Path
) -> None:
    other = create_engine(empty_database_url)
    with other.begin() as connection:
        connection.execute(text("CREATE TABLE something (name text)"))
    write_backup(other, tmp_path / "other.dump")
    other.dispose()

    with pytest.raises(StoreError, match="not a backup of a roofwatch database"):
        restore(store, tmp_path / "other.dump")


def test_all_rows_are_exported_with_samples_as_lists(store: Engine, tmp_path: Path) -> None:
    record, folder = full_record(), tmp_path / "out"
    ingest_record(store, record)
    exported = export_parquet(store, folder)
    with store.connect() as connection:
        for table in exported:
            stored = connection.scalar(
                select(func.count()).select_from(Base.metadata.tables[table.name])
            )
            assert (
                pq.read_metadata(folder / f"{table.name}.parquet").num_rows
                == stored
                == table.row_count
            )
    assert {table.name for table in exported} == Base.metadata.tables.keys() - SECRET
    assert not [file for file in folder.iterdir() if file.suffix != ".parquet"]
    samples = pq.read_table(folder / "sample_set.parquet")["samples_ns"].to_pylist()
    assert sorted(samples) == sorted(
        list(one.samples_ns) for one in record.measurements if one.blocks
    )


def test_existing_export_is_not_overwritten(store: Engine, tmp_path: Path) -> None:
    export_parquet(store, tmp_path)
    with pytest.raises(StoreError, match="exists already; choose an empty folder"):
        export_parquet(store, tmp_path)
