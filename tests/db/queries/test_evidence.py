"""Evidence for causes over a history."""

from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import CaseProfile, Counters
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.columns import list_case_row_ids
from roofwatch.db.queries.evidence import list_changed_code, list_failed_checks, read_counted_runs, read_profiled_runs
from tests.builders import CASE_ID, NOON, PROJECT, make_activity, make_measurement, make_profile, make_record
from tests.ci.values import stepped
from tests.db.queries.test_columns import ROPE, SOFTMAX, checked, ingest_all

MOVED = 8


def counters_of(dram_bytes: float, *, launch: int = 0, case_id: str = CASE_ID) -> Counters:
    return Counters(
        case_id=case_id,
        implementation="torch",
        function="kernel",
        launch_index=launch,
        values={"dram_bytes": dram_bytes},
    )


def test_counters_come_in_the_order_of_the_branch_with_their_launches(store: Engine) -> None:
    measured = [make_measurement()]
    ingest_record(store, make_record(1, measurements=measured, counters=[counters_of(3.0)]))
    first = [counters_of(1.0), counters_of(2.0, launch=1)]
    ingest_record(store, make_record(0, measurements=measured, counters=first))
    ingest_record(store, make_record(2, measurements=measured, started_at=NOON + timedelta(days=1)))

    with Session(store) as session:
        counted = read_counted_runs(session, PROJECT, [(CASE_ID, "torch")])
        of_others = read_counted_runs(session, PROJECT, [(CASE_ID, "triton")])

    assert [(run.commit.first_parent_count, run.counters) for run in counted] == [
        (1, tuple(first)),
        (2, (counters_of(3.0),)),
    ]
    assert of_others == []


def test_a_judged_step_names_the_counters_that_moved_with_it(store: Engine) -> None:
    for number, median_ns in enumerate(stepped(at=MOVED)):
        counted = {3: [counters_of(1e6)], 12: [counters_of(1.31e6)]}.get(number, [])
        record = make_record(number, measurements=[make_measurement(median_ns=median_ns)], counters=counted)
        ingest_record(store, record)

    (found,) = analyse_project(store, PROJECT)

    assert "dram bytes +31%" in " ".join(suspect.sentence for suspect in found.suspects)


def profile_of(*names: str, left_out_count: int = 0) -> CaseProfile:
    rows = [make_activity(name, grid=(7, 1, 1), estimated_occupancy=0.5) for name in names]
    others = {"left_out_count": left_out_count, "left_out_ns": 5 * left_out_count}
    return make_profile(CASE_ID, *rows, implementation="torch", launch_delay_ns=2.5, **others)


def test_profiles_come_whole_in_the_order_of_the_branch(store: Engine) -> None:
    measured = [make_measurement()]
    newer, older = profile_of("b", "a", left_out_count=3), profile_of("c").model_copy(update={"rows": ()})
    ingest_record(store, make_record(1, measurements=measured, profiles=[newer]))
    ingest_record(store, make_record(0, measurements=measured, profiles=[older]))
    ingest_record(store, make_record(2, measurements=measured, started_at=NOON + timedelta(days=1)))

    with Session(store) as session:
        found = read_profiled_runs(session, PROJECT, [(CASE_ID, "torch")])
        of_others = read_profiled_runs(session, PROJECT, [(CASE_ID, "triton")])

    assert [(run.commit.first_parent_count, run.profile) for run in found] == [(1, older), (2, newer)]
    assert of_others == []


def test_what_failed_a_check_or_was_compiled_otherwise_is_known(store: Engine) -> None:
    ingest_all(store, checked(0, "a"), checked(1, "b", Outcome.INCORRECT), checked(2, "b"))

    with Session(store) as session:
        rows = list_case_row_ids(session, PROJECT)
        failed = list_failed_checks(session, PROJECT, rows)
        changed = list_changed_code(session, PROJECT, rows)

    assert failed == {(SOFTMAX, "torch")}
    assert changed == {(ROPE, "triton")}
