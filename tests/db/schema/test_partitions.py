"""Monthly partitions of results."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from sqlalchemy import Engine, text

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.db.schema.measurements import PARTITIONED
from tests.builders import PROJECT, make_accuracy, make_measurement, make_profile, make_record, make_static_facts


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


def test_results_are_in_the_partition_of_their_month(store: Engine) -> None:
    ingest_record(store, record_of(datetime(2024, 7, 31, 23, 59, tzinfo=UTC)))

    for table in set(PARTITIONED) - {"counters"}:
        assert places(store, table) == [f"partitions.{table}_2024_07"]


def test_concurrent_ingests_create_a_partition_once(store: Engine) -> None:
    months = [datetime(2023, month, 15, tzinfo=UTC) for month in (1, 1, 2, 2, 1, 2)]

    with ThreadPoolExecutor(len(months)) as pool:
        results = list(pool.map(lambda month: ingest_record(store, record_of(month)), months))

    assert all(result.was_new for result in results)
    assert places(store) == ["partitions.measurement_2023_01"] * 3 + ["partitions.measurement_2023_02"] * 3


def test_deleted_project_leaves_no_results_in_any_partition(store: Engine) -> None:
    for year in (2022, 2023, 2024):
        ingest_record(store, record_of(datetime(year, 6, 1, tzinfo=UTC)))

    delete_project(store, PROJECT)

    assert [table for table in PARTITIONED if places(store, table)] == []
