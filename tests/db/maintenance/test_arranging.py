"""Months that have ended lie as trends are read, and nobody misses a row meanwhile."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from bench.made_up_store import Shape, fill
from roofwatch.db.engine.locks import judging_alone
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.arranging import arrange
from roofwatch.db.maintenance.soundness import find_unsound
from roofwatch.db.queries.records import load_record
from tests.builders import make_record

SHAPE = Shape("made up", run_count=40, series_count=100, day_count=30)
IN_JANUARY = datetime(2024, 1, 15, tzinfo=UTC)
LATER = datetime(2024, 3, 1, tzinfo=UTC)
PARTITION = "partitions.measurement_2024_01"
A_MINUTE_S = 60


def scatter(store: Engine) -> None:
    """Store forty runs of a month as they come in, one after the other."""
    fill(store, SHAPE, 0)
    with store.begin() as connection:
        connection.execute(text(f"CREATE TEMP TABLE came_in ON COMMIT DROP AS SELECT * FROM {PARTITION}"))
        connection.execute(text(f"TRUNCATE {PARTITION}"))
        connection.execute(text(f"INSERT INTO {PARTITION} SELECT * FROM came_in ORDER BY run_number, series_id"))


@pytest.fixture
def scattered(store: Engine) -> Engine:
    scatter(store)
    return store


def rows(connection: Connection) -> set[Any]:
    return set(connection.scalars(text("SELECT measurement::text FROM measurement")))


def rows_of(store: Engine) -> set[Any]:
    with store.connect() as connection:
        return rows(connection)


def tables(store: Engine) -> list[str]:
    """Everything of that month in the schema of partitions, whether attached or not."""
    query = "SELECT relname FROM pg_class WHERE relname LIKE 'measurement_2024_01%' ORDER BY relname"
    with store.connect() as connection:
        return list(connection.scalars(text(query)))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + A_MINUTE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_month_that_has_ended_is_read_from_fewer_pages_and_says_the_same(scattered: Engine) -> None:
    before, names = rows_of(scattered), tables(scattered)

    (month,) = arrange(scattered, now=LATER)

    assert month.pages_before > 5 * month.pages_after
    assert month.row_count == SHAPE.measurement_count
    assert rows_of(scattered) == before
    assert tables(scattered) == names, "also the names of indexes"
    with scattered.connect() as connection:
        assert list(find_unsound(connection)) == []


def test_the_measurements_of_a_run_that_is_deleted_later_go_along(scattered: Engine) -> None:
    arrange(scattered, now=LATER)

    with scattered.begin() as connection:
        connection.execute(text("DELETE FROM run"))

    assert rows_of(scattered) == set()


def test_a_month_that_goes_on_is_left_as_it_is(scattered: Engine) -> None:
    assert arrange(scattered, now=datetime(2024, 1, 31, 23, 59, tzinfo=UTC)) == []


def test_a_month_in_order_is_left_as_it_is(scattered: Engine) -> None:
    arrange(scattered, now=LATER)

    assert arrange(scattered, now=LATER) == []


def test_what_the_benches_make_up_lies_as_an_arranged_month(store: Engine) -> None:
    fill(store, SHAPE, 0)

    assert arrange(store, now=LATER) == []


def test_a_dry_run_tells_the_month_and_changes_nothing(scattered: Engine) -> None:
    (foretold,) = arrange(scattered, now=LATER, is_dry_run=True)
    (done,) = arrange(scattered, now=LATER)

    assert foretold.pages_before == done.pages_before
    assert foretold.pages_after <= done.pages_after


def test_a_question_from_before_sees_the_month_whole_and_what_comes_and_goes_meanwhile_is_brought_along(
    scattered: Engine,
) -> None:
    gone, record = "DELETE FROM run WHERE number = (SELECT min(number) FROM run)", make_record(started_at=IN_JANUARY)
    before = rows_of(scattered)
    with ThreadPoolExecutor(1) as beside:
        with scattered.connect().execution_options(isolation_level="REPEATABLE READ") as asking:
            asking.execute(text("SELECT count(*) FROM run"))
            arranging = beside.submit(arrange, scattered, now=LATER)
            wait_until(lambda: "measurement_2024_01_new" in tables(scattered))

            ingest_record(scattered, record)
            with scattered.begin() as connection:
                connection.execute(text(gone))
            seen = rows(asking)
            was_done = arranging.done()
        arranging.result(timeout=A_MINUTE_S)

    assert not was_done
    assert seen == before
    assert len(rows_of(scattered)) == SHAPE.measurement_count - SHAPE.series_count + len(record.measurements)
    with Session(scattered) as session:
        assert load_record(session, record.run_id) == record
    with scattered.connect() as connection:
        assert list(find_unsound(connection)) == []


def test_a_transaction_that_does_not_end_is_named_and_the_month_stays_as_it_was(scattered: Engine) -> None:
    names = tables(scattered)

    with scattered.connect() as forgotten:
        forgotten.execute(text("SELECT 1"))
        with pytest.raises(StoreError, match=r"measurement_2024_01: a transaction has been open for 0 s, such as"):
            arrange(scattered, now=LATER, patience_s=0.01)

    assert tables(scattered) == names
    assert len(arrange(scattered, now=LATER)) == 1


def test_who_only_keeps_other_judgements_waiting_is_not_waited_for(scattered: Engine) -> None:
    with judging_alone(scattered, SHAPE.project(0)):
        assert len(arrange(scattered, now=LATER, patience_s=0.01)) == 1


def test_two_do_not_arrange_at_once(scattered: Engine) -> None:
    with ThreadPoolExecutor(1) as beside, scattered.connect() as asking:
        asking.execute(text("SELECT 1"))
        first = beside.submit(arrange, scattered, now=LATER)
        wait_until(lambda: "measurement_2024_01_new" in tables(scattered))

        with pytest.raises(StoreError, match="another process arranges months now"):
            arrange(scattered, now=LATER)

        asking.rollback()
        assert len(first.result(timeout=A_MINUTE_S)) == 1
