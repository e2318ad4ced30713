"""Decisions follow a regression from judgement to judgement, and change by themselves when it comes back."""

from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.auth.audit import list_entries
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.regressions.triage import regression_id, set_triage
from roofwatch.db.values import Regression
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit_ref,
    make_record,
    make_regression,
    make_series_key,
)


@pytest.fixture
def history(store: Engine) -> Engine:
    for number in range(8):
        ingest_record(store, make_record(number))
    return store


def judge(engine: Engine, *regressions: Regression) -> list[Triage]:
    """How each stands after a judgement that found these."""
    replace_regressions(engine, PROJECT, regressions)
    with Session(engine) as session:
        decided = {one.key: triage for one, triage in list_triaged(session, PROJECT)}
    return [decided[one.key] for one in regressions]


def decide(engine: Engine, regression_id: UUID, state: TriageState) -> None:
    set_triage(engine, PROJECT, regression_id, state, person="A Person", reason="a reason", actor="test")


def trail(engine: Engine, regression_id: UUID) -> list[tuple[str | None, str | None, str]]:
    """From, to and by whom, oldest first."""
    with Session(engine) as session:
        entries = list_entries(session, PROJECT, subject=str(regression_id))
    return [(entry.before, entry.after, entry.actor) for entry in reversed(entries)]


def test_every_regression_that_is_found_is_new_under_an_id_that_its_name_gives(history: Engine) -> None:
    (one,) = judge(history, make_regression(2))

    assert one == Triage(regression_id(make_regression(2)), TriageState.NEW)


def test_a_regression_that_is_seen_a_commit_later_and_on_another_kernel_keeps_its_decision(history: Engine) -> None:
    (one,) = judge(history, make_regression(3))
    decide(history, one.regression_id, TriageState.EXPECTED)
    other = make_series_key(case_id="rms_norm/n_rows=64,n_cols=128/float32/fwd", implementation="other")
    moved = make_regression(
        4,
        kernel="rms_norm + softmax",
        change_points=(
            make_change_point(4, previous_commit=make_commit_ref(2)),
            make_change_point(4, previous_commit=make_commit_ref(2), series=other),
        ),
    )

    (again,) = judge(history, moved)

    assert (again.regression_id, again.state) == (one.regression_id, TriageState.EXPECTED)


def test_a_regression_of_other_series_or_of_another_place_is_another(history: Engine) -> None:
    (one,) = judge(history, make_regression(3))
    other = make_series_key(implementation="other")

    (elsewhere,) = judge(history, make_regression(6))
    (of_others,) = judge(history, make_regression(3, kernel="x", change_points=(make_change_point(3, series=other),)))

    assert len({one.regression_id, elsewhere.regression_id, of_others.regression_id}) == 3


def test_one_decision_is_never_that_of_two_regressions(history: Engine) -> None:
    (one,) = judge(history, make_regression(3))
    split = [make_regression(3, kernel="a"), make_regression(3, kernel="b")]

    ids = [triage.regression_id for triage in judge(history, *split)]

    assert ids[0] == one.regression_id
    assert len(set(ids)) == 2


def test_what_recovered_is_fixed_by_itself_with_the_commit_that_did_it(history: Engine) -> None:
    (one,) = judge(history, make_regression(1))
    (fixed,) = judge(history, make_regression(1, recovered_at=make_commit_ref(5)))

    assert (fixed.state, fixed.person) == (TriageState.FIXED, "roofwatch")
    assert fixed.reason == f"recovered at {make_commit_ref(5).short_sha} (Change number 5)"
    assert trail(history, one.regression_id) == [("new", "fixed", "roofwatch")]


def test_what_was_fixed_by_itself_and_has_not_recovered_after_all_is_new_again(history: Engine) -> None:
    (one,) = judge(history, make_regression(1, recovered_at=make_commit_ref(5)))
    (again,) = judge(history, make_regression(1))

    assert again.state is TriageState.NEW
    assert trail(history, one.regression_id) == [("new", "fixed", "roofwatch"), ("fixed", "new", "roofwatch")]


def test_what_somebody_fixed_is_new_again_once_three_later_commits_still_show_it(history: Engine) -> None:
    (one,) = judge(history, make_regression(1))
    decide(history, one.regression_id, TriageState.FIXED)

    states = []
    for number in (8, 9, 10):
        ingest_record(history, make_record(number))
        states += [triage.state for triage in judge(history, make_regression(1))]

    assert states == [TriageState.FIXED, TriageState.FIXED, TriageState.NEW]
    assert trail(history, one.regression_id)[-1] == ("fixed", "new", "roofwatch")


def test_what_was_fixed_and_gone_and_is_found_again_is_new_again(history: Engine) -> None:
    (one,) = judge(history, make_regression(1))
    decide(history, one.regression_id, TriageState.FIXED)
    judge(history)

    (again,) = judge(history, make_regression(1))

    assert (again.regression_id, again.state) == (one.regression_id, TriageState.NEW)


@pytest.mark.parametrize("state", [TriageState.EXPECTED, TriageState.INVALID, TriageState.ACKNOWLEDGED])
def test_what_is_expected_or_none_or_taken_up_stays_so_when_it_is_found_again(
    history: Engine, state: TriageState
) -> None:
    (one,) = judge(history, make_regression(1))
    decide(history, one.regression_id, state)
    judge(history)

    assert judge(history, make_regression(1))[0].state is state


def test_a_decision_about_what_was_never_found_is_refused(history: Engine) -> None:
    with pytest.raises(StoreError, match="not in project 'example/project'"):
        decide(history, UUID(int=7), TriageState.FIXED)
