"""Migrations: equal to the models, atomic, safe to run concurrently."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, text

from roofwatch.db.engine import migrate
from roofwatch.db.errors import StoreError
from roofwatch.db.schema import Base


@pytest.fixture
def blank(empty_database_url: URL) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def definitions(engine: Engine) -> dict[str, set[tuple[str, ...]]]:
    """Constraints, indexes and columns as Postgres prints them."""
    queries = {
        "constraints": (
            "SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace"
        ),
        "indexes": "SELECT tablename::text, indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "columns": (
            "SELECT table_name::text, column_name::text, data_type::text, udt_name::text, is_nullable::text, "
            "coalesce(column_default, ''), is_identity::text FROM information_schema.columns "
            "WHERE table_schema = 'public'"
        ),
    }
    with engine.connect() as connection:
        return {
            kind: {tuple(row) for row in connection.execute(text(query)) if "alembic_version" not in row[0]}
            for kind, query in queries.items()
        }


def test_migrated_schema_equals_the_models(store: Engine, blank: Engine) -> None:
    Base.metadata.create_all(blank)

    migrated, modelled = definitions(store), definitions(blank)
    assert migrated == modelled
    checks = {name for _, name, *_ in migrated["constraints"] if name.startswith("ck_")}
    assert len(checks) > 30


def test_concurrent_upgrades_are_safe(store: Engine, blank: Engine) -> None:
    count = 6
    engine = create_engine(blank.url, pool_size=count)
    barrier = threading.Barrier(count)

    def upgrade(_: int) -> None:
        barrier.wait(timeout=60)
        migrate.upgrade(engine)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(upgrade, range(count)))
    engine.dispose()

    migrate.ensure_current(blank)
    assert definitions(blank) == definitions(store)


def test_failed_upgrade_is_rolled_back(blank: Engine) -> None:
    with blank.begin() as connection:
        connection.execute(text("CREATE TABLE tensor_error (already text)"))

    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(blank)

    assert inspect(blank).get_table_names() == ["tensor_error"]


def test_schema_of_another_version_is_refused(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    for refuse in (migrate.ensure_current, migrate.upgrade):
        with pytest.raises(StoreError, match="revision 9999 is of another version of roofwatch; use that version"):
            refuse(store)
