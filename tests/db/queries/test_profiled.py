"""Profiles of calls over a history."""

from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.collector.record.results import CaseProfile
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.profiled import read_profiled_runs
from tests.builders import CASE_ID, NOON, PROJECT, make_activity, make_measurement, make_profile, make_record
from tests.ci.values import stepped

MOVED = 8


def profile_of(*names: str, left_out_count: int = 0) -> CaseProfile:
    rows = [make_activity(name, grid=(7, 1, 1), estimated_occupancy=0.5) for name in names]
    others = {"left_out_count": left_out_count, "left_out_ns": 5 * left_out_count}
    return make_profile(CASE_ID, *rows, implementation="eager", launch_delay_ns=2.5, **others)


def test_profiles_come_whole_in_the_order_of_the_branch(store: Engine) -> None:
    measured = [make_measurement()]
    newer, older = profile_of("b", "a", left_out_count=3), profile_of("c").model_copy(update={"rows": ()})
    ingest_record(store, make_record(1, measurements=measured, profiles=[newer]))
    ingest_record(store, make_record(0, measurements=measured, profiles=[older]))
    ingest_record(store, make_record(2, measurements=measured, started_at=NOON + timedelta(days=1)))

    with Session(store) as session:
        found = read_profiled_runs(session, PROJECT, [(CASE_ID, "eager")])
        of_others = read_profiled_runs(session, PROJECT, [(CASE_ID, "triton")])

    assert [(run.commit.first_parent_count, run.profile) for run in found] == [(1, older), (2, newer)]
    assert of_others == []


def test_a_step_that_was_told_names_what_is_launched_otherwise_once_it_is_profiled(store: Engine) -> None:
    """The profile comes with one run more, long after the step, whose time by itself has nothing to tell."""
    times = stepped(count=20, at=MOVED)
    for number, median_ns in enumerate(times[:-1]):
        profiles = {3: [profile_of("cublas_gemm_128")]}.get(number, [])
        ingest_record(
            store, make_record(number, measurements=[make_measurement(median_ns=median_ns)], profiles=profiles)
        )
    (before,) = analyse_project(store, PROJECT)

    last = make_record(
        19, measurements=[make_measurement(median_ns=times[-1])], profiles=[profile_of("cublas_gemm_64")]
    )
    ingest_record(store, last)
    (after,) = analyse_project(store, PROJECT)

    told = "kernel changed: cublas_gemm_64 instead of cublas_gemm_128"
    assert told not in " ".join(suspect.sentence for suspect in before.suspects)
    assert told in " ".join(suspect.sentence for suspect in after.suspects)
