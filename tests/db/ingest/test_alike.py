"""A run that is alike to one before it takes its ids from there, and is stored as if each had been looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, text, update
from sqlalchemy.orm import Session

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.ingest.alike import facts_sha256, identity_sha256
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from roofwatch.db.schema.runs import RunRow
from tests.builders import make_case, make_environment, make_measurement, make_record, make_static_facts

CASE_IDS = [f"softmax/n_rows={n_rows},n_cols=8/float32/fwd" for n_rows in range(1, 6)]


def record_of(number: int, **fields: Any) -> RunRecord:
    said: dict[str, Any] = {"cases": [make_case(case_id) for case_id in CASE_IDS], **of_all()}
    return make_record(number, **said | fields)


def of_all(**fields: Any) -> dict[str, Any]:
    return {"measurements": [make_measurement(case_id, **fields) for case_id in CASE_IDS]}


OTHERWISE: dict[str, dict[str, Any]] = {
    "fewer cases": {"cases": [make_case(CASE_IDS[0])], "measurements": [make_measurement(CASE_IDS[0])]},
    "cases in another order": {"cases": [make_case(case_id) for case_id in CASE_IDS[::-1]]},
    "cases that cost otherwise": {"cases": [make_case(case_id, flop_count=1.0) for case_id in CASE_IDS]},
    "cases with words": {"cases": [make_case(case_id, tags=("quick",)) for case_id in CASE_IDS]},
    "fewer measurements": {"measurements": [make_measurement(case_id) for case_id in CASE_IDS[:3]]},
    "measurements in another order": {"measurements": [make_measurement(case_id) for case_id in CASE_IDS[::-1]]},
    "no measurement": {"measurements": ()},
    "another implementation": of_all(implementation="other"),
    "another timer": of_all(timer=Timer.CUDA_EVENT),
    "another cache": of_all(cache=CacheState.COLD),
    "another runner class": {"environment": make_environment(device_name="Another CPU")},
}


@contextmanager
def statements(store: Engine) -> Iterator[list[str]]:
    """What the database is asked inside the block, but for rows that are sent."""
    asked: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(store, "before_cursor_execute", listen)
    yield asked
    event.remove(store, "before_cursor_execute", listen)


def lists(store: Engine, record: RunRecord) -> tuple[list[int], list[int]]:
    query = text("SELECT case_version_ids, series_ids FROM run WHERE run_id = :run_id")
    with store.connect() as connection:
        versions, series = connection.execute(query, {"run_id": record.run_id}).one()
    return versions, series


def facts_of(store: Engine, record: RunRecord) -> list[int]:
    query = text("SELECT static_fact_id FROM compilation JOIN run ON number = run_number WHERE run_id = :run_id")
    with store.connect() as connection:
        return list(connection.scalars(text(f"{query} ORDER BY position"), {"run_id": record.run_id}))


def looked_up(asked: list[str]) -> set[str]:
    """Tables of what runs share that were asked by themselves."""
    tables = re.findall(r'(?:FROM|JOIN) ("case"|series|static_fact)', " ".join(asked))
    return set(tables)


def test_an_alike_run_looks_up_neither_cases_nor_series(store: Engine) -> None:
    first, second = record_of(0), record_of(1)

    with statements(store) as asked_first:
        ingest_record(store, first)
    with statements(store) as asked_second:
        ingest_record(store, second)

    assert looked_up(asked_first) == {'"case"', "series"}
    assert looked_up(asked_second) == set()
    assert lists(store, first) == lists(store, second)
    with Session(store) as session:
        assert load_record(session, second.run_id) == second


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_run_that_differs_in_what_it_shares_is_not_alike_and_reads_back_equal(store: Engine, what: str) -> None:
    first, other, again = record_of(0), record_of(1, **OTHERWISE[what]), record_of(2)
    assert identity_sha256(first) != identity_sha256(other)

    for record in (first, other, again):
        ingest_record(store, record)

    assert lists(store, first) == lists(store, again) != lists(store, other)
    with Session(store) as session:
        for record in (first, other, again):
            assert load_record(session, record.run_id) == record


def test_times_and_outcomes_leave_runs_alike(store: Engine) -> None:
    failed = of_all(outcome=Outcome.CRASHED)

    assert identity_sha256(record_of(0)) == identity_sha256(record_of(1, **failed))
    assert identity_sha256(record_of(0)) == identity_sha256(record_of(1, **of_all(median_ns=7.0), project="other"))


def test_alike_runs_of_two_projects_have_cases_of_their_own(store: Engine) -> None:
    first, other = record_of(0), record_of(0, project="other")

    for record in (first, other):
        ingest_record(store, record)

    assert not set(lists(store, first)[1]) & set(lists(store, other)[1])
    with Session(store) as session:
        assert load_record(session, other.run_id) == other


def test_what_hangs_on_cases_is_of_the_same_cases_in_an_alike_run(store: Engine) -> None:
    facts = [make_static_facts(case_id) for case_id in CASE_IDS[::-1]]
    records = [record_of(number, static_facts=facts) for number in range(2)]

    for record in records:
        ingest_record(store, record)

    with Session(store) as session:
        assert [load_record(session, record.run_id) for record in records] == records


def test_machine_code_that_a_run_had_is_not_looked_up_again(store: Engine) -> None:
    facts = [make_static_facts(case_id, compile_ns={"ptx": 1}) for case_id in CASE_IDS]
    slower = [make_static_facts(case_id, compile_ns={"ptx": 2}) for case_id in CASE_IDS]
    records = [record_of(0, static_facts=facts), record_of(1, static_facts=slower)]

    with statements(store) as asked_first:
        ingest_record(store, records[0])
    with statements(store) as asked_second:
        ingest_record(store, records[1])

    assert "static_fact" in looked_up(asked_first)
    assert looked_up(asked_second) == set()
    assert facts_of(store, records[0]) == facts_of(store, records[1])
    with Session(store) as session:
        assert [load_record(session, record.run_id) for record in records] == records


CODE = {case_id: make_static_facts(case_id) for case_id in CASE_IDS}
OTHER_CODE: dict[str, list[StaticFacts]] = {
    "none": [],
    "less": list(CODE.values())[:2],
    "in another order": list(CODE.values())[::-1],
    "of another case": [*list(CODE.values())[:-1], make_static_facts(CASE_IDS[0], function="other")],
    "of more registers": [make_static_facts(case_id, registers=77) for case_id in CASE_IDS],
    "configured otherwise": [make_static_facts(case_id, configuration={"num_warps": 16}) for case_id in CASE_IDS],
}


@pytest.mark.parametrize("what", OTHER_CODE)
def test_machine_code_that_differs_is_looked_up_and_reads_back_equal(store: Engine, what: str) -> None:
    first = record_of(0, static_facts=list(CODE.values()))
    other, again = record_of(1, static_facts=OTHER_CODE[what]), record_of(2, static_facts=list(CODE.values()))
    assert facts_sha256(first) != facts_sha256(other)

    for record in (first, other, again):
        ingest_record(store, record)

    assert facts_of(store, first) == facts_of(store, again) != facts_of(store, other)
    with Session(store) as session:
        for record in (first, other, again):
            assert load_record(session, record.run_id) == record


def test_runs_of_two_projects_have_machine_code_of_their_own_cases(store: Engine) -> None:
    records = [record_of(0, static_facts=list(CODE.values()), project=project) for project in ("one", "two")]
    records.append(record_of(2, static_facts=list(CODE.values()), project="one", measurements=()))

    for record in records:
        ingest_record(store, record)

    assert not set(facts_of(store, records[0])) & set(facts_of(store, records[1]))
    assert facts_of(store, records[0]) == facts_of(store, records[2])


def test_an_alike_run_notes_the_values_that_those_before_it_had_not(store: Engine) -> None:
    ingest_record(store, record_of(0, **of_all(utilisation=None)))
    ingest_record(store, record_of(1, **of_all(utilisation=None)))
    some = [make_measurement(name, utilisation=0.5 if name == CASE_IDS[1] else None) for name in CASE_IDS]

    ingest_record(store, record_of(2, measurements=some))

    with store.connect() as connection:
        flags = connection.scalars(text("SELECT has_utilisation FROM series ORDER BY id")).all()
    assert sorted(flags) == [False] * 4 + [True]


def test_runs_that_an_older_roofwatch_stored_are_alike_to_none(store: Engine) -> None:
    ingest_record(store, record_of(0))
    with store.begin() as connection:
        connection.execute(update(RunRow).values(identity_sha256=None, flags_sha256=None))

    asked_of = []
    for number in (1, 2):
        with statements(store) as asked:
            ingest_record(store, record_of(number))
        asked_of.append(looked_up(asked))

    assert asked_of == [{'"case"', "series"}, set()]
    with store.connect() as connection:
        assert len(set(map(str, connection.scalars(text("SELECT series_ids FROM run"))))) == 1


def test_that_no_run_is_alike_is_known_at_once_where_all_are_alike_to_each_other(store: Engine) -> None:
    ingest_record(store, record_of(0))
    own = {"run_id", "number", "measured_on"}
    listed = ", ".join(column.name for column in RunRow.__table__.columns if column.name not in own)
    with store.begin() as connection:
        copies = f"SELECT gen_random_uuid(), {listed} FROM run, generate_series(1, 5000)"
        connection.execute(text(f"INSERT INTO run (run_id, {listed}) {copies}"))
        connection.execute(text("ANALYZE"))

    with statements(store) as asked:
        ingest_record(store, record_of(1, **OTHERWISE["fewer cases"]))

    (find,) = {one for one in asked if "identity_sha256" in one}
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", find)))
    numbered = find % {name: f"${place}" for place, name in enumerate(names, start=1)}
    with store.connect() as connection:
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN (GENERIC_PLAN) {numbered}").scalars())
    assert "ix_run_project_id_identity_sha256_number" in plan
    assert not {"uq_run_number", "Seq Scan on run"} & set(re.findall(r"uq_run_number|Seq Scan on run\b", plan))
