"""Verification of the store."""

import re
from datetime import timedelta, timezone

from sqlalchemy import Engine, text

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.db.schema import Base
from tests.builders import (
    make_accuracy,
    make_commit,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.databases import ingest_all
from tests.db.queries.test_records import full_record

TOKYO = timezone(timedelta(hours=9))


def damage(store: Engine, *statements: str) -> None:
    """Change rows without triggers and foreign keys."""
    with store.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))


def test_intact_store_is_verified(store: Engine) -> None:
    ingest_all(
        store,
        full_record(),
        make_record(1, accuracies=[make_accuracy()], static_facts=[make_static_facts()]),
    )
    ingest_record(store, full_record(), is_quarantined=True)
    calls: list[tuple[int, int]] = []

    verification = verify_store(store, on_progress=lambda done, total: calls.append((done, total)))

    assert verification == Verification(3, 3, 0, 0, problems=())
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_runs_with_different_metadata_of_one_commit_are_verified(store: Engine) -> None:
    """A shallow clone and another time zone; the commit is stored once."""
    here = make_commit(5)
    there = make_commit(
        5,
        first_parent_count=1,
        parents=(),
        committed_at=here.committed_at.astimezone(TOKYO),
        author="Somebody Else",
    )
    for commit in (there, here, there):
        ingest_record(store, make_record(5, commit=commit))

    assert verify_store(store).proven_count == 3


def test_damaged_runs_are_reported(store: Engine) -> None:
    damages = {
        "UPDATE run SET harness_version = '2' WHERE number = "
        ":number": "reads back with other content",
        "UPDATE static_fact SET registers = 1 WHERE id IN (SELECT static_fact_id FROM compilation "
        "WHERE run_number = :number)": "reads back with other content",
        "UPDATE sample_set SET samples_ns = '{-1}', block_lengths = '{1}' WHERE run_number = "
        ":number": "does not read back as a record",
        "DELETE FROM sample_set WHERE run_number = :number": "its samples are no longer kept",
        "UPDATE run SET environment_id = 0 WHERE number = "
        ":number": "does not read back as a record",
        "UPDATE run SET case_version_ids = '{0}' WHERE number = "
        ":number": "does not read back as a record",
    }
    records = [
        make_record(
            place,
            static_facts=[make_static_facts(registers=10 + place)],
            measurements=[make_measurement()],
        )
        for place in range(len(damages) + 1)
    ]
    ingest_all(store, *records)
    with store.connect() as connection:
        numbers = {
            row.run_id: row.number
            for row in connection.execute(text("SELECT run_id, number FROM run"))
        }

    for record, statement in zip(records, damages, strict=False):
        damage(store, statement.replace(":number", str(numbers[record.run_id])))

    reported = {
        problem.split(": ")[0]: problem
        for problem in verify_store(store).problems
        if problem.startswith("run ")
    }
    assert len(reported) == len(damages)
    for record, complaint in zip(records, damages.values(), strict=False):
        assert complaint in reported[f"run {record.run_id}"]


def test_invalid_indexes_are_reported(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(
            text(
                "UPDATE pg_index SET indisvalid = false WHERE indexrelid = "
                "'ix_measurement_series_id'::regclass"
            )
        )

    (problem,) = verify_store(store).problems

    assert (
        problem == "index ix_measurement_series_id: invalid; run in psql: REINDEX INDEX "
        "ix_measurement_series_id"
    )


def test_orphaned_rows_are_reported(store: Engine) -> None:
    ingest_record(store, full_record())

    damage(store, "DELETE FROM run")

    problems = verify_store(store).problems
    for table in Base.metadata.tables.values():
        if "run_number" in table.columns:
            orphans = re.compile(
                rf"table {table.name}: \d row.s. whose run_number point at no row of run"
            )
            assert any(map(orphans.fullmatch, problems)), table.name
