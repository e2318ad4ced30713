"""Regressions of a history: times, pairs, outcomes, stored results and planted causes."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.ci.history import analyse
from roofwatch.ci.history.analyse import JUDGED_METRICS, analyse_project
from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.ci.history.history import unconfirmed
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.columns import list_case_names
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.case_analyses import list_due
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.history import Cause, RegressionState
from roofwatch.model.machine import DeviceState, Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.verdict import Reason, Verdict
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_blocks,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_static_facts,
)
from tests.ci.planted import plant, score
from tests.ci.values import SOFTMAX, SWIGLU, judge_history, make_pair, make_series, only, stepped
from tests.databases import ingest_all

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


@pytest.mark.parametrize(
    ("old_count", "new_count", "is_alert"),
    [
        (80, 4, False),
        (80, 12, True),
        (80, 20, True),
        (12, 30, False),
        (20, 20, True),
    ],
)
def test_a_step_that_no_pair_confirmed_alerts_once_it_is_no_chance(
    old_count: int, new_count: int, is_alert: bool
) -> None:
    found = only(
        judge_history([make_series(stepped(count=old_count + new_count, at=old_count, factor=1.3))])
    )

    assert (found.commit, found.is_alert) == (make_commit_ref(old_count), is_alert)


@pytest.mark.parametrize("seed", range(3))
def test_improvements_are_found_like_regressions(seed: int) -> None:
    values = [
        *stepped(count=40, at=20, factor=1.15, noise=0.02, seed=seed),
        *stepped(count=20, factor=1.0, seed=seed),
    ]

    slower = judge_history([make_series(values)])
    faster = judge_history([make_series([1e12 / value for value in values])])

    flipped = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.IMPROVED: Verdict.REGRESSED}
    assert len(slower) >= 2
    assert {(one.commit, flipped[one.verdict], one.is_alert) for one in faster} == {
        (one.commit, one.verdict, one.is_alert) for one in slower
    }
    assert sorted(
        one.typical_change + 1 for one in slower if one.typical_change is not None
    ) == pytest.approx(
        sorted(1 / (one.typical_change + 1) for one in faster if one.typical_change is not None),
        rel=1e-4,
    )


# --- times measured again


def test_a_confirming_pair_suspects_the_code() -> None:
    confirmed = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.4)]))

    assert confirmed.is_confirmed
    assert confirmed.state is RegressionState.OPEN
    assert confirmed.cause is Cause.CODE
    assert "measured again side by side: +4" in confirmed.change_points[0].evidence


def test_a_pair_of_the_same_code_neither_confirms_a_step_nor_blames_the_commit() -> None:
    same_code = make_pair(7, 8, factor=1.4, is_same_code=True)

    found = only(judge_history([make_series(stepped(noise=0.001))], [same_code]))

    assert not found.is_confirmed
    assert found.cause is Cause.RUNNER
    assert Cause.CODE not in {suspect.cause for suspect in found.suspects}
    assert "the same code" in found.change_points[0].evidence


def test_other_pairs_of_the_same_commits_still_confirm_a_step() -> None:
    unknown_code = make_pair(7, 8, factor=1.4)
    same_code = make_pair(7, 8, factor=1.4, is_same_code=True, pair_id="another")

    confirmed = only(judge_history([make_series(stepped())], [same_code, unknown_code]))

    assert confirmed.is_confirmed


def test_an_unchanged_pair_dismisses_a_step() -> None:
    refuted = only(judge_history([make_series(stepped())], [make_pair(7, 8, factor=1.0)]))

    assert not refuted.is_confirmed
    assert refuted.state is RegressionState.DISMISSED


@pytest.mark.parametrize(
    "pair",
    [
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
    history = make_series(
        [1e-7, 1e-7, Outcome.INCORRECT, Outcome.INCORRECT], "rmse_ratio", tensor="grad_x"
    )

    found = only(judge_history([history]))

    assert found.commit == make_commit_ref(2)
    assert found.verdict is Verdict.REGRESSED
    assert found.is_confirmed
    assert found.cause is Cause.CODE
    assert found.change_points[0].before == 1e-7
    assert found.change_points[0].after is None
    assert "accuracy was ok, is incorrect" in found.summary


def test_the_correction_of_a_failure_is_a_finding_of_its_own() -> None:
    values = stepped(factor=1.0, count=8)
    history: list[float | Outcome | None] = [*values[:3], Outcome.COMPILE_ERROR, *values[4:]]

    found = judge_history([make_series(history)])

    assert [(one.commit, one.verdict) for one in found] == [
        (make_commit_ref(3), Verdict.REGRESSED),
        (make_commit_ref(4), Verdict.IMPROVED),
    ]


@pytest.mark.parametrize(
    "outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID]
)
def test_a_machine_dependent_failure_needs_two_runs(outcome: Outcome) -> None:
    once = only(judge_history([make_series([1e6, 1e6, outcome])]))
    twice = only(judge_history([make_series([1e6, 1e6, outcome, outcome])]))

    assert not once.is_confirmed
    assert unconfirmed([once]) == []  # no pair can confirm a failure; another run can
    assert twice.is_confirmed


COMMITS = 16


def timed(case_id: str, median_ns: float, *, sm_clock_mhz: float | None = None) -> Measurement:
    state = DeviceState(reading_count=1, sm_clock_mhz=sm_clock_mhz)
    blocks = tuple(
        block.model_copy(update={"device_state": state})
        for block in make_blocks([median_ns, median_ns])
    )
    return make_measurement(case_id, blocks=blocks)


@pytest.fixture
def history(store: Engine) -> Engine:
    """A kernel that steps with its clock, one that fails once, an unchanged one, and one that
    spills.
    """
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
            accuracies=[
                make_accuracy(SWIGLU, outcome=Outcome.INCORRECT if number == 5 else Outcome.OK)
            ],
            static_facts=[
                make_static_facts(
                    "rope/n=1/float32/fwd", code=str(number >= 9), local_bytes=48 * (number >= 9)
                )
            ],
            environment=make_environment(device_kind="cuda", driver_version="570.86"),
        )
        ingest_record(store, record)
    ingest_all(store, *make_pair_of_records(3, 4))
    return store


def test_analysis_in_parts_stores_the_result_of_one_analysis(
    history: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(history) as session:
        keys = [
            key
            for key in list_series_keys(session, PROJECT, include_pairs=True)
            if key.metric in JUDGED_METRICS
        ]
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
    (slower,) = (one for one in in_parts if one.kernel == "rms_norm")
    assert slower.cause is Cause.CLOCK
    assert slower.change_points[0].reason is Reason.CLOCK_CHANGED
    assert slower.summary.endswith("; the clock changed, the cycles did not")
    assert "in clock cycles the change is" in slower.suspects[0].sentence
    with Session(history) as session:
        stored = [one.regression for one in list_triaged(session, PROJECT)]
    assert sorted(stored, key=lambda one: one.key) == sorted(in_parts, key=lambda one: one.key)


def test_analysis_of_new_values_alone_equals_the_full_one(history: Engine) -> None:
    analyse_project(history, PROJECT)
    for number in (40, 41):
        record = make_record(number, measurements=[timed(SOFTMAX, 2e4), timed(SWIGLU, 1e4)])
        ingest_record(history, record)
    with Session(history) as session:
        cases = list_case_names(session, PROJECT)
        due = list_due(session, PROJECT, analyse.METHOD, list(cases))

    of_new_values = analyse_project(history, PROJECT)

    assert {cases[row_id] for row_id in due.case_ids} == {SOFTMAX, SWIGLU}
    assert analyse.find_outdated_cases(history, PROJECT) == []
    assert of_new_values == analyse_project(history, PROJECT, is_full=True)


def test_a_stored_analysis_that_differs_is_found(history: Engine) -> None:
    analyse_project(history, PROJECT)
    with history.begin() as connection:
        connection.execute(text("UPDATE case_analysis SET findings = '[]'"))

    differing = analyse.find_outdated_cases(history, PROJECT)

    assert "rms_norm/n=1/float32/fwd" in differing
    assert SOFTMAX not in differing


def test_documents_of_another_version_are_replaced(history: Engine) -> None:
    expected = analyse_project(history, PROJECT)
    with history.begin() as connection:
        connection.execute(text("UPDATE case_analysis SET findings = '[{\"a\": 1}]'"))

    assert analyse_project(history, PROJECT) == expected


@pytest.mark.parametrize("seed", [2, 3])
def test_each_planted_cause_is_one_regression(seed: int) -> None:
    # 200 series over 200 commits with nine causes; bench/error_rates.py does the same at 500 by 300
    # by twelve
    history = plant(seed, shape_count=2, commit_count=200, single_count=3, family_count=5)

    found = judge_history(history.series)

    result = score(history, [one for one in found if one.is_alert])
    too_early = sum(
        cause.commit < 20 for cause in history.causes
    )  # a step there does not alert without a pair
    assert result.found >= result.cause_count - too_early - 1
    assert len(result.extra) <= 1, [one.summary for one in result.extra]
    (event,) = [one for one in found if one.kernel == ALL_KERNELS]
    assert event.commit.first_parent_count - 1 == next(
        cause.commit for cause in history.causes if cause.is_driver
    )
    assert event.cause is Cause.DRIVER
    assert "driver 570.86 → 570.124" in event.suspects[0].sentence
