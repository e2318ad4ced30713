"""Degraded blocks, and changes of time that the clock explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.history import RegressionState, Series
from roofwatch.model.measurement import Measurement
from roofwatch.model.verdict import Reason, Verdict
from tests.builders import make_series_key
from tests.ci.values import (
    judge_history,
    make_pair,
    make_point,
    make_records,
    make_timed,
    only,
    stepped,
    watched,
)

HOT = ("hw_thermal_slowdown",)


def timed(median_ns: float, **state: Any) -> Measurement:
    return watched(make_timed(median_ns=median_ns), **state)


def judged(base: Measurement, head: Measurement) -> Change[CaseEvidence]:
    (case,) = judge_pull_request(*make_records([base], [head])).cases
    return case


# --- degraded blocks


def test_pairs_with_a_degraded_block_are_left_out() -> None:
    base = timed(1e6, degraded={1: HOT})
    head = timed(1e6, degraded={1: ("foreign_process",), 4: HOT})

    pairs = block_pairs(base, head)

    assert [(pair.position, pair.base, pair.head) for pair in pairs.left_out] == [
        (1, HOT, ("foreign_process",)),
        (4, (), HOT),
    ]
    assert pairs.base == tuple(base.blocks[position] for position in (0, 2, 3, 5))
    assert pairs.head == tuple(head.blocks[position] for position in (0, 2, 3, 5))


# --- clocks


@pytest.mark.parametrize(
    ("factor", "head_mhz", "verdict", "reason"),
    [
        (1.1, 1_800, Verdict.INCONCLUSIVE, Reason.CLOCK_CHANGED),
        (1 / 1.1, 2_178, Verdict.INCONCLUSIVE, Reason.CLOCK_CHANGED),
        (1.4, 1_800, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1.4, 1_980, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1.4, None, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
    ],
)
def test_a_change_in_time_counts_if_it_is_in_cycles_too(
    factor: float, head_mhz: float | None, verdict: Verdict, reason: Reason
) -> None:
    case = judged(timed(1e6), timed(1e6 * factor, sm_clock_mhz=head_mhz))

    assert (case.verdict, case.reason) == (verdict, reason)


BASE_MHZ = 1_980.0


def clocked(values: Sequence[float], clocks_mhz: Sequence[float | None], **key: str) -> Series:
    points = [
        replace(make_point(number, value), sm_clock_mhz=clock)
        for number, (value, clock) in enumerate(zip(values, clocks_mhz, strict=True))
    ]
    return Series(make_series_key(**key), tuple(points))


def stepped_clock(head_mhz: float | None, *, factor: float) -> Series:
    return clocked(stepped(factor=factor), [*[BASE_MHZ] * 8, *[head_mhz] * 8])


@pytest.mark.parametrize(
    ("factor", "head_mhz", "verdict"),
    [
        (1.2, 1_650.0, Verdict.INCONCLUSIVE),
        (1 / 1.2, 2_376.0, Verdict.INCONCLUSIVE),
        (1.1, 1_650.0, Verdict.INCONCLUSIVE),  # in cycles it goes the other way
        (1.4, 1_980.0, Verdict.REGRESSED),
        (1.4, 1_650.0, Verdict.REGRESSED),  # of 40 %, 17 % are left
        (1.6, 1_400.0, Verdict.REGRESSED),  # less than a third is left, and that is 13 %
        (1.2, None, Verdict.REGRESSED),
    ],
)
def test_a_step_counts_if_it_is_in_cycles_too(
    factor: float, head_mhz: float | None, verdict: Verdict
) -> None:
    assert only(judge_history([stepped_clock(head_mhz, factor=factor)])).verdict is verdict


@pytest.mark.parametrize(
    ("factor", "verdict", "state"),
    [
        (1.2, Verdict.REGRESSED, RegressionState.OPEN),
        (1.0, Verdict.REGRESSED, RegressionState.DISMISSED),
    ],
)
def test_a_pair_overrides_the_clock(
    factor: float, verdict: Verdict, state: RegressionState
) -> None:
    found = only(
        judge_history([stepped_clock(1_650.0, factor=1.2)], [make_pair(7, 8, factor=factor)])
    )

    assert (found.verdict, found.state) == (verdict, state)


def test_a_drift_with_the_clock_is_inconclusive() -> None:
    values = [1e6 * math.exp(0.002 * max(0, number - 30)) for number in range(80)]
    noisy = [
        value * one / 1e6
        for value, one in zip(values, stepped(count=80, factor=1.0, noise=0.003), strict=True)
    ]
    clocks = [BASE_MHZ * 1e6 / value for value in values]

    found = [only(judge_history([clocked(noisy, mhz)])) for mhz in (clocks, [BASE_MHZ] * 80)]

    assert all(one.change_points[0].is_gradual for one in found)
    assert [one.verdict for one in found] == [Verdict.INCONCLUSIVE, Verdict.REGRESSED]
