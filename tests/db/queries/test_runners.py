"""What stands measured on each runner class."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import DeviceState, Outcome
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.results import CaseCoverage, RunnerCoverage
from roofwatch.db.queries.runners import list_runner_coverage
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_blocks,
    make_case,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
)


def standings(store: Engine) -> list[RunnerCoverage]:
    with Session(store) as session:
        return list_runner_coverage(session, PROJECT)


def test_a_runner_stands_by_its_newest_whole_run_and_all_its_results_tell_its_rhythm(store: Engine) -> None:
    older, newer = make_record(0), make_record(1)
    dirty = make_record(2, commit=make_record(2).commit.model_copy(update={"is_dirty": True}))
    for record in (older, newer, dirty, *make_pair_of_records(3, 3)):
        ingest_record(store, record)
    (found,) = standings(store)
    assert found.run_id == str(newer.run_id)
    hours = (3, 3, 2, 1, 0)
    assert found.result_times == tuple(NOON + timedelta(hours=hour + 1) for hour in hours)


def test_implementations_of_a_case_are_taken_together_and_what_gave_no_result_is_there(store: Engine) -> None:
    held_back = DeviceState(reading_count=1, degraded_by=("sw_thermal_slowdown",))
    blocks = tuple(block.model_copy(update={"device_state": held_back}) for block in make_blocks([10_000.0]))
    planned = "softmax/n=8/float32/fwd"
    record = make_record(
        measurements=[
            make_measurement(blocks=blocks),
            make_measurement(implementation="compile", outcome=Outcome.CRASHED),
        ],
        cases=(make_case(), make_case(planned)),
    )
    ingest_record(store, record)
    (found,) = standings(store)
    assert sorted(found.cases, key=lambda case: case.case_id) == [
        CaseCoverage(CASE_ID, frozenset({Outcome.OK, Outcome.CRASHED}), measurement_count=2, degraded_count=1),
        CaseCoverage(planned, frozenset(), measurement_count=0, degraded_count=0),
    ]


def test_each_runner_class_has_only_the_cases_of_its_own_run(store: Engine) -> None:
    other = make_measurement("softmax/n=8/float32/fwd")
    ingest_record(store, make_record(0, environment=make_environment(device_name="A CPU")))
    ingest_record(store, make_record(0, environment=make_environment(device_name="B CPU"), measurements=[other]))
    for record in make_pair_of_records(environment=make_environment(device_name="C CPU")):
        ingest_record(store, record)

    found = standings(store)

    assert [[case.case_id for case in one.cases] for one in found] == [[CASE_ID], [other.case_id], []]
    assert found[-1].run_id is None, "without a whole run"
