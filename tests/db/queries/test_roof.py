"""How far cases are from their roof."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.queries.roof import list_roof_cells
from roofwatch.model.metrics import RATIO_TO
from tests.builders import (
    NOON,
    PROJECT,
    make_commit,
    make_environment,
    make_imported,
    make_measurement,
    make_record,
)
from tests.dashboard.gpu_history import HOT_AT, SOFTMAX, gpu_record
from tests.databases import ingest_all


def test_a_cell_has_the_values_of_its_commits_in_their_order(
    store: Engine,
) -> None:
    ingest_all(
        store,
        *(
            make_record(
                number,
                measurements=[
                    make_measurement(
                        median_ns=10_000.0 + number,
                        utilisation=0.5 + number / 10,
                        reference_ns=5_000.0 + number / 2,
                    )
                ],
            )
            for number in (2, 0, 1)
        ),
    )
    with Session(store) as session:
        (cell,) = list_roof_cells(session, PROJECT)

    assert cell.utilisations == pytest.approx((0.5, 0.6, 0.7))
    assert cell.values == pytest.approx((10_000, 10_001, 10_002))
    assert cell.dates == tuple(make_commit(number).committed_at for number in range(3))
    assert cell.ratio_to_reference == pytest.approx(2)
    assert cell.utilisation == pytest.approx(0.7)
    assert (cell.bound, cell.is_degraded) == ("memory", False)


def test_a_limit_spreads_the_runs_up_to_the_newest_three(store: Engine) -> None:
    ingest_all(store, *(make_record(number) for number in range(20)))

    with Session(store) as session:
        (cell,) = list_roof_cells(session, PROJECT, limit=4)

    hours = [(date - NOON) / timedelta(hours=1) for date in cell.dates]
    assert hours == [4, 9, 14, 17, 18, 19]


def test_runs_after_a_date_are_left_out(store: Engine) -> None:
    ingest_all(store, *(make_record(number) for number in range(20)))

    with Session(store) as session:
        (early,) = list_roof_cells(session, PROJECT, until=NOON + timedelta(hours=5))

    assert len(early.dates) == 6


def test_each_runner_class_has_cells_of_its_own(store: Engine) -> None:
    small = make_environment(thread_count=2)
    ingest_all(store, make_record(0), make_record(0, environment=small))

    with Session(store) as session:
        assert len(list_roof_cells(session, PROJECT)) == 2


def test_cells_of_one_runner_class_may_be_chosen(store: Engine) -> None:
    small = make_environment(thread_count=2)
    ingest_all(store, make_record(0), make_record(0, environment=small))

    with Session(store) as session:
        chosen = list_roof_cells(session, PROJECT, runner_classes=(small.runner_class,))

    assert [cell.key.runner_class for cell in chosen] == [small.runner_class]


def test_a_throttled_measurement_says_so(store: Engine) -> None:
    ingest_all(store, gpu_record(HOT_AT))
    with Session(store) as session:
        cells = list_roof_cells(session, PROJECT)

    degraded = {(cell.key.case_id, cell.key.implementation) for cell in cells if cell.is_degraded}
    assert degraded == {(SOFTMAX, "triton")}


def test_values_of_another_tool_are_cells_with_their_ratio_to_the_library(store: Engine) -> None:
    time = make_imported(implementation="mine", metric="time", value=3.0)
    ratio = make_imported(
        implementation="mine",
        metric=f"time median{RATIO_TO}torch",
        statistic="value",
        unit="ratio",
        value=1.5,
    )
    ingest_all(store, make_record(measurements=(), imported=[time, ratio]))
    with Session(store) as session:
        (cell,) = list_roof_cells(session, PROJECT)

    assert cell.key.metric == time.key
    assert (cell.values, cell.utilisation, cell.ratio_to_reference) == ((3.0,), None, 1.5)
