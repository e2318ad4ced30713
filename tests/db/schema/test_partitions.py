"""Results lie in the partition of their month, which is there before they are."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError
from roofwatch.db.ingest.content import content_hash
from roofwatch.db.ingest.ingest import ingest_record, store_record
from roofwatch.db.projects import delete_project
from roofwatch.db.queries.records import load_record
from roofwatch.db.schema.partitions import PARTITIONED, ensure_partitions, list_partitions
from tests.builders import PROJECT, make_accuracy, make_measurement, make_profile, make_record, make_static_facts

JULY = datetime(2024, 7, 31, 23, 59, tzinfo=UTC)


def record_of(started_at: datetime) -> RunRecord:
    return make_record(
        measurements=[make_measurement()],
        accuracies=[make_accuracy()],
        static_facts=[make_static_facts()],
        profiles=[make_profile()],
        started_at=started_at,
    )


def places(store: Engine, table: str = "measurement") -> list[str]:
    with store.connect() as connection:
        return list(connection.scalars(text(f"SELECT tableoid::regclass::text FROM {table} ORDER BY 1")))


@pytest.mark.parametrize("table", [table for table in PARTITIONED if table != "counters"])
def test_a_run_lies_in_the_month_in_which_it_began(store: Engine, table: str) -> None:
    ingest_record(store, record_of(JULY))

    assert places(store, table) == [f"partitions.{table}_2024_07"]


def test_the_next_month_is_ready_before_it_begins(store: Engine) -> None:
    ingest_record(store, record_of(JULY))

    with store.connect() as connection:
        for table in PARTITIONED:
            months = [month for _, month in list_partitions(connection, table) if month.year == 2024]
            assert months == [date(2024, 7, 1), date(2024, 8, 1)]


def test_a_new_month_takes_one_connection_at_a_time(store: Engine) -> None:
    engine = create_engine(store.url, pool_size=1, max_overflow=0, pool_timeout=1)

    ingest_record(engine, record_of(JULY))

    engine.dispose()
    assert places(store) == ["partitions.measurement_2024_07"]


def test_a_run_that_is_refused_makes_no_partition(store: Engine) -> None:
    with store.connect() as connection:
        before = list(list_partitions(connection, "measurement"))

    with pytest.raises(IngestError, match="one of the two is wrong"):
        ingest_record(store, record_of(datetime.now(UTC) + timedelta(days=100)))

    with store.connect() as connection:
        assert list(list_partitions(connection, "measurement")) == before


@pytest.mark.parametrize("year", [1, 1999, 9998])
def test_a_run_of_a_day_that_no_clock_should_show_is_stored_all_the_same(store: Engine, year: int) -> None:
    record = record_of(datetime(year, 6, 1, tzinfo=UTC))

    if record.started_at < datetime.now(UTC):
        ingest_record(store, record)
    else:
        # as an import does: of a run that is sent, a day that has yet to come is refused
        ensure_partitions(store, record.started_at.date())
        with store.begin() as connection:
            store_record(connection, record, content_hash(record))

    assert places(store) == ["partitions.measurement_default"]
    with Session(store) as session:
        assert load_record(session, record.run_id) == record


@pytest.fixture
def strays(store: Engine) -> RunRecord:
    """A run that was stored while nobody could make its partition."""
    record = record_of(JULY)
    ingest_record(store, record)
    with store.begin() as connection:
        for table in PARTITIONED:
            connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION partitions.{table}_2024_07"))
            connection.execute(text(f"INSERT INTO {table} SELECT * FROM partitions.{table}_2024_07"))
            connection.execute(text(f"DROP TABLE partitions.{table}_2024_07"))
    return record


def test_what_lies_in_the_default_partition_moves_when_its_own_is_made(store: Engine, strays: RunRecord) -> None:
    assert places(store) == ["partitions.measurement_default"]

    ensure_partitions(store, JULY.date())

    assert places(store) == ["partitions.measurement_2024_07"]
    with Session(store) as session:
        assert load_record(session, strays.run_id) == strays


def test_a_reader_in_the_way_delays_nothing_and_the_run_is_stored(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofwatch.db.schema.partitions._PATIENCE", "1ms")
    record = record_of(JULY)
    with store.connect() as reader:
        reader.execute(text("SELECT count(*) FROM measurement"))  # and stays in its transaction

        assert ingest_record(store, record).was_new

    assert places(store) == ["partitions.measurement_default"]
    with Session(store) as session:
        assert load_record(session, record.run_id) == record


def test_many_that_need_the_same_partition_make_it_once(store: Engine) -> None:
    months = [datetime(2023, month, 15, tzinfo=UTC) for month in (1, 1, 2, 2, 1, 2)]

    with ThreadPoolExecutor(len(months)) as pool:
        results = list(pool.map(lambda month: ingest_record(store, record_of(month)), months))

    assert all(result.was_new for result in results)
    assert places(store) == ["partitions.measurement_2023_01"] * 3 + ["partitions.measurement_2023_02"] * 3


def test_a_project_takes_its_results_along_from_every_partition(store: Engine) -> None:
    for year in (1, 2023, 2024):
        ingest_record(store, record_of(datetime(year, 6, 1, tzinfo=UTC)))

    delete_project(store, PROJECT)

    assert [table for table in PARTITIONED if places(store, table)] == []
