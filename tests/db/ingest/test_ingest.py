"""Ingest: records are stored completely, and once; the tables refuse invalid rows."""

import math
import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, create_engine, func, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from roofwatch.db.engine.migrate import read_status
from roofwatch.db.errors import ConflictError, IngestError, StoreError
from roofwatch.db.ingest.ingest import IngestResult, ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.db.queries.project import list_projects
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.schema.runs import CommitRow, RunRow
from roofwatch.db.schema.table import Base
from roofwatch.model.machine import DeviceState, Outcome
from roofwatch.model.measurement import Autotuning, Block, Measurement
from roofwatch.model.metrics import STORED
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CodeEstimate
from tests.builders import (
    NOON,
    PROJECT,
    make_accuracy,
    make_case,
    make_commit,
    make_complete_record,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_static_facts,
    sha_of,
)
from tests.databases import ingest_all, stored_record

FINGERPRINT_BEFORE_ESTIMATES = "3cc837e7068f301b3a796042ae41f88974001071f23de44bf541bb051a094667"
"""Of `make_static_facts()` in stores of revision 0017."""
CASE_IDS = [f"softmax/n_rows={n_rows},n_cols=8/float32/fwd" for n_rows in range(1, 21)]


def row_counts(store: Engine) -> dict[str, int]:
    with store.connect() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
            if table.name != "schema_compatibility"
        }


def ingest_concurrently(store: Engine, records: list[RunRecord]) -> list[IngestResult]:
    """Ingest each record in its own thread, all at the same time."""
    barrier = threading.Barrier(len(records))
    engine = create_engine(store.url, pool_size=len(records))

    def ingest(record: RunRecord) -> IngestResult:
        barrier.wait(timeout=60)
        return ingest_record(engine, record)

    with ThreadPoolExecutor(len(records)) as pool:
        results = list(pool.map(ingest, records))
    engine.dispose()
    return results


def test_run_from_the_future_is_refused(store: Engine) -> None:
    with store.connect() as connection:
        now = connection.execute(select(func.now())).scalar_one().astimezone(UTC)
    within, beyond = (
        now + timedelta(days=1) + apart for apart in (-timedelta(minutes=1), timedelta(minutes=10))
    )
    before = row_counts(store)

    for started_at in (beyond, datetime(2999, 1, 1, tzinfo=UTC)):
        message = (
            rf"started at {started_at:%Y-%m-%dT%H:%M:%S}\+00:00, but the database's clock "
            rf"says \d{{4}}-"
        )
        with pytest.raises(IngestError, match=message):
            ingest_record(store, make_record(started_at=started_at))
    assert row_counts(store) == before

    assert ingest_record(store, make_record(started_at=within)).was_new


def test_concurrent_ingests_store_a_record_once(store: Engine) -> None:
    record = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])

    results = ingest_concurrently(store, [record] * 8)

    assert [result.was_new for result in results].count(True) == 1
    counts = row_counts(store)
    assert (counts["run"], counts["project"]) == (1, 1)


def test_a_later_ingest_of_a_record_changes_nothing(store: Engine) -> None:
    record = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    ingest_concurrently(store, [record] * 8)
    before = row_counts(store)

    assert not ingest_record(store, record).was_new
    assert row_counts(store) == before


def test_facts_without_an_estimate_share_the_row_of_older_stores(store: Engine) -> None:
    """Rows that were stored before there were estimates have this fingerprint."""
    estimate = CodeEstimate(
        predicted_ns=1.0, limit="issue", element_count=1, instructions_per_element=1.0
    )
    plain, estimated = make_static_facts(), make_static_facts(estimate=estimate)
    for number, facts in enumerate((plain, plain, estimated, estimated)):
        ingest_record(store, make_record(number, static_facts=[facts]))
    with store.connect() as connection:
        rows = connection.execute(
            text("SELECT fingerprint, estimate IS NULL FROM static_fact ORDER BY id")
        ).all()
    assert [is_missing for _, is_missing in rows] == [True, False]
    assert rows[0][0] == FINGERPRINT_BEFORE_ESTIMATES


def test_concurrent_ingests_of_shared_rows_do_not_deadlock(store: Engine) -> None:
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

    results = ingest_concurrently(store, records)

    assert all(result.was_new for result in results)
    counts = row_counts(store)
    assert {
        name: counts[name]
        for name in ("project", "commit", "environment", "case", "run", "measurement")
    } == {
        "project": 1,
        "commit": 2,
        "environment": 2,
        "case": len(CASE_IDS),
        "run": 12,
        "measurement": 12 * len(CASE_IDS),
    }


def test_run_is_replaced_on_request_in_its_own_project(store: Engine) -> None:
    first = make_record(accuracies=[make_accuracy()], static_facts=[make_static_facts()])
    second = make_record(run_id=first.run_id, measurements=[make_measurement(median_ns=2_000)])
    ingest_record(store, first)

    replaced = ingest_record(store, second, replaces=True)
    again = ingest_record(store, second, replaces=True)

    assert (replaced.was_new, replaced.was_replaced) == (False, True)
    assert (again.was_new, again.was_replaced) == (False, False)
    with pytest.raises(ConflictError, match="stored in another project"):
        ingest_record(store, make_record(run_id=first.run_id, project="another"), replaces=True)
    assert stored_record(store, first.run_id) == second
    assert row_counts(store)["accuracy"] == row_counts(store)["compilation"] == 0


def test_case_id_with_another_meaning_is_refused(store: Engine) -> None:
    ingest_record(store, make_record(0))
    before = row_counts(store)

    with pytest.raises(
        IngestError, match=r"has dtype 'float16', but earlier runs of the project gave it 'float32'"
    ):
        ingest_record(store, make_record(1, cases=[make_case(dtype="float16")]))

    assert row_counts(store) == before


def test_cases_keep_their_order_if_some_were_stored_before(store: Engine) -> None:
    known = [make_measurement(case_id) for case_id in CASE_IDS[1:3]]
    ingest_record(
        store, make_record(0, measurements=known, static_facts=[make_static_facts(CASE_IDS[1])])
    )
    mixed = make_record(
        1,
        measurements=[make_measurement(case_id) for case_id in CASE_IDS[::-1]],
        static_facts=[make_static_facts(case_id) for case_id in CASE_IDS[::-1]],
        accuracies=[make_accuracy(case_id) for case_id in CASE_IDS],
    )

    ingest_record(store, mixed)

    assert stored_record(store, mixed.run_id) == mixed


def long_name(seed: int) -> str:
    """As long as a record allows, and incompressible."""
    return "".join(
        chr(point) for point in random.Random(seed).choices(range(0x20000, 0x2A000), k=500)
    )


UNSTORABLE: dict[str, tuple[Callable[[], RunRecord], str]] = {
    "NUL": (
        lambda: make_record(
            measurements=[make_measurement(outcome=Outcome.CRASHED, message="a\0b")]
        ),
        "contains a NUL",
    ),
    "names too long for an index": (
        lambda: make_record(
            measurements=[make_measurement(implementation=long_name(1))],
            environment=make_environment(device_name=long_name(2)),
        ),
        "the database refuses a value: index row size",
    ),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_unstorable_record_is_refused_as_a_whole(store: Engine, name: str) -> None:
    make, reason = UNSTORABLE[name]
    record = make()

    with pytest.raises(IngestError, match=f"run {record.run_id} of {PROJECT}: .*{reason}"):
        ingest_record(store, record)

    assert set(row_counts(store).values()) == {0}


@pytest.fixture
def interrupted(store: Engine) -> RunRecord:
    """A record whose ingest lost its connection; the next one would not."""
    with store.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION disconnect() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER disconnect BEFORE INSERT ON measurement FOR EACH ROW EXECUTE "
                "FUNCTION disconnect()"
            )
        )
    record = make_record()
    with pytest.raises(
        StoreError, match=f"run {record.run_id} .*the database failed: .*ingest it again"
    ):
        ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(text("DROP TRIGGER disconnect ON measurement"))
    return record


def test_lost_connection_leaves_no_rows(store: Engine, interrupted: RunRecord) -> None:
    assert set(row_counts(store).values()) == {0}


def test_ingest_can_be_repeated_after_a_lost_connection(
    store: Engine, interrupted: RunRecord
) -> None:
    assert ingest_record(store, interrupted).was_new


def test_deleted_run_takes_its_results(store: Engine) -> None:
    record = make_complete_record()
    ingest_record(store, record)

    with Session(store) as session, session.begin():
        session.delete(session.get_one(RunRow, record.run_id))

    left = {name for name, count in row_counts(store).items() if count}
    assert left == {
        "project",
        "commit",
        "environment",
        "case",
        "case_change",  # their analysis
        "case_version",
        "series",
        "static_fact",
    }


def test_deleted_project_leaves_others_unchanged(store: Engine) -> None:
    ingest_all(store, *map(make_complete_record, range(2)))
    replace_regressions(store, PROJECT, [make_regression(1)])
    ingest_record(store, make_record(project="other"))

    delete_project(store, PROJECT)
    delete_project(store, "never there")

    with Session(store) as session:
        assert list_projects(session) == ["other"]
        assert list_triaged(session, PROJECT) == []
        assert len(list_runs(session, "other")) == 1
    counts = read_status(store).row_counts
    assert (counts["run"], counts["measurement"], counts["accuracy"], counts["static_fact"]) == (
        1,
        1,
        0,
        0,
    )


def test_commit_keeps_the_most_that_any_record_knows(store: Engine) -> None:
    merge = (sha_of(4), sha_of(4, branch="feature"))
    for count, parents in ((1, ()), (40, ()), (7, merge), (1, merge[:1])):
        ingest_record(
            store, make_record(commit=make_commit(5, first_parent_count=count, parents=parents))
        )

    with Session(store) as session:
        (commit,) = session.scalars(select(CommitRow)).all()
        assert (commit.first_parent_count, commit.parents) == (40, list(merge))


def test_ingest_of_a_known_commit_does_not_wait_for_its_lock(store: Engine) -> None:
    ingest_record(store, make_record(5))
    with store.begin() as connection:
        connection.execute(select(CommitRow).with_for_update(key_share=True)).one()
        impatient = create_engine(store.url.update_query_dict({"options": "-clock_timeout=5s"}))
        assert ingest_record(impatient, make_record(5)).was_new
        impatient.dispose()


def test_samples_read_back_to_the_last_bit_in_their_blocks(store: Engine) -> None:
    blocks = ((5e-324, 0.1 + 0.2, 1 / 3), (1e300,), (math.nextafter(1000.0, 0), 1000.0))
    measurement = make_measurement(
        blocks=[Block(started_at=NOON, samples_ns=block) for block in blocks],
        autotuning=[Autotuning(function="body", chosen={"b": 1, "a": 1e20})],
    )
    record = make_record(measurements=[measurement])
    ingest_record(store, record)

    (stored,) = stored_record(store, record.run_id).measurements

    assert tuple(block.samples_ns for block in stored.blocks) == blocks
    assert stored == measurement
    assert list(stored.autotuning[0].chosen) == ["b", "a"]


def test_what_a_block_recorded_can_be_read_by_sql(store: Engine) -> None:
    block = Block(
        started_at=NOON,
        samples_ns=(3.0, 1.0, 2.0),
        device_state=DeviceState(sm_clock_mhz=1_500, reading_count=1),
    )
    ingest_record(store, make_record(measurements=[make_measurement(blocks=[block])]))

    with store.connect() as connection:
        row = connection.execute(
            text(
                "SELECT (SELECT max(sample) FROM unnest(samples_ns) sample), "
                "(facts #>> '{blocks,0,device_state,sm_clock_mhz}')::float FROM sample_set"
            )
        ).one()
    assert tuple(row) == (3.0, 1_500.0)


def test_every_stored_metric_is_computed_into_its_column(store: Engine) -> None:
    ingest_record(store, make_complete_record())
    keys = [metric.key for metric in STORED]

    with store.connect() as connection:
        columns = ", ".join(f"count({key})" for key in keys)
        counts = connection.execute(text(f"SELECT {columns} FROM measurement")).one()
        noted = connection.scalars(text("SELECT DISTINCT unnest(metrics) FROM series")).all()
    assert all(
        isinstance(getattr(Measurement, key, None), property) or key in Measurement.model_fields
        for key in keys
    )
    assert set(noted) == {key for key, count in zip(keys, counts, strict=True) if count}
    assert noted


INVALID = {
    "a time of a failure": (
        "UPDATE measurement SET outcome = 'crashed'",
        "ck_measurement_time_only_if_ok",
    ),
    "a negative time": ("UPDATE measurement SET q1_ns = -1", "ck_measurement_times_in_order"),
    "an unknown outcome": ("UPDATE accuracy SET outcome = 'fine'", "ck_accuracy_outcome"),
    "an unknown verdict": ("UPDATE regression SET verdict = 'slower'", "ck_regression_verdict"),
    "a duplicate project": (
        "INSERT INTO project (name) SELECT name FROM project",
        "uq_project_name",
    ),
    "a run without a commit": ("UPDATE run SET commit_id = -1", "fk_run_commit_id"),
}


@pytest.mark.parametrize("what", INVALID)
def test_constraints_refuse_invalid_rows(store: Engine, what: str) -> None:
    statement, constraint = INVALID[what]
    ingest_all(store, *map(make_complete_record, range(2)))
    replace_regressions(store, PROJECT, [make_regression(1)])

    with store.begin() as connection, pytest.raises(IntegrityError, match=f'"{constraint}"'):
        connection.execute(text(statement))
