"""Two records of a pair, as a bisection reads them."""

import math

import pytest

from roofwatch.ci.bisect.measurements import read_pair
from roofwatch.collector.record.machine import DeviceState, Outcome
from roofwatch.collector.record.measurement import Timer
from tests.builders import CASE_ID, make_accuracy, make_blocks, make_measurement, make_record


def test_each_pair_of_blocks_gives_the_logarithm_of_its_ratio() -> None:
    good = make_record(0, measurements=[make_measurement(blocks=make_blocks([100.0, 200.0]))])
    commit = make_record(1, measurements=[make_measurement(blocks=make_blocks([110.0, 200.0]))])

    reading = read_pair(good, commit, CASE_ID, "eager")

    assert reading.log_ratios == pytest.approx([math.log(1.1), 0.0], abs=1e-3)
    assert reading.block_count == 2
    assert reading.trouble == ""


def test_a_pair_that_the_device_was_held_back_in_gives_none() -> None:
    blocks = make_blocks([100.0, 200.0, 100.0])
    held = blocks[1].model_copy(update={"device_state": DeviceState(reading_count=3, degraded_by=("thermal",))})
    good = make_record(0, measurements=[make_measurement(blocks=blocks)])
    commit = make_record(1, measurements=[make_measurement(blocks=(blocks[0], held, blocks[2]))])

    reading = read_pair(good, commit, CASE_ID, "eager")

    assert len(reading.log_ratios) == 2
    assert reading.block_count == 3


def test_a_commit_whose_result_is_wrong_cannot_be_measured_and_the_reason_is_said() -> None:
    good = make_record(0)
    wrong = make_accuracy(outcome=Outcome.INCORRECT, message="off by 3")
    commit = make_record(1, accuracies=[wrong])

    reading = read_pair(good, commit, CASE_ID, "eager")

    assert reading.log_ratios == ()
    assert reading.trouble == "incorrect: off by 3"


def test_a_commit_that_lacks_the_series_cannot_be_measured() -> None:
    good = make_record(0)

    assert "is not there" in read_pair(good, good, CASE_ID, "triton").trouble


def test_times_of_different_timers_do_not_compare() -> None:
    good = make_record(0, measurements=[make_measurement(timer=Timer.CUPTI)])
    commit = make_record(1, measurements=[make_measurement(timer=Timer.CUDA_GRAPH)])

    assert "the good end by cupti" in read_pair(good, commit, CASE_ID, "eager").trouble
