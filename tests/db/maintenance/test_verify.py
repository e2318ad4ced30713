"""What is whole is called so, and whatever is not is named."""

import re
from datetime import timedelta, timezone

from sqlalchemy import Engine, text

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.db.quarantine import release_run
from roofwatch.db.schema.partitions import PARTITIONED
from tests.builders import (
    make_accuracy,
    make_ceiling,
    make_commit,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.db.queries.test_records import full_record

TOKYO = timezone(timedelta(hours=9))


def damage(store: Engine, *statements: str) -> None:
    """Behind the back of the tables' own rules, as a bad disk or a bad hand would."""
    with store.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))


def only_problem(store: Engine) -> str:
    verification = verify_store(store)
    assert not verification.is_whole
    assert len(verification.problems) == 1, verification.problems
    return verification.problems[0]


def test_every_run_of_a_whole_store_is_proven(store: Engine) -> None:
    for record in (full_record(), make_record(1, accuracies=[make_accuracy()], static_facts=[make_static_facts()])):
        ingest_record(store, record)
    ingest_record(store, full_record(), is_quarantined=True)
    told: list[tuple[int, int]] = []

    verification = verify_store(store, on_progress=lambda done, total: told.append((done, total)))

    assert verification == Verification(3, 3, 0, 0, problems=())
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_runs_that_disagree_about_their_commit_are_all_proven(store: Engine) -> None:
    """One from a shallow clone, one whose committer lives elsewhere: the commit is stored once."""
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


def test_runs_that_were_changed_are_each_named(store: Engine) -> None:
    damages = {
        "UPDATE run SET harness_version = '2' WHERE number = :number": "reads back with other content",
        "UPDATE static_fact SET registers = 1 WHERE id IN (SELECT static_fact_id FROM compilation "
        "WHERE run_number = :number)": "reads back with other content",
        "UPDATE sample_set SET content = 'x' WHERE run_number = :number": "does not read back as a record",
        "DELETE FROM sample_set WHERE run_number = :number": "its samples are no longer kept",
        "UPDATE run SET environment_id = 0 WHERE number = :number": "does not read back as a record",
        "UPDATE run SET case_version_ids = '{0}' WHERE number = :number": "does not read back as a record",
    }
    records = [
        make_record(place, static_facts=[make_static_facts(registers=10 + place)], measurements=[make_measurement()])
        for place in range(len(damages) + 1)
    ]
    for record in records:
        ingest_record(store, record)
    with store.connect() as connection:
        numbers = {row.run_id: row.number for row in connection.execute(text("SELECT run_id, number FROM run"))}

    for record, statement in zip(records, damages, strict=False):
        damage(store, statement.replace(":number", str(numbers[record.run_id])))

    told = {problem.split(": ")[0]: problem for problem in verify_store(store).problems if problem.startswith("run ")}
    assert len(told) == len(damages), "the last one was left alone"
    for record, complaint in zip(records, damages.values(), strict=False):
        assert complaint in told[f"run {record.run_id}"]


def test_rows_without_their_run_are_orphans(store: Engine) -> None:
    ingest_record(store, full_record(ceilings=[make_ceiling()]))

    damage(store, "DELETE FROM run")

    problems = verify_store(store).problems
    for table in PARTITIONED:
        assert any(
            re.fullmatch(rf"table {table}: \d row.s. whose run_number, measured_on point at no row of run", problem)
            for problem in problems
        ), table
    assert "table ceiling: 1 row(s) whose run_id point at no row of run" in problems


def test_a_run_that_was_let_out_of_quarantine_is_proven(store: Engine) -> None:
    ingest_record(store, make_record(5))
    record = make_record(5, commit=make_commit(5, first_parent_count=1, author="Somebody Else"))
    ingest_record(store, record, is_quarantined=True)

    release_run(store, record.run_id, actor="a test", person="p", reason="r")

    assert verify_store(store).proven_count == 2


def test_an_index_that_is_not_fit_for_use_is_named(store: Engine) -> None:
    damage(store, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_run_started_at'::regclass")

    assert only_problem(store) == "index ix_run_started_at is invalid; run in psql: REINDEX INDEX ix_run_started_at"
