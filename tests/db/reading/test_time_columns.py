"""Times as bare columns, and what else of a case has to be read."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from collector.part import Outcome
from collector.record import RunRecord
from db.reading.time_columns import list_case_row_ids, list_restless, read_time_columns
from db.storing.ingest import ingest_record
from tests.builders import (
    NOON,
    PROJECT,
    make_accuracy,
    make_measurement,
    make_record,
    make_series_key,
    make_static_facts,
)

BACKWARD = "swiglu/B=2,N=3/float32/bwd"


def ingest_all(store: Engine, *records: RunRecord) -> None:
    for record in records:
        ingest_record(store, record)


def test_times_as_columns_are_those_of_the_points(store: Engine) -> None:
    ingest_all(
        store,
        make_record(1, measurements=[make_measurement(median_ns=20_000)]),
        make_record(0, measurements=[make_measurement(median_ns=10_000), make_measurement(BACKWARD)]),
        make_record(1, measurements=[make_measurement(median_ns=30_000)], started_at=NOON + timedelta(days=9)),
        make_record(2, measurements=[make_measurement(outcome=Outcome.CRASHED)]),
    )

    with Session(store) as session:
        rows = list_case_row_ids(session, PROJECT)
        columns = {one.key: one for one in read_time_columns(session, PROJECT, rows)}

    one = columns[make_series_key()]
    assert one.medians_ns.tolist() == [10_000, 20_000, 30_000]
    assert one.places.tolist() == [0, 1, 1]
    assert one.relative_spreads == pytest.approx([0.015] * 3)
    assert one.block_counts.tolist() == [2] * 3
    assert [str(day) for day in one.days] == ["2026-03-01", "2026-03-01", "2026-03-10"]
    assert one.has_failures
    assert not columns[make_series_key(case_id=BACKWARD)].has_failures


def test_what_failed_a_check_or_was_compiled_otherwise_is_restless(store: Engine) -> None:
    def record(number: int, code: str, outcome: Outcome) -> RunRecord:
        return make_record(
            number,
            accuracies=[make_accuracy("softmax/n=1/float32/fwd", outcome=outcome)],
            static_facts=[
                make_static_facts("rope/n=1/float32/fwd", code=code),
                make_static_facts("gelu/n=1/float32/fwd"),
            ],
        )

    ingest_all(store, record(0, "a", Outcome.OK), record(1, "b", Outcome.INCORRECT))

    with Session(store) as session:
        found = list_restless(session, PROJECT, list_case_row_ids(session, PROJECT))

    assert found == {("softmax/n=1/float32/fwd", "eager"), ("rope/n=1/float32/fwd", "triton")}
