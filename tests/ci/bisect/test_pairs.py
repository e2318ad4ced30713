"""What pairs of records say about a commit, and what to bisect for a regression."""

import math
from dataclasses import replace

import numpy as np
import pytest

from roofwatch.ci.bisect.pairs import between_levels, range_of, read_pair, series_to_bisect, step_size
from roofwatch.collector.record.machine import DeviceState, Outcome
from roofwatch.collector.record.measurement import Timer
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.values import Series
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_accuracy,
    make_blocks,
    make_change_point,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.ci.values import make_point

RNG = np.random.default_rng(3)


def pairs_around(level: float, count: int = 8) -> list[float]:
    return [float(each) for each in RNG.normal(level, 0.005, size=count)]


def test_the_size_of_the_step_is_taken_from_all_commits_that_have_it() -> None:
    log_ratios = [pairs_around(0.0), pairs_around(np.log(1.05)), [], pairs_around(np.log(1.05))]

    found = step_size(log_ratios, 1)

    assert found.block_count == 16
    assert found.relative_change == pytest.approx(0.05, abs=0.005)
    low, high = found.relative_interval
    assert low < 0.05 < high


def test_only_a_commit_at_neither_level_is_found() -> None:
    step = float(np.log(1.2))
    log_ratios = [pairs_around(0.0), pairs_around(step / 2), pairs_around(step), [0.1]]

    assert between_levels(log_ratios, step) == [1]
    assert between_levels([pairs_around(0.0) for _ in range(20)] + [pairs_around(0.1) for _ in range(20)], 0.1) == []


def test_a_throttled_pair_of_blocks_gives_no_ratio() -> None:
    blocks = make_blocks([100.0, 200.0, 100.0])
    throttled = blocks[1].model_copy(update={"device_state": DeviceState(reading_count=3, degraded_by=("thermal",))})
    good = make_record(0, measurements=[make_measurement(blocks=make_blocks([100.0, 200.0, 50.0]))])
    commit = make_record(1, measurements=[make_measurement(blocks=(blocks[0], throttled, blocks[2]))])

    found = read_pair(good, commit, CASE_ID, "torch")

    assert found.log_ratios == pytest.approx([0.0, math.log(2.0)], abs=1e-3)
    assert (found.block_count, found.error) == (3, "")


@pytest.mark.parametrize(
    ("commit", "implementation", "error"),
    [
        (
            make_record(1, accuracies=[make_accuracy(outcome=Outcome.INCORRECT, message="off by 3")]),
            "torch",
            "off by 3",
        ),
        (make_record(1), "triton", "was not measured"),
        (
            make_record(1, measurements=[make_measurement(timer=Timer.CUDA_GRAPH)]),
            "torch",
            "cupti and cuda_graph",
        ),
    ],
)
def test_a_commit_that_cannot_be_compared_has_a_reason(commit: RunRecord, implementation: str, error: str) -> None:
    good = make_record(0, measurements=[make_measurement(timer=Timer.CUPTI)])

    found = read_pair(good, commit, CASE_ID, implementation)

    assert found.log_ratios == ()
    assert error in found.error


def test_the_largest_step_of_a_time_is_bisected_between_its_commits() -> None:
    little = make_change_point(5, after=11_000.0, series=make_series_key(implementation="torch"))
    most = make_change_point(5, after=15_000.0, series=make_series_key(implementation="triton"))
    static = make_change_point(5, after=99_000.0, series=make_series_key("registers", implementation="triton"))
    regression = make_regression(5, change_points=(little, most, static))

    point = series_to_bisect(regression)

    assert point == most
    commit_range = range_of(PROJECT, point, [])
    assert commit_range.implementation == "triton"
    assert (commit_range.good_sha, commit_range.bad_sha) == (sha_of(4), sha_of(5))
    assert commit_range.runner_class == most.series.runner_class


def test_with_the_series_the_range_includes_two_more_measured_commits() -> None:
    points = tuple(make_point(number, 10_000.0, measured_at=NOON) for number in (0, 1, 3, 4, 5, 8, 9, 10))
    failed = replace(points[2], value=None, outcome=Outcome.CRASHED)
    series = Series(make_series_key(), (*points[:2], failed, *points[3:]))

    commit_range = range_of(PROJECT, make_change_point(5), [series])

    assert (commit_range.good_sha, commit_range.bad_sha) == (sha_of(0), sha_of(9))


def test_without_a_step_of_a_time_there_is_nothing_to_bisect() -> None:
    static = make_change_point(5, series=make_series_key("registers"))
    drift = make_change_point(5, is_gradual=True)
    broken = make_change_point(5, after=None)
    regression = make_regression(5, change_points=(static, drift, broken))

    assert series_to_bisect(regression) is None
