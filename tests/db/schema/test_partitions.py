"""Results lie in the partition of their month, which is there before they are."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.db.schema.partitions import PARTITIONED, list_partitions
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


@pytest.mark.parametrize("started_at", [datetime.now(UTC) + timedelta(days=100), datetime(1999, 6, 1, tzinfo=UTC)])
def test_a_run_of_a_day_that_no_clock_should_show_is_refused_and_makes_no_partition(
    store: Engine, started_at: datetime
) -> None:
    with store.connect() as connection:
        before = list_partitions(connection)

    with pytest.raises(IngestError, match="Correct the clock of the runner"):
        ingest_record(store, record_of(started_at))

    with store.connect() as connection:
        assert list_partitions(connection) == before


def test_a_reader_in_the_way_delays_nothing(store: Engine) -> None:
    with store.connect() as reader:
        reader.execute(text("SELECT count(*) FROM measurement"))  # and stays in its transaction

        assert ingest_record(store, record_of(JULY)).was_new

    assert places(store) == ["partitions.measurement_2024_07"]


def test_many_that_need_the_same_partition_make_it_once(store: Engine) -> None:
    months = [datetime(2023, month, 15, tzinfo=UTC) for month in (1, 1, 2, 2, 1, 2)]

    with ThreadPoolExecutor(len(months)) as pool:
        results = list(pool.map(lambda month: ingest_record(store, record_of(month)), months))

    assert all(result.was_new for result in results)
    assert places(store) == ["partitions.measurement_2023_01"] * 3 + ["partitions.measurement_2023_02"] * 3


def test_a_project_takes_its_results_along_from_every_partition(store: Engine) -> None:
    for year in (2022, 2023, 2024):
        ingest_record(store, record_of(datetime(year, 6, 1, tzinfo=UTC)))

    delete_project(store, PROJECT)

    assert [table for table in PARTITIONED if places(store, table)] == []
