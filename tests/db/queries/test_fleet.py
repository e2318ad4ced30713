from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.fleet import (
    list_case_costs,
    list_fleet_runs,
    list_kernel_costs,
    read_run_energies,
)
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.runners import list_runner_coverage
from roofwatch.model.machine import DeviceState, Outcome
from roofwatch.model.stored_results import CaseCoverage, RunnerCoverage
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
from tests.dashboard.gpu_history import GEMM, HOT_AT, SOFTMAX, gpu_record, store_gpu_history
from tests.databases import ingest_all


def test_a_run_of_the_fleet_says_what_its_record_says_of_the_machine(
    store: Engine,
) -> None:
    record, unwatched = gpu_record(1), make_record(0)
    ingest_all(store, record, unwatched)

    with Session(store) as session:
        run, _ = list_fleet_runs(session, PROJECT, limit=10)
        energies = read_run_energies(session, (record.run_id, unwatched.run_id))

    assert run.run_id == str(record.run_id)
    assert run.environment == record.environment
    assert run.ceilings == record.ceilings
    assert run.spent_ns == record.spent_ns
    assert run.wall_ns == run.device_ns == 30e9
    assert not run.is_pair_side
    # what its counter moved by: 400 W for 599 steps of 50 ms
    assert energies == {run.run_id: pytest.approx(400 * 599 * 0.05)}


def test_an_older_run_is_among_them_on_request(store: Engine) -> None:
    records = [make_record(number) for number in range(4)]
    ingest_all(store, *records)

    def found(**asked: Any) -> list[str]:
        with Session(store) as session:
            return [run.run_id for run in list_fleet_runs(session, PROJECT, limit=1, **asked)]

    newest, oldest = str(records[3].run_id), str(records[0].run_id)
    assert found(or_run=oldest) == found(or_commit=records[0].commit.sha) == [newest, oldest]
    assert found(or_run="no id at all") == found(or_commit="no sha") == [newest]


def test_a_kernel_costs_the_same_alone_as_beside_other_runs(store: Engine) -> None:
    records = [gpu_record(number) for number in (HOT_AT - 1, HOT_AT)]
    ingest_all(store, *records)
    ids = tuple(record.run_id for record in records)

    with Session(store) as session:
        together = list_kernel_costs(session, ids)
        alone = [cost for one in ids for cost in list_kernel_costs(session, (one,))]
        of_cases = list_case_costs(session, ids, limit=20)

    costs = {cost.kernel: cost for cost in alone if cost.run_id == str(records[1].run_id)}
    launches = 8 * 3 * 10
    assert costs["gemm"].timed_ns == pytest.approx(210_000.0 * launches)
    assert costs["gemm"].energy_j == pytest.approx(210_000.0 * 4e-7 * launches)
    assert (
        costs["gemm"].family,
        costs["gemm"].measurement_count,
        costs["gemm"].degraded_count,
    ) == ("matmul", 2, 0)
    assert (costs["softmax"].measurement_count, costs["softmax"].degraded_count) == (4, 1)
    assert (of_cases[0].case_id, of_cases[0].implementation, of_cases[0].run_count) == (
        GEMM,
        "torch",
        2,
    )
    assert of_cases[0].timed_ns == pytest.approx(2 * 210_000.0 * launches)
    assert of_cases == sorted(of_cases, key=lambda cost: -cost.timed_ns)
    assert {(cost.run_id, cost.kernel): cost.measurement_count for cost in together} == {
        (cost.run_id, cost.kernel): cost.measurement_count for cost in alone
    }
    assert sorted(cost.timed_ns for cost in together) == pytest.approx(
        sorted(cost.timed_ns for cost in alone)
    )
    assert {cost.degraded_count for cost in together} == {0, 1}
    assert sum(cost.timed_ns for cost in of_cases) == pytest.approx(
        sum(cost.timed_ns for cost in together)
    )
    failed_count = len(records)
    assert (
        sum(cost.run_count for cost in of_cases)
        == sum(cost.measurement_count for cost in together) - failed_count
    )


def test_calibrations_alone_can_be_asked_for(store: Engine) -> None:
    store_gpu_history(store)
    ingest_all(store, *make_pair_of_records(0, 1))

    with Session(store) as session:
        every = list_pairs(session, PROJECT)
        calibrations = list_pairs(session, PROJECT, of_one_commit=True)

    assert (len(every), [pair.case_id for pair in calibrations]) == (2, [SOFTMAX])
    assert calibrations[0].base == calibrations[0].head


def standings(store: Engine) -> list[RunnerCoverage]:
    with Session(store) as session:
        return list_runner_coverage(session, PROJECT)


def ingest_five_results(store: Engine) -> str:
    """Two whole runs, a dirty one and a pair; return the ID of the newer whole run."""
    older, newer = make_record(0), make_record(1)
    dirty = make_record(2, commit=make_record(2).commit.model_copy(update={"is_dirty": True}))
    ingest_all(store, older, newer, dirty, *make_pair_of_records(3, 3))
    return str(newer.run_id)


def test_a_runner_stands_by_its_newest_whole_run(store: Engine) -> None:
    run_id = ingest_five_results(store)

    (standing,) = standings(store)

    assert standing.run_id == run_id


def test_all_results_of_a_runner_tell_its_rhythm(store: Engine) -> None:
    ingest_five_results(store)

    (standing,) = standings(store)

    hours = (3, 3, 2, 1, 0)
    assert standing.result_times == tuple(NOON + timedelta(hours=hour + 1) for hour in hours)


PLANNED = "softmax/n=8/float32/fwd"


def coverage_with_a_planned_case(store: Engine) -> dict[str, CaseCoverage]:
    """Coverage by case: two implementations of one case, and a case without any result."""
    held_back = DeviceState(reading_count=1, degraded_by=("sw_thermal_slowdown",))
    blocks = tuple(
        block.model_copy(update={"device_state": held_back}) for block in make_blocks([10_000.0])
    )
    record = make_record(
        measurements=[
            make_measurement(blocks=blocks),
            make_measurement(implementation="compile", outcome=Outcome.CRASHED),
        ],
        cases=(make_case(), make_case(PLANNED)),
    )
    ingest_record(store, record)
    (standing,) = standings(store)
    assert len(standing.cases) == 2
    return {case.case_id: case for case in standing.cases}


def test_implementations_of_a_case_are_taken_together(store: Engine) -> None:
    assert coverage_with_a_planned_case(store)[CASE_ID] == CaseCoverage(
        CASE_ID, frozenset({Outcome.OK, Outcome.CRASHED}), measurement_count=2, degraded_count=1
    )


def test_a_case_without_any_result_is_covered_by_nothing(store: Engine) -> None:
    assert coverage_with_a_planned_case(store)[PLANNED] == CaseCoverage(
        PLANNED, frozenset(), measurement_count=0, degraded_count=0
    )


def test_each_runner_class_has_only_the_cases_of_its_own_run(store: Engine) -> None:
    other = make_measurement("softmax/n=8/float32/fwd")
    ingest_record(store, make_record(0, environment=make_environment(device_name="A CPU")))
    ingest_record(
        store,
        make_record(0, environment=make_environment(device_name="B CPU"), measurements=[other]),
    )
    ingest_all(store, *make_pair_of_records(environment=make_environment(device_name="C CPU")))

    found = standings(store)

    assert [[case.case_id for case in one.cases] for one in found] == [
        [CASE_ID],
        [other.case_id],
        [],
    ]
    assert found[-1].run_id is None, "without a whole run"
