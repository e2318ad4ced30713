"""Times by different timers and cache states in one history."""

from __future__ import annotations

import pytest

from roofwatch.ci.history.history import PairRequest, judge_history, unconfirmed
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import Cause, RegressionState, Series, Verdict
from tests.builders import CASE_ID, make_commit_ref, make_series_key
from tests.ci.values import (
    RUNNER_CLASS,
    SOFTMAX,
    SWIGLU,
    make_pair,
    make_point,
    make_series,
    make_static_series,
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


def test_the_largest_step_is_measured_again_first_whichever_way_it_goes() -> None:
    slower = make_series(stepped(at=8, factor=1.3))
    faster = make_series(stepped(at=5, factor=1 / 3), case_id=SOFTMAX)

    requests = unconfirmed(judge_history([slower, faster]))

    assert [request.case_id for request in requests] == [SOFTMAX, CASE_ID]


@pytest.mark.parametrize("seed", range(3))
def test_a_history_turned_upside_down_improves_where_it_regressed(seed: int) -> None:
    """Improvements are found with the same care: at the same commits, as surely, by the same factors."""
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


def test_several_runs_of_a_commit_count_once_by_their_median() -> None:
    values = stepped(factor=1.0, count=10)
    points = [make_point(number, value) for number, value in enumerate(values)]
    points += [make_point(5, 9e6, run=1), make_point(5, values[5] * 1.01, run=2)]

    assert judge_history([Series(make_series_key(), tuple(points))]) == []


# --- times measured again


def test_a_pair_that_agrees_confirms_a_step_and_blames_the_code() -> None:
    found = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.4)]))

    assert found.is_confirmed
    assert found.state is RegressionState.OPEN
    assert found.cause is Cause.CODE
    assert "measured again side by side: +4" in found.change_points[0].evidence


def test_a_pair_that_says_unchanged_dismisses_a_step() -> None:
    found = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.0)]))

    assert found.state is RegressionState.DISMISSED
    assert not found.is_confirmed


@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
def test_a_pair_too_noisy_to_say_leaves_a_step_open_and_unconfirmed(factor: float) -> None:
    pair = make_pair(7, 8, factor=1.0, noise=0.4)

    found = only(judge_history([make_series(stepped(factor=factor))], [pair]))

    assert found.state is RegressionState.OPEN
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
def test_a_pair_of_anything_else_says_nothing(pair: object) -> None:
    found = only(judge_history([make_series(stepped())], [pair]))  # type: ignore[list-item]  # parametrised

    assert not found.is_confirmed
    assert found.state is RegressionState.OPEN


def off_by_one() -> list[float]:
    """The step is at commit 8; noise has lifted commit 7 to just above halfway, so that it is taken for the first."""
    values = stepped(at=8, factor=1.4, noise=0.03, seed=1)
    values[7] = 1e6 * 1.4**0.56
    return values


def test_a_step_that_is_not_where_it_seemed_is_looked_for_at_its_neighbour() -> None:
    history = [make_series(off_by_one())]
    seen = only(judge_history(history))
    assert seen.commit == make_commit_ref(7)

    refuted = only(judge_history(history, [make_pair(6, 7)]))
    assert refuted.state is RegressionState.OPEN
    assert [request.head for request in unconfirmed([refuted])] == [make_commit_ref(8)]

    moved = only(judge_history(history, [make_pair(6, 7), make_pair(7, 8, factor=1.4)]))
    assert moved.is_confirmed
    assert moved.commit == make_commit_ref(8)
    assert moved.change_points[0].previous_commit == make_commit_ref(7)


def test_what_is_not_confirmed_is_asked_for() -> None:
    found = judge_history([make_series(stepped()), make_series(stepped(seed=1), implementation="compile")])

    assert set(unconfirmed(found)) == {
        PairRequest(make_commit_ref(7), make_commit_ref(8), CASE_ID, implementation, RUNNER_CLASS)
        for implementation in ("eager", "compile")
    }


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
def test_a_failure_that_the_machine_can_cause_is_believed_when_two_runs_agree(outcome: Outcome) -> None:
    once = only(judge_history([make_series([1e6, 1e6, outcome])]))
    twice = only(judge_history([make_series([1e6, 1e6, outcome, outcome])]))

    assert not once.is_confirmed
    assert unconfirmed([once]) == []  # no pair can confirm a failure; another run can
    assert twice.is_confirmed


def test_a_failure_does_not_hide_a_step_of_the_times_around_it() -> None:
    values: list[float | Outcome | None] = [*stepped(at=8, factor=1.4)]
    values[4] = Outcome.INCORRECT

    found = judge_history([make_series(values)])

    assert (make_commit_ref(8), Verdict.REGRESSED) in [(one.commit, one.verdict) for one in found]


# --- everything together


def test_one_cause_at_one_commit_is_told_once_per_kernel() -> None:
    history = [
        make_series(stepped(seed=1)),
        make_series(stepped(seed=2), implementation="compile"),
        *[make_series(stepped(seed=seed, factor=1.0), case_id=SOFTMAX, implementation=f"i{seed}") for seed in range(4)],
        make_series([1e-7] * 8 + [Outcome.INCORRECT] * 8, "rmse_ratio"),
    ]

    found = only(judge_history(history))

    assert len(found.change_points) == 3
    assert found.change_points[0].after is None  # a wrong result is graver than a slow one
    assert found.is_confirmed


def test_no_two_regressions_share_a_key() -> None:
    history = [
        make_series(stepped(seed=seed), case_id=case_id, runner_class=runner_class, implementation=implementation)
        for seed, (case_id, runner_class, implementation) in enumerate(
            (case_id, runner_class, implementation)
            for case_id in (CASE_ID, SOFTMAX, SWIGLU)
            for runner_class in ("one machine", "another machine")
            for implementation in ("eager", "compile")
        )
    ] + [make_static_series("local_bytes", [0] * 8 + [64] * 8, "a" * 8 + "b" * 8)]

    keys = [regression.key for regression in judge_history(history)]

    assert len(keys) == len(set(keys)) == 2
