"""Regressions of a history: times, pairs, outcomes."""

from __future__ import annotations

import pytest

from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import Cause, RegressionState, Verdict
from tests.builders import make_commit_ref
from tests.ci.values import (
    SOFTMAX,
    make_pair,
    make_series,
    only,
    stepped,
)

# --- times


def test_a_step_of_the_median_time_is_a_regression_of_its_commit() -> None:
    found = only(judge_history([make_series(stepped(at=8, factor=1.4))]))

    assert found.commit == make_commit_ref(8)
    assert found.kernel == "rms_norm"
    assert found.verdict is Verdict.REGRESSED
    assert found.state is RegressionState.OPEN
    assert not found.is_confirmed
    assert found.cause is Cause.UNKNOWN
    (change,) = found.change_points
    assert change.previous_commit == make_commit_ref(7)
    assert change.relative_change == pytest.approx(0.4, abs=0.03)
    assert "8 commits before and 8 after" in change.evidence


@pytest.mark.parametrize("seed", range(3))
def test_improvements_are_found_like_regressions(seed: int) -> None:
    values = [*stepped(count=40, at=20, factor=1.15, noise=0.02, seed=seed), *stepped(count=20, factor=1.0, seed=seed)]

    slower = judge_history([make_series(values)])
    faster = judge_history([make_series([1e12 / value for value in values])])

    flipped = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.IMPROVED: Verdict.REGRESSED}
    assert len(slower) >= 2
    assert {(one.commit, flipped[one.verdict], one.is_alert) for one in faster} == {
        (one.commit, one.verdict, one.is_alert) for one in slower
    }
    assert sorted(one.typical_change + 1 for one in slower if one.typical_change is not None) == pytest.approx(
        sorted(1 / (one.typical_change + 1) for one in faster if one.typical_change is not None), rel=1e-4
    )


# --- times measured again


def test_a_confirming_pair_suspects_the_code() -> None:
    found = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.4)]))

    assert found.is_confirmed
    assert found.state is RegressionState.OPEN
    assert found.cause is Cause.CODE
    assert "measured again side by side: +4" in found.change_points[0].evidence


def test_an_unchanged_pair_dismisses_a_step() -> None:
    found = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.0)]))

    assert found.state is RegressionState.DISMISSED
    assert not found.is_confirmed


@pytest.mark.parametrize(
    "pair",
    [
        make_pair(6, 8, factor=1.4),
        make_pair(8, 7, factor=1.4),
        make_pair(7, 8, factor=1.4, runner_class="another machine"),
        make_pair(7, 8, factor=1.4, implementation="compile"),
        make_pair(7, 8, factor=1.4, case_id=SOFTMAX),
    ],
)
def test_other_pairs_are_ignored(pair: object) -> None:
    found = only(judge_history([make_series(stepped())], [pair]))  # type: ignore[list-item]  # parametrised

    assert not found.is_confirmed
    assert found.state is RegressionState.OPEN


def off_by_one() -> list[float]:
    """A step at commit 8, with commit 7 just above halfway."""
    values = stepped(at=8, factor=1.4, noise=0.03, seed=1)
    values[7] = 1e6 * 1.4**0.56
    return values


def test_a_refuted_step_moves_to_its_neighbour() -> None:
    history = [make_series(off_by_one())]
    seen = only(judge_history(history))
    assert seen.commit == make_commit_ref(7)

    refuted = only(judge_history(history, [make_pair(6, 7)]))
    assert refuted.state is RegressionState.OPEN
    assert [step.commit for step in unconfirmed([refuted])] == [make_commit_ref(8)]

    moved = only(judge_history(history, [make_pair(6, 7), make_pair(7, 8, factor=1.4)]))
    assert moved.is_confirmed
    assert moved.commit == make_commit_ref(8)
    assert moved.change_points[0].previous_commit == make_commit_ref(7)


# --- outcomes


def test_a_wrong_result_after_right_ones_is_a_confirmed_regression() -> None:
    history = make_series([1e-7, 1e-7, Outcome.INCORRECT, Outcome.INCORRECT], "rmse_ratio", tensor="grad_x")

    found = only(judge_history([history]))

    assert found.commit == make_commit_ref(2)
    assert found.verdict is Verdict.REGRESSED
    assert found.is_confirmed
    assert found.cause is Cause.CODE
    assert found.change_points[0].before == 1e-7
    assert found.change_points[0].after is None
    assert "accuracy was ok, is incorrect" in found.summary


def test_a_failure_and_its_correction_are_two_findings() -> None:
    values = stepped(factor=1.0, count=8)
    history: list[float | Outcome | None] = [*values[:3], Outcome.COMPILE_ERROR, *values[4:]]

    found = judge_history([make_series(history)])

    assert [(one.commit, one.verdict) for one in found] == [
        (make_commit_ref(3), Verdict.REGRESSED),
        (make_commit_ref(4), Verdict.IMPROVED),
    ]


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID])
def test_a_machine_dependent_failure_needs_two_runs(outcome: Outcome) -> None:
    once = only(judge_history([make_series([1e6, 1e6, outcome])]))
    twice = only(judge_history([make_series([1e6, 1e6, outcome, outcome])]))

    assert not once.is_confirmed
    assert unconfirmed([once]) == []  # no pair can confirm a failure; another run can
    assert twice.is_confirmed
