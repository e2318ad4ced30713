"""A backup is whole or not there, and restoring one leaves either it or what was before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import restore_backup
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.records import load_record
from roofwatch.store.admin import back_up
from tests.builders import make_record
from tests.db.queries.test_records import full_record


@pytest.fixture
def left_over(store: Engine) -> Iterator[None]:
    """Drops the databases that a restoring leaves beside the test's."""
    yield
    admin = create_engine(store.url.set(database="template1"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        query = text("SELECT datname FROM pg_database WHERE datname LIKE :beside")
        for name in connection.scalars(query, {"beside": f"{store.url.database}\\_%"}).all():
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


def beside(store: Engine) -> list[str]:
    with store.connect() as connection:
        query = text("SELECT datname FROM pg_database WHERE datname LIKE :beside")
        return list(connection.scalars(query, {"beside": f"{store.url.database}\\_%"}))


def restore(store: Engine, path: Path, *, replaces: bool = True, keeps_old: bool = False) -> str | None:
    restored = restore_backup(store, path, replaces=replaces, keeps_old=keeps_old, actor="a test")
    assert restored.verification.is_whole
    return restored.kept_as


def test_what_was_backed_up_is_there_again_and_what_came_later_is_not(store: Engine, tmp_path: Path) -> None:
    record, later = full_record(), make_record(5)
    ingest_record(store, record)
    back_up(store, tmp_path / "roofwatch.dump")
    ingest_record(store, later)

    kept_as = restore(store, tmp_path / "roofwatch.dump")

    assert kept_as is None
    assert beside(store) == []
    verification = verify_store(store)
    assert (verification.run_count, verification.proven_count) == (1, 1)
    with Session(store) as session:
        assert load_record(session, record.run_id) == record
    assert ingest_record(store, later).was_new


def test_an_empty_database_needs_no_word_and_one_that_is_not_does(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, make_record())
    back_up(store, path)

    with pytest.raises(StoreError, match=r"is not empty \(table \w+\); back it up, then use --replace"):
        restore(store, path, replaces=False)

    with store.begin() as connection:
        connection.execute(text("TRUNCATE project, environment, audit_entry CASCADE"))
    restore(store, path, replaces=False)
    assert verify_store(store).run_count == 1


@pytest.mark.usefixtures("left_over")
def test_the_database_of_before_is_kept_where_that_is_wished(store: Engine, tmp_path: Path) -> None:
    back_up(store, tmp_path / "roofwatch.dump")
    ingest_record(store, make_record())

    kept_as = restore(store, tmp_path / "roofwatch.dump", keeps_old=True)

    assert beside(store) == [kept_as]
    before = create_engine(store.url.set(database=kept_as))
    assert verify_store(before).run_count == 1
    before.dispose()
    assert verify_store(store).run_count == 0


def test_a_backup_that_is_not_whole_in_itself_leaves_the_database_as_it_is(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, make_record())
    with store.begin() as connection:
        connection.execute(text("UPDATE run SET harness_version = 'another'"))
    back_up(store, path)
    with store.begin() as connection:
        connection.execute(text("UPDATE run SET harness_version = '1'"))

    restored = restore_backup(store, path, replaces=True, keeps_old=False, actor="a test")

    assert "reads back with other content" in restored.verification.problems[0]
    assert beside(store) == []
    assert verify_store(store).is_whole


def test_a_backup_that_was_cut_leaves_the_database_as_it_is(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    ingest_record(store, full_record())
    back_up(store, path)
    whole = path.read_bytes()

    for length in (len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match="pg_restore: "):
            restore(store, path)

    assert beside(store) == []
    assert verify_store(store).proven_count == 1


def test_what_is_no_backup_is_refused(store: Engine, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        restore(store, tmp_path / "nothing.dump")
    (tmp_path / "text.dump").write_text("not a backup")
    with pytest.raises(StoreError, match=r"pg_restore: input file (does not appear to be|is too short)"):
        restore(store, tmp_path / "text.dump")


def test_a_backup_of_another_program_s_database_is_refused(
    store: Engine, empty_database_url: URL, tmp_path: Path
) -> None:
    other = create_engine(empty_database_url)
    with other.begin() as connection:
        connection.execute(text("CREATE TABLE something (name text)"))
    back_up(other, tmp_path / "other.dump")
    other.dispose()

    with pytest.raises(StoreError, match="not a backup of a roofwatch database"):
        restore(store, tmp_path / "other.dump")


def test_only_its_owner_may_read_a_backup(store: Engine, tmp_path: Path) -> None:
    back_up(store, tmp_path / "roofwatch.dump")

    assert (tmp_path / "roofwatch.dump").stat().st_mode & 0o777 == 0o600
