"""Values of series as numpy arrays, and evidence for causes over a history."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.columns import list_case_names, read_error_columns, read_time_columns
from roofwatch.db.queries.evidence import (
    list_changed_code,
    list_failed_checks,
    read_counted_runs,
    read_profiled_runs,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement, MemoryUse
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CaseProfile, Counters
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_accuracy,
    make_activity,
    make_measurement,
    make_profile,
    make_record,
    make_series_key,
    make_static_facts,
)
from tests.ci.values import stepped
from tests.databases import ingest_all

BACKWARD = "swiglu/B=2,N=3/float32/bwd"


def test_times_are_ordered_along_the_branch(store: Engine) -> None:
    ingest_all(
        store,
        make_record(1, measurements=[make_measurement(median_ns=20_000)]),
        make_record(
            0, measurements=[make_measurement(median_ns=10_000), make_measurement(BACKWARD)]
        ),
        make_record(
            1,
            measurements=[make_measurement(median_ns=30_000)],
            started_at=NOON + timedelta(days=9),
        ),
        make_record(2, measurements=[make_measurement(outcome=Outcome.CRASHED)]),
    )

    with Session(store) as session:
        rows = list(list_case_names(session, PROJECT))
        columns = {one.key: one for one in read_time_columns(session, PROJECT, rows)}

    one = columns[make_series_key()]
    assert one.medians_ns.tolist() == [10_000, 20_000, 30_000]
    assert one.places.tolist() == [0, 1, 1]
    assert one.relative_spreads == pytest.approx([0.015] * 3)
    assert one.block_counts.tolist() == [2] * 3
    assert [str(day) for day in one.days] == ["2026-03-01", "2026-03-01", "2026-03-10"]
    assert one.has_failures
    assert not columns[make_series_key(case_id=BACKWARD)].has_failures


def test_secondary_metrics_are_ordered_like_times(store: Engine) -> None:
    def with_memory(number: int, peak_bytes: int | None, **fields: Any) -> RunRecord:
        memory = None
        if peak_bytes is not None:
            memory = MemoryUse(
                peak_allocated_bytes=peak_bytes, peak_reserved_bytes=2**20, allocation_count=1
            )
        measured = make_measurement(median_ns=1_000 * (number + 1), memory=memory, **fields)
        return make_record(number, measurements=[measured, make_measurement(BACKWARD)])

    ingest_all(
        store,
        with_memory(2, 3_072),
        with_memory(0, None),
        with_memory(1, 1_024),
        with_memory(3, 4_096, outcome=Outcome.CRASHED),
    )

    asked = ("host_ns", "peak_allocated_bytes")
    with Session(store) as session:
        rows = list(list_case_names(session, PROJECT))
        columns = {
            one.key: one for one in read_time_columns(session, PROJECT, rows, secondary=asked)
        }
        unasked = {one.key: one for one in read_time_columns(session, PROJECT, rows)}

    one = columns[make_series_key()]
    assert one.medians_ns.tolist() == [1_000, 2_000, 3_000]
    assert list(one.secondary) == ["peak_allocated_bytes"]
    assert str(one.secondary["peak_allocated_bytes"].tolist()) == "[nan, 1024.0, 3072.0]"
    assert columns[make_series_key(case_id=BACKWARD)].secondary == {}
    assert unasked[make_series_key()].secondary == {}


SOFTMAX, ROPE, GELU = (f"{kernel}/n=1/float32/fwd" for kernel in ("softmax", "rope", "gelu"))


def checked(
    number: int, code: str, outcome: Outcome = Outcome.OK, error: float = 1e-7
) -> RunRecord:
    return make_record(
        number,
        accuracies=[make_accuracy(SOFTMAX, outcome=outcome), make_accuracy(GELU, rmse_ratio=error)],
        static_facts=[make_static_facts(ROPE, code=code), make_static_facts(GELU)],
    )


def test_errors_of_passed_checks_are_ordered_along_the_branch(store: Engine) -> None:
    ingest_all(
        store,
        checked(1, "a", error=2e-7),
        checked(0, "a"),
        checked(2, "a", Outcome.INCORRECT, error=3e-7),
    )

    with Session(store) as session:
        rows = list(list_case_names(session, PROJECT))
        errors = {one.key.case_id: one for one in read_error_columns(session, PROJECT, rows)}

    assert errors[GELU].rmse_ratios.tolist() == [1e-7, 2e-7, 3e-7]
    assert errors[GELU].places.tolist() == [0, 1, 2]
    assert errors[SOFTMAX].places.tolist() == [0, 1]


def test_a_run_stored_meanwhile_is_left_out(store: Engine) -> None:
    ingest_all(
        store, *(make_record(2 * number, measurements=[timed(number)]) for number in range(3))
    )
    waiting = [make_record(1, measurements=[timed(9)])]

    @event.listens_for(store, "before_cursor_execute")
    def _ingest_before_values_are_read(
        _connection: Any, _cursor: Any, statement: str, *_: Any
    ) -> None:
        if "string_agg" in statement and waiting:
            ingest_record(store, waiting.pop())

    with Session(store) as session:
        (one,) = read_time_columns(session, PROJECT, list(list_case_names(session, PROJECT)))

    assert not waiting
    assert one.medians_ns.tolist() == [1_000, 2_000, 3_000]
    assert one.places.tolist() == [0, 1, 2]


def timed(number: int) -> Measurement:
    return make_measurement(median_ns=1_000 * (number + 1))


MOVED = 8


def counters_of(dram_bytes: float, *, launch: int = 0) -> Counters:
    return Counters(
        case_id=CASE_ID,
        implementation="torch",
        function="kernel",
        launch_index=launch,
        values={"dram_bytes": dram_bytes},
    )


def profile_of(*names: str, left_out_count: int = 0) -> CaseProfile:
    rows = [make_activity(name, grid=(7, 1, 1), estimated_occupancy=0.5) for name in names]
    others = {"left_out_count": left_out_count, "left_out_ns": 5 * left_out_count}
    return make_profile(CASE_ID, *rows, implementation="torch", launch_delay_ns=2.5, **others)


def test_counters_come_whole_in_the_order_of_the_branch(store: Engine) -> None:
    first, later = (counters_of(1.0), counters_of(2.0, launch=1)), (counters_of(3.0),)
    ingest_all(
        store,
        make_record(1, counters=later),
        make_record(0, counters=first),
        make_record(2, started_at=NOON + timedelta(days=1)),
    )

    with Session(store) as session:
        counted = read_counted_runs(session, PROJECT, [(CASE_ID, "torch")])
        assert read_counted_runs(session, PROJECT, [(CASE_ID, "triton")]) == []

    assert [(run.commit.first_parent_count, run.counters) for run in counted] == [
        (1, first),
        (2, later),
    ]


def test_profiles_come_whole_in_the_order_of_the_branch(store: Engine) -> None:
    newer = profile_of("b", "a", left_out_count=3)
    older = profile_of("c").model_copy(update={"rows": ()})
    ingest_all(
        store,
        make_record(1, profiles=[newer]),
        make_record(0, profiles=[older]),
        make_record(2, started_at=NOON + timedelta(days=1)),
    )

    with Session(store) as session:
        profiled = read_profiled_runs(session, PROJECT, [(CASE_ID, "torch")])
        assert read_profiled_runs(session, PROJECT, [(CASE_ID, "triton")]) == []

    assert [(run.commit.first_parent_count, run.profile) for run in profiled] == [
        (1, older),
        (2, newer),
    ]


def test_a_judged_step_names_the_counters_that_moved_with_it(store: Engine) -> None:
    for number, median_ns in enumerate(stepped(at=MOVED)):
        counted = {3: [counters_of(1e6)], 12: [counters_of(1.31e6)]}.get(number, [])
        record = make_record(
            number, measurements=[make_measurement(median_ns=median_ns)], counters=counted
        )
        ingest_record(store, record)

    (found,) = analyse_project(store, PROJECT)

    assert "dram bytes +31%" in " ".join(suspect.sentence for suspect in found.suspects)


def ingest_three_checks(store: Engine) -> None:
    ingest_all(store, checked(0, "a"), checked(1, "b", Outcome.INCORRECT), checked(2, "b"))


def test_what_failed_a_check_is_listed(store: Engine) -> None:
    ingest_three_checks(store)

    with Session(store) as session:
        rows = list(list_case_names(session, PROJECT))
        assert list_failed_checks(session, PROJECT, rows) == {(SOFTMAX, "torch")}


def test_changed_code_is_listed(store: Engine) -> None:
    ingest_three_checks(store)

    with Session(store) as session:
        rows = list(list_case_names(session, PROJECT))
        assert list_changed_code(session, PROJECT, rows) == {(ROPE, "triton")}
