"""The schema: what migrations make is what the models say, and it is never half-made."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import URL, Engine, create_engine, inspect, text
from sqlalchemy.orm import Session

from roofwatch.collector.record.measurement import MemoryUse, Timer
from roofwatch.collector.record.part import Outcome
from roofwatch.db.engine import migrate
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.schema.every import Base
from tests.builders import (
    make_accuracy,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    make_static_facts,
    sha_of,
)
from tests.db.queries.test_records import full_record


@pytest.fixture
def blank(empty_database_url: URL) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def definitions(engine: Engine) -> dict[str, set[tuple[str, ...]]]:
    """Constraints, indexes and columns as Postgres itself writes them out."""
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


def test_a_fresh_upgrade_equals_the_models(store: Engine, blank: Engine) -> None:
    Base.metadata.create_all(blank)

    with store.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    migrated, modelled = definitions(store), definitions(blank)
    assert migrated == modelled
    checks = {name for _, name, *_ in migrated["constraints"] if name.startswith("ck_")}
    assert len(checks) > 30


def test_every_constraint_is_named_by_the_convention(store: Engine) -> None:
    names = [name for _, name, definition in definitions(store)["constraints"] if "NOT NULL" not in definition[:8]]

    assert [name for name in names if name.split("_")[0] not in {"pk", "fk", "uq", "ck"}] == []


def test_a_fresh_upgrade_is_at_the_head(blank: Engine) -> None:
    assert migrate.current_revision(blank) is None

    migrate.upgrade(blank)

    assert migrate.current_revision(blank) == migrate.head_revision()
    migrate.ensure_current(blank)


def test_a_second_upgrade_changes_nothing(store: Engine) -> None:
    before = definitions(store)

    migrate.upgrade(store)

    assert definitions(store) == before


def test_many_upgrades_at_once_make_one_schema(store: Engine, blank: Engine) -> None:
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


def test_an_upgrade_that_fails_leaves_nothing(blank: Engine) -> None:
    with blank.begin() as connection:
        connection.execute(text("CREATE TABLE tensor_error (already text)"))  # the last that the upgrade makes

    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(blank)

    assert inspect(blank).get_table_names() == ["tensor_error"]


def test_a_populated_database_can_be_downgraded_to_nothing_and_upgraded_again(store: Engine) -> None:
    ingest_record(store, make_record(0))
    record = make_record(1, accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    ingest_record(store, record)
    replace_regressions(store, record.project, [make_regression(1)])

    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "base")

    assert inspect(store).get_table_names() == ["alembic_version"]
    migrate.upgrade(store)
    assert ingest_record(store, record).was_new


def test_a_record_that_an_older_schema_held_reads_back_equal_after_the_upgrade(store: Engine) -> None:
    record = make_record(1, accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    ingest_record(store, record)

    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0002")
    migrate.upgrade(store)

    with Session(store) as session:
        assert load_record(session, record.run_id) == record


def test_records_with_everything_survive_the_move_to_the_wide_tables_and_back(store: Engine) -> None:
    records = [
        full_record(),
        full_record(started_at=datetime(1, 6, 1, tzinfo=UTC)),
        make_record(5, measurements=[make_measurement(median_ns=1 / 3, launches_per_sample=7)]),
        make_record(5, measurements=[make_measurement(outcome=Outcome.CRASHED, launches_per_sample=7)]),
        make_record(6, measurements=(), ceilings=()),
    ]
    for record in records:
        ingest_record(store, record)
    before = summaries(store)

    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0004")
        wide = connection.execute(text("SELECT count(*), sum(cardinality(samples_ns)) FROM measurement")).one()
    migrate.upgrade(store)

    assert tuple(wide) == (8, 4 + 6 + 4 + 6 + 6)
    assert summaries(store) == before
    with Session(store) as session:
        for record in records:
            assert load_record(session, record.run_id) == record
    # and what comes next finds what runs share where it was moved to
    assert ingest_record(store, full_record()).was_new
    with store.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM case_version")) == 3
        assert connection.scalar(text("SELECT count(*) FROM static_fact")) == 3


def test_memory_of_a_launch_is_known_of_what_is_stored_after_the_upgrade(store: Engine) -> None:
    memory = MemoryUse(peak_allocated_bytes=1_024, peak_reserved_bytes=2_048, allocation_count=1)
    old, new = (make_record(number, measurements=[make_measurement(memory=memory)]) for number in range(2))
    ingest_record(store, old)

    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0011")
    migrate.upgrade(store)
    with store.connect() as connection:
        assert connection.scalars(text("SELECT has_memory FROM series")).all() == [False]
    ingest_record(store, new)

    with store.connect() as connection:
        rows = connection.execute(text("SELECT median_ns, peak_allocated_bytes FROM measurement ORDER BY run_number"))
        assert [tuple(row) for row in rows] == [(10_000, None), (10_000, 1_024)]
        assert connection.scalars(text("SELECT has_memory FROM series")).all() == [True]
    with Session(store) as session:
        assert load_record(session, old.run_id) == old


def test_parents_that_a_later_record_knew_are_the_commit_s_after_the_upgrade(store: Engine) -> None:
    merge = (sha_of(4), sha_of(4, branch="feature"))
    for number, parents in ((5, ()), (5, merge[:1]), (5, merge), (6, ()), (7, (sha_of(6),))):
        ingest_record(store, make_record(number, commit=make_commit(number, parents=parents)))
    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0014")
        # as it was stored then: what came first was kept
        connection.execute(text("UPDATE commit SET parents = '{}' WHERE first_parent_count = 6"))
        connection.execute(text("UPDATE run SET as_sent = NULL WHERE commit_id IN (SELECT max(commit_id) FROM run)"))

    migrate.upgrade(store)

    with store.connect() as connection:
        known = connection.scalars(text("SELECT parents FROM commit ORDER BY first_parent_count")).all()
    assert known == [list(merge), [], [sha_of(6)]]


def summaries(store: Engine) -> list[tuple[object, ...]]:
    """All that is read without samples, in no order that a move could change."""
    query = (
        "SELECT run_id, name, implementation, outcome, median_ns, below_ns, above_ns, sample_count, block_count, "
        "utilisation, joules_per_launch, is_memory_bound, message, outcome_counts::jsonb, measurement.measured_on, "
        "has_utilisation, has_energy FROM measurement JOIN run ON number = run_number "
        "JOIN series ON series.id = series_id JOIN case_version ON case_version.id = case_version_id "
        'JOIN "case" ON "case".id = case_id ORDER BY 1, 2, 3'
    )
    with store.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_run_without_its_samples_does_not_survive_the_move_to_tables_that_need_them(store: Engine) -> None:
    kept, aged = make_record(1), make_record(2)
    for record in (kept, aged):
        ingest_record(store, record)

    with store.begin() as connection:
        connection.execute(
            text("DELETE FROM sample_set WHERE run_number = (SELECT number FROM run WHERE run_id = :run_id)"),
            {"run_id": aged.run_id},
        )
        command.downgrade(migrate.configuration(connection), "0004")
        left = connection.scalars(text("SELECT run_id FROM run")).all()

    assert left == [kept.run_id]


def test_a_downgrade_drops_what_the_older_schema_cannot_hold(store: Engine) -> None:
    ingest_record(store, make_record(1, measurements=[make_measurement(timer=Timer.CUPTI)]))
    ingest_record(store, make_record(2))

    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0002")
        left = connection.execute(text("SELECT DISTINCT timer FROM measurement")).scalars().all()

    assert left == ["perf_counter"]


def test_a_database_without_a_schema_is_refused_with_the_way_out(blank: Engine) -> None:
    with pytest.raises(StoreError, match=r"no roofwatch schema here yet; run: roofwatch db upgrade"):
        migrate.ensure_current(blank)


def test_a_newer_schema_is_refused_by_name(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    for refuse in (migrate.ensure_current, migrate.upgrade):
        with pytest.raises(StoreError, match=r"revision 9999, which this roofwatch does not know"):
            refuse(store)


def test_an_older_schema_is_refused_with_the_way_out(store: Engine) -> None:
    with store.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0001")

    needed = migrate.head_revision()
    with pytest.raises(StoreError, match=rf"is at revision 0001, .* needs {needed}; run: roofwatch db upgrade"):
        migrate.ensure_current(store)

    migrate.upgrade(store)
    migrate.ensure_current(store)
