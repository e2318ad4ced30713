"""A record is stored whole, once, and by whomever it is sent."""

import json
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters
from roofwatch.db.errors import ConflictError, IngestError, StoreError
from roofwatch.db.ingest.ingest import OnConflict, ingest_record
from roofwatch.db.queries.records import load_record
from roofwatch.db.schema.runs import RunRow
from roofwatch.db.schema.table import Base
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_accuracy,
    make_case,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.db.ingest.together import at_once

CASE_IDS = [f"softmax/n_rows={n_rows},n_cols=8/float32/fwd" for n_rows in range(1, 21)]


def row_counts(store: Engine) -> dict[str, int]:
    with store.connect() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }


def test_a_run_from_more_than_a_day_ahead_is_refused_with_both_times(store: Engine) -> None:
    with store.connect() as connection:
        now = connection.execute(select(func.now())).scalar_one().astimezone(UTC)
    within, beyond = (now + timedelta(days=1) + apart for apart in (-timedelta(minutes=1), timedelta(minutes=10)))
    before = row_counts(store)

    for started_at in (beyond, datetime(2999, 1, 1, tzinfo=UTC)):
        message = rf"started at {started_at:%Y-%m-%dT%H:%M:%S}\+00:00, but the database's clock says \d{{4}}-"
        with pytest.raises(IngestError, match=message):
            ingest_record(store, make_record(started_at=started_at))
    assert row_counts(store) == before

    assert ingest_record(store, make_record(started_at=within)).was_new


def test_ingesting_a_record_twice_changes_nothing(store: Engine) -> None:
    record = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    ingest_record(store, record)
    before = row_counts(store)

    again = ingest_record(store, record)

    assert not again.was_new
    assert row_counts(store) == before


def test_many_at_once_store_one_record_once(store: Engine) -> None:
    record = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])

    results = at_once(store, [record] * 8)

    assert [result.was_new for result in results].count(True) == 1
    assert row_counts(store)["run"] == 1
    assert row_counts(store)["project"] == 1


def test_runs_that_share_everything_else_are_stored_at_once_without_deadlock(store: Engine) -> None:
    forwards = [make_measurement(case_id) for case_id in CASE_IDS]
    backwards = forwards[::-1]
    records = [
        make_record(
            number % 2,
            measurements=forwards if number % 3 else backwards,
            environment=make_environment(thread_count=1 + number % 2),
            run_id=uuid.UUID(int=number),
        )
        for number in range(12)
    ]

    results = at_once(store, records)

    assert all(result.was_new for result in results)
    counts = row_counts(store)
    assert {name: counts[name] for name in ("project", "commit", "environment", "case", "run", "measurement")} == {
        "project": 1,
        "commit": 2,
        "environment": 2,
        "case": len(CASE_IDS),
        "run": 12,
        "measurement": 12 * len(CASE_IDS),
    }


def test_one_id_with_other_content_replaces_the_first_where_that_is_wanted(store: Engine) -> None:
    first = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    second = make_record(run_id=first.run_id, measurements=[make_measurement(median_ns=2_000)])
    ingest_record(store, first)

    replaced = ingest_record(store, second, on_conflict=OnConflict.REPLACE)
    again = ingest_record(store, second, on_conflict=OnConflict.REPLACE)

    assert (replaced.was_new, replaced.was_replaced) == (False, True)
    assert (again.was_new, again.was_replaced) == (False, False)
    with Session(store) as session:
        assert load_record(session, first.run_id) == second
    assert row_counts(store)["accuracy"] == row_counts(store)["compilation"] == 0


def test_a_run_of_another_project_is_not_replaced(store: Engine) -> None:
    first = make_record()
    ingest_record(store, first)

    with pytest.raises(ConflictError, match="stored in another project"):
        ingest_record(store, make_record(run_id=first.run_id, project="another"), on_conflict=OnConflict.REPLACE)

    with Session(store) as session:
        assert load_record(session, first.run_id) == first


def test_one_run_sent_with_many_contents_at_once_is_stored_as_one_of_them(store: Engine) -> None:
    run_id = uuid.uuid4()
    forwards = [make_measurement(case_id) for case_id in CASE_IDS]
    records = [
        make_record(
            measurements=forwards if number % 2 else forwards[::-1],
            run_id=run_id,
            harness_version=str(number),
            accuracies=[make_accuracy(case_id) for case_id in CASE_IDS],
            static_facts=[make_static_facts(case_id, code=str(number)) for case_id in CASE_IDS],
        )
        for number in range(8)
    ]

    results = at_once(store, records, OnConflict.REPLACE)

    assert [result.was_new for result in results].count(True) == 1
    assert [result.was_replaced for result in results].count(True) == len(records) - 1
    counts = row_counts(store)
    assert (counts["run"], counts["measurement"], counts["sample_set"]) == (1, len(CASE_IDS), len(CASE_IDS))
    with Session(store) as session:
        assert load_record(session, run_id) in records


def test_new_values_of_known_series_beside_new_rows_that_others_store_too_end_in_no_deadlock(store: Engine) -> None:
    ingest_record(
        store, make_record(measurements=[make_measurement(case_id, utilisation=None) for case_id in CASE_IDS[:10]])
    )
    forwards = [make_measurement(case_id, utilisation=0.5) for case_id in CASE_IDS]
    facts = [make_static_facts(case_id) for case_id in CASE_IDS]
    records = [
        make_record(
            number,
            # who has only known series meets who stores new ones beside the same
            measurements=(forwards if number % 2 else forwards[9::-1]),
            cases=[make_case(case_id) for case_id in CASE_IDS],
            static_facts=facts if number % 4 < 2 else facts[::-1],
        )
        for number in range(12)
    ]

    results = at_once(store, records)

    assert all(result.was_new for result in results)
    with store.connect() as connection:
        assert connection.execute(text("SELECT count(*), bool_and(has_utilisation) FROM series")).one() == (20, True)
        assert connection.scalar(text("SELECT count(*) FROM static_fact")) == len(CASE_IDS)


def test_a_run_that_comes_often_uses_up_no_ids(store: Engine) -> None:
    for number in range(5):
        ingest_record(store, make_record(number))
    ingest_record(store, make_record(5, measurements=[make_measurement("softmax/n=1/float32/fwd")]))

    with store.connect() as connection:
        for table in ('"case"', "case_version", "series"):
            assert connection.scalar(text(f"SELECT max(id) FROM {table}")) == 2, table


def test_a_case_id_that_changes_its_meaning_is_refused(store: Engine) -> None:
    ingest_record(store, make_record(0))
    before = row_counts(store)

    with pytest.raises(IngestError, match=r"has dtype 'float16', but earlier runs of the project gave it 'float32'"):
        ingest_record(store, make_record(1, cases=[make_case(dtype="float16")]))

    assert row_counts(store) == before


def test_a_run_of_known_and_of_new_cases_keeps_its_order(store: Engine) -> None:
    known = [make_measurement(case_id) for case_id in CASE_IDS[1:3]]
    ingest_record(store, make_record(0, measurements=known, static_facts=[make_static_facts(CASE_IDS[1])]))
    mixed = make_record(
        1,
        measurements=[make_measurement(case_id) for case_id in CASE_IDS[::-1]],
        static_facts=[make_static_facts(case_id) for case_id in CASE_IDS[::-1]],
        accuracies=[make_accuracy(case_id) for case_id in CASE_IDS],
    )

    ingest_record(store, mixed)

    with Session(store) as session:
        assert load_record(session, mixed.run_id) == mixed


def failed_with(message: str) -> RunRecord:
    return make_record(measurements=[make_measurement(outcome=Outcome.CRASHED, message=message)])


def long_name(seed: int) -> str:
    """As long as the record allows, and not to be compressed."""
    return "".join(chr(point) for point in random.Random(seed).choices(range(0x20000, 0x2A000), k=500))


UNSTORABLE: dict[str, tuple[Callable[[], RunRecord], str]] = {
    "NUL in a message": (lambda: failed_with("a\0b"), "contains a NUL"),
    "NUL in a key": (
        lambda: make_record(environment=make_environment(compile_knobs={"a\0": "1"})),
        "contains a NUL",
    ),
    "NUL in an unknown field": (
        lambda: RunRecord.model_validate(json.loads(make_record().to_json()) | {"note": ["x", "\0"]}),
        "contains a NUL",
    ),
    "names too long for an index": (
        lambda: make_record(
            measurements=(),
            counters=[Counters(case_id=CASE_ID, implementation=long_name(1), function=long_name(2))],
            cases=[make_case()],
        ),
        "the database refuses a value: index row size",
    ),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_a_database_cannot_store_is_refused_with_nothing_half_written(store: Engine, name: str) -> None:
    make, reason = UNSTORABLE[name]
    record = make()

    with pytest.raises(IngestError, match=f"run {record.run_id} of {PROJECT}: .*{reason}"):
        ingest_record(store, record)

    assert set(row_counts(store).values()) == {0}


def test_a_failure_in_the_last_table_leaves_nothing(store: Engine) -> None:
    record = make_record(static_facts=[make_static_facts()], measurements=[make_measurement()])
    with store.begin() as connection:
        connection.execute(text("ALTER TABLE static_fact ADD CONSTRAINT none_today CHECK (registers = -1)"))

    with pytest.raises(IngestError, match="none_today"):
        ingest_record(store, record)

    assert set(row_counts(store).values()) == {0}


def test_a_connection_that_breaks_leaves_nothing_and_says_that_trying_again_is_safe(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
            )
        )
        connection.execute(
            text("CREATE TRIGGER break_off BEFORE INSERT ON measurement FOR EACH ROW EXECUTE FUNCTION break_off()")
        )
    record = make_record()

    with pytest.raises(StoreError, match=f"run {record.run_id} .*the database failed: .*ingest it again"):
        ingest_record(store, record)

    assert set(row_counts(store).values()) == {0}
    with store.begin() as connection:
        connection.execute(text("DROP TRIGGER break_off ON measurement"))
    assert ingest_record(store, record).was_new


def test_deleting_a_run_takes_everything_that_hangs_on_it(store: Engine) -> None:
    record = make_record(
        measurements=[make_measurement()], accuracies=[make_accuracy()], static_facts=[make_static_facts()]
    )
    ingest_record(store, record)

    with Session(store) as session, session.begin():
        session.delete(session.get_one(RunRow, record.run_id))

    left = {name for name, count in row_counts(store).items() if count}
    assert left == {"project", "commit", "environment", "case", "case_version", "series", "static_fact"}
