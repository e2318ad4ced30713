"""A time of a history that moved because the clock did: seen, and held against no kernel."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.ab.clock import ClockStep, clock_step
from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.ci.history.movement import movements
from roofwatch.db.values import Cause, Regression, RegressionState, Series, Verdict
from tests.builders import make_series_key
from tests.ci.values import SOFTMAX, make_pair, make_point, make_series, only, stepped

BASE_MHZ = 1_980.0


def clocked(values: Sequence[float], clocks_mhz: Sequence[float | None], **key: str) -> Series:
    points = [
        replace(make_point(number, value), sm_clock_mhz=clock)
        for number, (value, clock) in enumerate(zip(values, clocks_mhz, strict=True))
    ]
    return Series(make_series_key(**key), tuple(points))


def stepped_clock(head_mhz: float | None, *, factor: float) -> Series:
    return clocked(stepped(factor=factor), [*[BASE_MHZ] * 8, *[head_mhz] * 8])


def judged(head_mhz: float | None, *, factor: float) -> Regression:
    return only(judge_history([stepped_clock(head_mhz, factor=factor)]))


@pytest.mark.parametrize(
    ("factor", "head_mhz", "verdict"),
    [
        (1.2, 1_650.0, Verdict.INCONCLUSIVE),
        (1 / 1.2, 2_376.0, Verdict.INCONCLUSIVE),
        (1.1, 1_650.0, Verdict.INCONCLUSIVE),  # in cycles it goes the other way
        (1.4, 1_980.0, Verdict.REGRESSED),
        (1.4, 1_650.0, Verdict.REGRESSED),  # of 40 %, 17 % are left
        (1.6, 1_400.0, Verdict.REGRESSED),  # less than a third is left, and that is 13 %
        (1.4, 2_376.0, Verdict.REGRESSED),
        (1.1, 1_970.0, Verdict.REGRESSED),
        (1.2, None, Verdict.REGRESSED),
        (1 / 1.4, 1_980.0, Verdict.IMPROVED),
    ],
)
def test_a_step_counts_if_it_is_there_in_cycles_too(factor: float, head_mhz: float | None, verdict: Verdict) -> None:
    assert judged(head_mhz, factor=factor).verdict is verdict


def test_it_says_which_clocks_and_what_is_left() -> None:
    found = judged(1_650.0, factor=1.2)

    assert found.cause is Cause.CLOCK
    assert found.change_points[0].verdict is Verdict.INCONCLUSIVE
    assert "clock_moved: the SM clock moved from 1980 to 1650 MHz, and in clock cycles the change is" in (
        found.change_points[0].evidence
    )
    assert found.summary.endswith("clock_moved: the clock moved, the cycles did not")


def test_it_calls_nobody_and_is_no_movement_of_the_kernel() -> None:
    clock, code = judged(1_650.0, factor=1.2), judged(BASE_MHZ, factor=1.2)

    assert (clock.is_alert, code.is_alert) == (False, True)
    assert movements([clock], since=None) == []
    assert len(movements([code], since=None)) == 1


def test_it_is_measured_again_last() -> None:
    clock = stepped_clock(1_400.0, factor=1.4)
    code = make_series(stepped(at=5, factor=1.1), case_id=SOFTMAX)

    requests = unconfirmed(judge_history([clock, code]))

    assert [request.case_id for request in requests] == [SOFTMAX, clock.key.case_id]


@pytest.mark.parametrize(
    ("factor", "verdict", "state"),
    [
        (1.2, Verdict.REGRESSED, RegressionState.OPEN),
        (1.0, Verdict.REGRESSED, RegressionState.DISMISSED),
    ],
)
def test_a_pair_knows_better_than_the_clock(factor: float, verdict: Verdict, state: RegressionState) -> None:
    found = only(judge_history([stepped_clock(1_650.0, factor=1.2)], [make_pair(7, 8, factor=factor)]))

    assert (found.verdict, found.state) == (verdict, state)


def test_clocks_of_a_few_runs_decide_nothing() -> None:
    few: list[float | None] = [BASE_MHZ, BASE_MHZ, *[None] * 6, 1_650.0, 1_650.0, *[None] * 6]

    assert only(judge_history([clocked(stepped(factor=1.2), few)])).verdict is Verdict.REGRESSED


def test_a_suite_that_slows_down_with_its_clock_is_one_event_of_the_clock() -> None:
    history = [
        clocked(stepped(factor=1.2, seed=seed), [BASE_MHZ] * 8 + [1_650.0] * 8, case_id=f"{kernel}/n=1/float32/fwd")
        for seed, kernel in enumerate(("rope", "gelu", "softmax", "conv"))
    ]

    event = only(judge_history(history))

    assert (event.kernel, event.verdict, event.cause) == ("*", Verdict.REGRESSED, Cause.CLOCK)
    assert all("clock_moved" in change.evidence for change in event.change_points)


def test_a_drift_with_the_clock_is_the_clock_s() -> None:
    values = [1e6 * math.exp(0.002 * max(0, number - 30)) for number in range(80)]
    noisy = [value * one / 1e6 for value, one in zip(values, stepped(count=80, factor=1.0, noise=0.003), strict=True)]
    clocks = [BASE_MHZ * 1e6 / value for value in values]

    told = [only(judge_history([clocked(noisy, mhz)])) for mhz in (clocks, [BASE_MHZ] * 80)]

    assert all(found.change_points[0].is_gradual for found in told)
    assert [found.verdict for found in told] == [Verdict.INCONCLUSIVE, Verdict.REGRESSED]


@given(log_change=st.floats(-1, 1), clock=st.floats(-1, 1), least=st.floats(0.001, 0.2), scale=st.floats(0.01, 100))
def test_turning_a_step_round_changes_nothing_of_what_the_clock_explains(
    log_change: float, clock: float, least: float, scale: float
) -> None:
    there = ClockStep(BASE_MHZ, BASE_MHZ * math.exp(clock), log_change, log_change + clock)
    back = ClockStep(BASE_MHZ * scale, BASE_MHZ * scale * math.exp(-clock), -log_change, -log_change - clock)

    assert there.is_clock_move(min_relative_change=least) == back.is_clock_move(min_relative_change=least)


def test_runs_without_a_time_or_a_clock_have_no_cycles() -> None:
    runs = [make_point(number, 1e6) for number in range(8)]

    assert clock_step(runs, runs, 0.2) is None
    assert clock_step([], [], 0.2) is None
