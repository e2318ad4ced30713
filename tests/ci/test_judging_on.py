"""A project judged run by run: each time by what is new, and in the end as if all of it had been judged at once."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from roofwatch.ci.history import analyse
from roofwatch.ci.history.analyse import judge_project
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.measurement import CacheState, MemoryUse
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.ingest.result import OnConflict
from roofwatch.db.regressions.standings import begin_judgement, read_judged_history
from roofwatch.db.values import Regression
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_accuracy,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_static_facts,
    make_tensor_error,
)
from tests.ci.values import SOFTMAX, SWIGLU

QUIET = "rms_norm/n=1/float32/fwd"
CASES = 4
SETTLED = 66
"""Commits after which a series is old enough to be judged value by value."""


def noise_of(number: int, seed: int) -> float:
    return float(np.exp(np.random.default_rng([number, seed]).normal(0, 0.01)))


def make_run(
    number: int,
    *,
    slowdown: float = 1.0,
    error: float = 1e-7,
    code: str = "a",
    peak_bytes: int = 2**20,
    **fields: object,
) -> RunRecord:
    """A commit of two kernels of which one may slow down and one may take more memory, and others that may lose
    accuracy or be compiled otherwise.
    """
    memory = MemoryUse(peak_allocated_bytes=peak_bytes, peak_reserved_bytes=2**21, allocation_count=1)
    defaults: dict[str, Any] = {
        "measurements": [
            make_measurement(QUIET, median_ns=1e6 * noise_of(number, 1), memory=memory),
            make_measurement(SOFTMAX, median_ns=1e6 * noise_of(number, 2) * slowdown),
        ],
        "accuracies": [make_accuracy(SWIGLU, tensors=[make_tensor_error(rmse_ratio=error)])],
        "static_facts": [make_static_facts("rope/n=1/float32/fwd", code=code, local_bytes=48 * (code != "a"))],
    }
    return make_record(number, **defaults | fields)


def store_all(engine: Engine, records: Iterable[RunRecord]) -> None:
    for record in records:
        ingest_record(engine, record)


@pytest.fixture
def settled(store: Engine) -> Engine:
    """A history that has been judged, with nothing to tell."""
    store_all(store, (make_run(number) for number in range(SETTLED)))
    assert judge_project(store, PROJECT) == []
    return store


def told(found: Iterable[Regression]) -> list[tuple[object, ...]]:
    return [(one.key, one.is_confirmed, one.is_alert, one.recovered_at) for one in found]


def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases whose history is read whole from now on."""
    cases: list[str] = []
    look = analyse._looks

    def noted(session: Session, work: object, part: object) -> object:
        looks = look(session, work, part)  # type: ignore[arg-type]  # as it was called
        cases.extend(case_id for case_id, _ in looks)
        return looks

    monkeypatch.setattr(analyse, "_looks", noted)
    return cases


def test_histories_are_read_only_where_what_is_known_does_not_say_enough(
    settled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = read_whole(monkeypatch)

    ingest_record(settled, make_run(SETTLED))
    judge_project(settled, PROJECT)
    assert cases == []

    judge_project(settled, PROJECT)
    assert cases == []

    begin_judgement(settled, PROJECT)  # one that was killed
    judge_project(settled, PROJECT)
    assert len(cases) == CASES

    judge_project(settled, PROJECT, Thresholds(trend_relative_change=0.1))
    assert len(cases) == 2 * CASES

    base, head = make_pair_of_records(SETTLED - 1, SETTLED)
    store_all(settled, [base, head])
    judge_project(settled, PROJECT, Thresholds(trend_relative_change=0.1))
    assert cases[2 * CASES :] == [CASE_ID]

    again = make_run(SETTLED, run_id=base.run_id)
    ingest_record(settled, again, on_conflict=OnConflict.REPLACE)
    judge_project(settled, PROJECT, Thresholds(trend_relative_change=0.1))
    assert len(cases) == 3 * CASES + 2


def test_judging_rolls_nothing_back_so_that_what_it_asks_stays_prepared(settled: Engine) -> None:
    ended: list[str] = []
    event.listen(settled, "rollback", lambda _: ended.append("rolled back"))
    event.listen(settled, "commit", lambda _: ended.append("committed"))

    ingest_record(settled, make_run(SETTLED))
    ended.clear()
    judge_project(settled, PROJECT)
    judge_project(settled, PROJECT, is_whole=True)

    assert set(ended) == {"committed"}


def test_what_is_timed_otherwise_from_a_run_on_is_held_against_its_own_kind(settled: Engine) -> None:
    """The same kernels at the same commits, half as slow again by a cold cache: nothing became slower."""
    for number in range(SETTLED, SETTLED + 8):
        cold = [
            make_measurement(case_id, median_ns=1.5e6 * noise_of(number, seed), cache=CacheState.COLD)
            for seed, case_id in enumerate((QUIET, SOFTMAX), 1)
        ]
        ingest_record(settled, make_run(number, measurements=cold))
        assert judge_project(settled, PROJECT) == []
    assert judge_project(settled, PROJECT, is_whole=True) == []


def test_judging_run_by_run_ends_where_judging_at_once_does(settled: Engine) -> None:
    """A slowdown that is fixed, a loss of accuracy, new machine code, a failure, more memory, and a run that came
    late.
    """
    late = SETTLED + 4
    for number in range(SETTLED, SETTLED + 26):
        slowdown = 1.3 if SETTLED + 2 <= number < SETTLED + 15 else 1.0
        fields: dict[str, Any] = {}
        if number == SETTLED + 9:
            fields["accuracies"] = [make_accuracy(SWIGLU, outcome=Outcome.INCORRECT)]
        if number != late:
            error, code = 1e-7 if number < SETTLED + 12 else 4e-7, "a" if number < SETTLED + 6 else "b"
            fields["peak_bytes"] = 2**20 if number < SETTLED + 20 else 2**21
            ingest_record(settled, make_run(number, slowdown=slowdown, error=error, code=code, **fields))
            step_by_step = judge_project(settled, PROJECT)
    ingest_record(settled, make_run(late, slowdown=1.3))
    step_by_step = judge_project(settled, PROJECT)
    with Session(settled) as session:
        history = read_judged_history(session, PROJECT)

    at_once = judge_project(settled, PROJECT, is_whole=True)

    assert told(step_by_step) == told(at_once)
    kernels = [(found.kernel, str(found.verdict)) for found in at_once]
    assert sorted(kernels) == [
        ("rms_norm", "regressed"),
        ("rope", "regressed"),
        ("softmax", "improved"),
        ("softmax", "regressed"),
        ("swiglu", "improved"),
        ("swiglu", "regressed"),
        ("swiglu", "regressed"),
    ]
    with Session(settled) as session:
        assert read_judged_history(session, PROJECT) == history
