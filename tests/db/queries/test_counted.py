"""Hardware counters over a history."""

from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.collector.record.results import Counters
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.counted import read_counted_runs
from tests.builders import CASE_ID, NOON, PROJECT, make_measurement, make_record
from tests.ci.values import stepped

MOVED = 8


def counters_of(dram_bytes: float, *, launch: int = 0, case_id: str = CASE_ID) -> Counters:
    return Counters(
        case_id=case_id,
        implementation="eager",
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
        counted = read_counted_runs(session, PROJECT, [(CASE_ID, "eager")])
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
