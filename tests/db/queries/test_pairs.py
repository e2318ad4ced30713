"""Pairs of runs of one job."""

from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.queries.pairs import list_newest_calibrations, list_pairs
from roofwatch.model.history import Pair
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.record import RunRecord
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
)
from tests.databases import ingest_all


def pairs_of(store: Engine, *records: RunRecord) -> list[Pair]:
    ingest_all(store, *records)
    with Session(store) as session:
        return list_pairs(session, PROJECT)


def test_a_pair_has_the_blocks_of_both_sides_in_their_order(store: Engine) -> None:
    base, head = make_pair_of_records(0, 1, base_median_ns=100, head_median_ns=200, block_count=2)
    assert base.pairing is not None

    assert pairs_of(store, head) == [], "a side is not there yet"
    assert pairs_of(store, base, make_record(0), make_record(1)) == [
        Pair(
            project=PROJECT,
            pair_id=str(base.pairing.pair_id),
            base=make_commit_ref(0),
            head=make_commit_ref(1),
            case_id=CASE_ID,
            implementation="torch",
            runner_class=make_environment().runner_class,
            measured_at=head.started_at,
            base_blocks_ns=((99, 100, 101), (99, 100, 101)),
            head_blocks_ns=((198, 200, 202), (198, 200, 202)),
            timing="perf_counter, hot",
            harness_version=head.harness_version,
        )
    ]


def test_the_newest_pair_comes_first(store: Engine) -> None:
    older = make_pair_of_records(0, 2, started_at=NOON)
    newer = make_pair_of_records(1, 3, started_at=NOON + timedelta(days=1))

    newest, oldest = pairs_of(store, *older, *newer)

    assert newest.head == make_commit_ref(3)
    assert oldest.head == make_commit_ref(2)


def test_a_pair_may_be_of_one_commit(store: Engine) -> None:
    (pair,) = pairs_of(store, *make_pair_of_records(1, 1))

    assert pair.base == pair.head == make_commit_ref(1)


def test_the_newest_three_calibrations_that_fit_a_run_are_read(
    store: Engine,
) -> None:
    def at(day: int, **fields: Any) -> tuple[RunRecord, RunRecord]:
        return make_pair_of_records(1, 1, started_at=NOON + timedelta(days=day), **fields)

    old = [at(day) for day in range(4)]
    base, dirty = at(5)
    others = [
        make_pair_of_records(0, 1, started_at=NOON + timedelta(days=6)),
        at(7, harness_version="another"),
        at(8, environment=make_environment(thread_count=64)),
        at(9, project="other/project"),
        (
            base,
            dirty.model_copy(update={"commit": dirty.commit.model_copy(update={"is_dirty": True})}),
        ),
    ]
    gate, survey = at(10, preset="gate"), at(11, preset="survey")
    run, quick = make_record(2, preset="survey"), make_record(3, preset="quick")
    ingest_all(store, run, quick, *chain.from_iterable([*old, *others]))

    def read(run_id: UUID) -> list[str]:
        with Session(store) as session:
            return [pair.pair_id for pair in list_newest_calibrations(session, PROJECT, run_id)]

    ids = [str(head.pairing.pair_id) for _, head in old if head.pairing is not None]
    assert read(run.run_id) == [ids[3], ids[2], ids[1]]
    assert read(old[3][0].run_id) == [ids[2], ids[1], ids[0]], "a pair does not calibrate itself"
    assert read(uuid4()) == []
    ingest_all(store, *gate, *survey)
    by_gate, by_survey = (
        str(head.pairing.pair_id) for _, head in (gate, survey) if head.pairing is not None
    )
    assert read(run.run_id) == [by_survey, ids[3], ids[2]], (
        "none of another preset, and those that do not say it"
    )
    assert read(quick.run_id) == [ids[3], ids[2], ids[1]]
    assert read(old[3][0].run_id) == [by_survey, by_gate, ids[2]], (
        "a run that does not say it takes all"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"measurements": (make_measurement(outcome=Outcome.CRASHED),)},
        {"measurements": (make_measurement(implementation="another"),)},
        {"measurements": (make_measurement(timer=Timer.CUDA_EVENT),)},
        {"measurements": (make_measurement(cache=CacheState.COLD),)},
        {"environment": make_environment(thread_count=64)},
        {"harness_version": "2"},
    ],
    ids=[
        "failed",
        "another implementation",
        "another timer",
        "another cache state",
        "another runner",
        "harness",
    ],
)
def test_what_the_head_did_not_measure_like_the_base_is_left_out(
    store: Engine, changed: dict[str, Any]
) -> None:
    base, head = make_pair_of_records()

    assert pairs_of(store, base, head.model_copy(update=changed)) == []
