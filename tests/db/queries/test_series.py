"""Series of measured, accuracy and static metrics over the commits of a project."""

from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from roofwatch.model.history import RunSetting, Series, SeriesKey, SeriesPoint, TunedChoice
from roofwatch.model.machine import DeviceState, Environment, Outcome
from roofwatch.model.measurement import (
    Autotuning,
    MemoryUse,
    measured_values,
    with_references,
)
from roofwatch.model.metrics import METRICS, RATIO_TO_REFERENCE
from roofwatch.model.record import RunRecord
from roofwatch.model.regime import Regime
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    code_hash_of,
    make_accuracy,
    make_blocks,
    make_case,
    make_commit,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_series_key,
    make_static_facts,
    make_tensor_error,
)
from tests.databases import ingest_all

BACKWARD = "swiglu/B=2,N=3/float32/bwd"


def read(store: Engine, **filters: Any) -> dict[SeriesKey, Series]:
    with Session(store) as session:
        return {series.key: series for series in read_series(session, PROJECT, **filters)}


def read_one(store: Engine, key: SeriesKey, **filters: Any) -> tuple[SeriesPoint, ...]:
    return read(store, keys=[key], **filters)[key].points


def static_key(metric: str = "registers", **fields: Any) -> SeriesKey:
    fields = {
        "runner_class": "",
        "implementation": "triton",
        "function": "_rms_norm_kernel",
        "target": "sm_90",
    } | fields
    return make_series_key(metric, **fields)


def accuracy_key(**fields: Any) -> SeriesKey:
    return make_series_key("rmse_ratio", **{"tensor": "out"} | fields)


def test_a_point_tells_what_its_run_measured(store: Engine) -> None:
    record = make_record(5, measurements=[make_measurement(median_ns=10_000)])
    ingest_all(store, record)

    assert read_one(store, make_series_key()) == (
        SeriesPoint(
            commit=make_commit_ref(5),
            run_id=str(record.run_id),
            measured_at=record.started_at,
            outcome=Outcome.OK,
            value=10_000,
            low=9_925,
            high=10_075,
            block_count=2,
            timing="perf_counter, hot",
            setting=RunSetting(
                harness_version="1",
                toolchain=(
                    ("TRITON_DEFAULT_FP_FUSION", "0"),
                    ("python", "3.11.7"),
                    ("torch", "2.13.0"),
                    ("triton", "3.7.1"),
                ),
                machine=(
                    ("os", "Linux 6.1"),
                    ("cpu name", "Example CPU"),
                    ("core count", "4"),
                    ("thread count", "4"),
                    ("device count", "1"),
                    ("clock mode", "free"),
                ),
            ),
        ),
    )


def test_the_ratio_to_the_librarys_row_is_a_series_that_the_machine_does_not_move(
    store: Engine,
) -> None:
    for number, factor in enumerate((1.0, 1.3)):
        rows = [
            make_measurement(implementation="triton", median_ns=8_000 * factor),
            make_measurement(implementation="torch", median_ns=10_000 * factor),
        ]
        ingest_all(store, make_record(number, measurements=with_references(rows)))

    key = make_series_key(RATIO_TO_REFERENCE, implementation="triton")
    with Session(store) as session:
        keys = list_series_keys(session, PROJECT, metric=RATIO_TO_REFERENCE)
        (series,) = read_series(session, PROJECT, keys)
    assert keys == [key]
    assert [point.value for point in series.points] == pytest.approx([0.8, 0.8])


def test_conditions_of_a_point_come_on_request(
    store: Engine,
) -> None:
    states = [
        DeviceState(reading_count=2, sm_clock_mhz=clock_mhz, degraded_by=reasons)
        for clock_mhz, reasons in (
            (1_980, ()),
            (1_950, ("sw_thermal_slowdown",)),
            (1_410, ("foreign_process",)),
        )
    ]
    blocks = [
        block.model_copy(update={"device_state": state})
        for block, state in zip(make_blocks([10_000.0] * 3), states, strict=True)
    ]
    choice = Autotuning(function="_kernel", key="4096", chosen={"num_warps": 4, "BLOCK": 128})
    ingest_all(
        store, make_record(measurements=[make_measurement(blocks=blocks, autotuning=[choice])])
    )

    (point,) = read_one(store, make_series_key(), include_conditions=True)
    (unasked,) = read_one(store, make_series_key())

    assert point.sm_clock_mhz == 1_950
    assert point.degraded_by == ("foreign_process", "sw_thermal_slowdown")
    assert point.choices == (TunedChoice("_kernel", "4096", "BLOCK=128, num_warps=4"),)
    assert (unasked.sm_clock_mhz, unasked.degraded_by, unasked.choices) == (None, (), ())


def test_only_clean_runs_of_the_default_branch_count_unless_others_are_asked_for(
    store: Engine,
) -> None:
    side = [
        make_record(number, commit=make_commit(number, branch="try-it")) for number in (3, 4, 5)
    ]
    detached = make_record(2, commit=make_commit(2, branch=None))
    dirty = make_record(6, commit=make_commit(6, is_dirty=True))
    ingest_all(
        store, make_record(0), make_record(1), detached, *side, dirty, *make_pair_of_records(7, 8)
    )

    def commits(**filters: bool) -> list[int]:
        return [
            point.commit.first_parent_count - 1
            for point in read_one(store, make_series_key(), **filters)
        ]

    assert commits() == [0, 1, 2]
    assert commits(include_branches=True) == [0, 1, 2, 3, 4, 5]
    assert commits(include_dirty=True) == [0, 1, 2, 6]
    assert commits(include_pairs=True) == [0, 1, 2, 7, 8]


def test_measured_metrics_are_those_that_the_record_defines(store: Engine) -> None:
    measurement, without_flop = (
        make_measurement(median_ns=12_345.678),
        make_case(BACKWARD, flop_count=0),
    )
    ingest_all(
        store,
        make_record(
            measurements=[measurement, make_measurement(BACKWARD)],
            cases=[make_case(), without_flop],
        ),
    )

    points = {(key.case_id, key.metric): found.points[0] for key, found in read(store).items()}

    rate = points.pop((CASE_ID, "flop_per_s"))
    metrics = ("median_ns", "memory_bytes_per_s", "utilisation")
    assert points.keys() == {
        (case_id, metric) for case_id in (CASE_ID, BACKWARD) for metric in metrics
    }
    values = {metric: points[CASE_ID, metric].value for metric in metrics} | {
        "flop_per_s": rate.value
    }
    assert values == measured_values(measurement, make_case())
    assert (rate.low, rate.high) == pytest.approx(
        [32_768 / (12_345.678 * part) * 1e9 for part in (1.0075, 0.9925)]
    )


def test_points_of_one_commit_follow_each_other_in_time(store: Engine) -> None:
    late, early = (
        make_record(1, started_at=NOON + timedelta(days=9)),
        make_record(1, started_at=NOON),
    )
    ingest_all(
        store, make_record(2), late, early, make_record(0, started_at=NOON + timedelta(days=20))
    )

    points = read_one(store, make_series_key())

    assert [point.commit for point in points] == [
        make_commit_ref(number) for number in (0, 1, 1, 2)
    ]
    assert [point.run_id for point in points[1:3]] == [str(early.run_id), str(late.run_id)]


def test_a_failed_measurement_is_a_point_without_a_value(store: Engine) -> None:
    crashed = make_measurement(outcome=Outcome.CRASHED, message="signal 11")
    ingest_all(store, make_record(0), make_record(1, measurements=[crashed]))

    for metric in ("median_ns", "flop_per_s", "memory_bytes_per_s", "utilisation"):
        before, after = read_one(store, make_series_key(metric))
        assert before.value is not None
        assert (after.value, after.low, after.outcome, after.message) == (
            None,
            None,
            Outcome.CRASHED,
            "signal 11",
        )


def test_what_never_gave_a_value_has_one_series_of_its_layers_first_metric(store: Engine) -> None:
    failed = make_record(
        measurements=[make_measurement(outcome=Outcome.TIMED_OUT)],
        accuracies=[make_accuracy(outcome=Outcome.CRASHED)],
        static_facts=[make_static_facts(outcome=Outcome.COMPILE_ERROR)],
    )
    ingest_all(store, failed)

    series = read(store)

    assert set(series) == {make_series_key("median_ns"), accuracy_key(tensor=""), static_key()}
    assert [point.value for found in series.values() for point in found.points] == [None] * 3


def ingest_two_runner_classes(store: Engine) -> Environment:
    """Compile three commits, of which two runner classes time one each; return the second one."""
    other = make_environment(thread_count=64)
    timed = [make_measurement()]
    ingest_all(
        store,
        make_record(
            0, measurements=timed, static_facts=[make_static_facts(registers=32, code="a")]
        ),
        make_record(
            1,
            measurements=timed,
            static_facts=[make_static_facts(registers=64, code="b")],
            environment=other,
        ),
        make_record(
            2, static_facts=[make_static_facts(outcome=Outcome.COMPILE_ERROR, message="no such op")]
        ),
    )
    return other


def test_static_series_join_runner_classes(store: Engine) -> None:
    ingest_two_runner_classes(store)

    first, second, third = read_one(store, static_key())

    assert (first.value, first.code_hash) == (32, code_hash_of("a"))
    assert (second.value, second.code_hash) == (64, code_hash_of("b"))
    assert (third.value, third.code_hash, third.outcome) == (None, None, Outcome.COMPILE_ERROR)
    assert third.message == "no such op"
    assert static_key("spilled_registers") not in read(store), "a target that does not report it"


def test_series_of_times_have_one_runner_class(store: Engine) -> None:
    other = ingest_two_runner_classes(store)

    times = {
        key.runner_class: len(series.points)
        for key, series in read(store).items()
        if key.metric == "median_ns"
    }
    assert times == {make_environment().runner_class: 1, other.runner_class: 1}


def test_the_accuracy_with_other_values_is_a_series_of_its_own(store: Engine) -> None:
    for minute, ratio in enumerate((1e-7, 3e-7)):
        regimes = [make_tensor_error(regime=Regime.PEAKED, rmse_ratio=ratio, passed=False)]
        ingest_all(store, make_record(minute, accuracies=[make_accuracy(regimes=regimes)]))

    series = read(store)
    of_metric = {key.tensor: found for key, found in series.items() if key.metric == "rmse_ratio"}

    assert set(of_metric) == {"out", "out, peaked"}
    assert [point.value for point in of_metric["out"].points] == [1e-7, 1e-7]
    assert [point.value for point in of_metric["out, peaked"].points] == [1e-7, 3e-7]


def ingest_failing_check(store: Engine, outcome: Outcome) -> None:
    """A check of two tensors, and one at the next commit that fails."""
    tensors = [
        make_tensor_error(tensor="out", rmse_ratio=1e-7, max_abs_error=1e-6),
        make_tensor_error(tensor="grad_x", rmse_ratio=2e-7, max_abs_error=2e-6),
    ]
    ingest_all(
        store,
        make_record(0, accuracies=[make_accuracy(tensors=tensors)]),
        make_record(1, accuracies=[make_accuracy(outcome=outcome)]),
    )


@pytest.mark.parametrize("outcome", [Outcome.INCORRECT, Outcome.CRASHED])
def test_each_tensor_has_a_series_of_each_error(store: Engine, outcome: Outcome) -> None:
    ingest_failing_check(store, outcome)

    errors = {
        (key.tensor, key.metric): series.points[0].value for key, series in read(store).items()
    }

    assert errors == {
        ("out", "rmse_ratio"): 1e-7,
        ("out", "max_abs_error"): 1e-6,
        ("grad_x", "rmse_ratio"): 2e-7,
        ("grad_x", "max_abs_error"): 2e-6,
    }


@pytest.mark.parametrize("outcome", [Outcome.INCORRECT, Outcome.CRASHED])
def test_a_check_that_fails_fails_in_each_of_its_series(store: Engine, outcome: Outcome) -> None:
    ingest_failing_check(store, outcome)

    newest = [series.points[1] for series in read(store).values()]

    assert len(newest) == 4
    assert {(point.value, point.outcome) for point in newest} == {(None, outcome)}


def varied_records() -> list[RunRecord]:
    return [
        make_record(
            0,
            measurements=[make_measurement(), make_measurement(BACKWARD, outcome=Outcome.CRASHED)],
            accuracies=[make_accuracy(), make_accuracy(BACKWARD, outcome=Outcome.TIMED_OUT)],
            static_facts=[
                make_static_facts(),
                make_static_facts(BACKWARD, target="gfx942", spilled_registers=3),
            ],
        ),
        make_record(
            1,
            measurements=[
                make_measurement(utilisation=None),
                make_measurement(BACKWARD, implementation="compile"),
            ],
            accuracies=[
                make_accuracy(BACKWARD, tensors=[make_tensor_error(tensor="grad_x")]),
                make_accuracy(implementation="triton", outcome=Outcome.INCORRECT),
            ],
            static_facts=[
                make_static_facts(outcome=Outcome.COMPILE_ERROR),
                make_static_facts(registers=None, target="x"),
            ],
            environment=make_environment(thread_count=8),
        ),
        make_record(
            2,
            commit=make_commit(2, is_dirty=True),
            measurements=[make_measurement(implementation="dirty")],
        ),
        *make_pair_of_records(3, 4, environment=make_environment(thread_count=2)),
    ]


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"kernel": "swiglu"},
        {"kernel": "none"},
        {"include_dirty": True},
        {"include_pairs": True},
    ],
    ids=str,
)
def test_every_listed_key_has_a_series_with_points(store: Engine, filters: dict[str, Any]) -> None:
    ingest_all(store, *varied_records())
    included = {name: value for name, value in filters.items() if name != "kernel"}

    with Session(store) as session:
        keys = list_series_keys(session, PROJECT, **filters)
        by_metric = [list_series_keys(session, PROJECT, metric=name, **filters) for name in METRICS]
        series = read_series(session, PROJECT, keys, **included)
        some = read_series(session, PROJECT, keys[::3], **included)
        assert read_series(session, PROJECT, [make_series_key(case_id="no/such=1/case/fwd")]) == []

    assert some == series[::3]
    assert (
        keys
        == sorted(keys)
        == [found.key for found in series]
        == sorted(chain.from_iterable(by_metric))
    )
    assert bool(keys) == (filters.get("kernel") != "none")


def test_what_a_launch_costs_the_host_is_a_series_where_it_was_measured(
    store: Engine,
) -> None:
    """Memory is one exact number; the host's time is kept to seven digits.

    What failed has neither.
    """
    blocks = tuple(
        block.model_copy(update={"host_ns": 4_200.3}) for block in make_blocks([10_000.0] * 3)
    )
    peak = 3 * 2**30 + 512
    memory = MemoryUse(peak_allocated_bytes=peak, peak_reserved_bytes=2**32, allocation_count=2)
    for record in (
        make_record(0),
        make_record(1, measurements=[make_measurement(blocks=blocks, memory=memory)]),
        make_record(2, measurements=[make_measurement(outcome=Outcome.CRASHED, memory=memory)]),
    ):
        ingest_record(store, record)
    keys = make_series_key("peak_allocated_bytes"), make_series_key("host_ns")

    with Session(store) as session:
        listed = {key.metric for key in list_series_keys(session, PROJECT)}
        memories, hosts = (read_series(session, PROJECT, keys=[key])[0].points for key in keys)
        trend = read_trend(session, TrendQuestion(PROJECT, keys)).series

    host, failed = hosts
    assert host.value == pytest.approx(4_200.3, rel=1e-7)
    assert (host.low, host.high, host.commit, failed.value) == (
        None,
        None,
        make_commit_ref(1),
        None,
    )
    assert [point.value for point in memories] == [peak, None]
    assert {"host_ns", "peak_allocated_bytes"} <= listed
    assert [[point.value for point in one.points] for one in trend] == [
        [peak, None],
        [host.value, None],
    ]
