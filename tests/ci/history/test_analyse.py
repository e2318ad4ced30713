"""Analysis of a stored project."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.history import analyse
from roofwatch.ci.history.analyse import JUDGED_METRICS, analyse_project
from roofwatch.ci.history.history import judge_history
from roofwatch.collector.record.machine import DeviceState, Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.values import Cause, Verdict
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_blocks,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_static_facts,
)
from tests.ci.values import SOFTMAX, SWIGLU, stepped

COMMITS = 16


def timed(case_id: str, median_ns: float, *, sm_clock_mhz: float | None = None) -> Measurement:
    state = DeviceState(reading_count=1, sm_clock_mhz=sm_clock_mhz)
    blocks = tuple(block.model_copy(update={"device_state": state}) for block in make_blocks([median_ns, median_ns]))
    return make_measurement(case_id, blocks=blocks)


@pytest.fixture
def history(store: Engine) -> Engine:
    """A kernel that steps with its clock, one that fails once, an unchanged one, and one that spills."""
    steps, quiet = stepped(at=8, factor=1.4), stepped(factor=1.0, seed=3)
    for number in range(COMMITS):
        clock_mhz = 1_980 if number < 8 else 1_414
        record = make_record(
            number,
            measurements=[
                timed("rms_norm/n=1/float32/fwd", steps[number], sm_clock_mhz=clock_mhz),
                timed(SOFTMAX, quiet[number]),
                timed(SWIGLU, quiet[number]),
            ],
            accuracies=[make_accuracy(SWIGLU, outcome=Outcome.INCORRECT if number == 5 else Outcome.OK)],
            static_facts=[
                make_static_facts("rope/n=1/float32/fwd", code=str(number >= 9), local_bytes=48 * (number >= 9))
            ],
            environment=make_environment(device_kind="cuda", driver_version="570.86"),
        )
        ingest_record(store, record)
    for record in make_pair_of_records(3, 4):
        ingest_record(store, record)
    return store


def test_analysis_in_parts_gives_the_same_result(history: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(history) as session:
        keys = [key for key in list_series_keys(session, PROJECT, include_pairs=True) if key.metric in JUDGED_METRICS]
        series = read_series(session, PROJECT, keys, include_pairs=True, include_conditions=True)
        at_once = judge_history(series, list_pairs(session, PROJECT))
    monkeypatch.setattr(analyse, "_VALUES_AT_ONCE", 1)

    in_parts = analyse_project(history, PROJECT)

    assert in_parts == at_once
    assert {(found.kernel, found.verdict) for found in in_parts} == {
        ("rms_norm", Verdict.INCONCLUSIVE),
        ("rope", Verdict.REGRESSED),
        ("swiglu", Verdict.REGRESSED),
        ("swiglu", Verdict.IMPROVED),
    }


def test_regressions_are_stored_with_their_suspects(history: Engine) -> None:
    found = analyse_project(history, PROJECT)

    with Session(history) as session:
        stored = [one.regression for one in list_triaged(session, PROJECT)]

    assert sorted(stored, key=lambda one: one.key) == sorted(found, key=lambda one: one.key)
    (slower,) = (one for one in found if one.kernel == "rms_norm")
    assert (slower.verdict, slower.cause) == (Verdict.INCONCLUSIVE, Cause.CLOCK)
    assert "clock_changed" in slower.change_points[0].evidence
    assert "in clock cycles the change is" in slower.suspects[0].sentence
