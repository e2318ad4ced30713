"""Triage follows a regression through later analyses."""

from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.auth.access import list_entries
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


def analyse(engine: Engine, *regressions: Regression) -> list[Triage]:
    """Triage of each regression after an analysis that found these."""
    replace_regressions(engine, PROJECT, regressions)
    with Session(engine) as session:
        decided = {one.regression.key: one.triage for one in list_triaged(session, PROJECT)}
    return [decided[one.key] for one in regressions]


def decide(engine: Engine, regression_id: UUID, state: TriageState) -> None:
    set_triage(engine, PROJECT, regression_id, state, person="A Person", reason="a reason", actor="test")


def trail(engine: Engine, regression_id: UUID) -> list[tuple[str | None, str | None, str]]:
    """From, to and by whom, oldest first."""
    with Session(engine) as session:
        entries = list_entries(session, PROJECT, subject=str(regression_id))
    return [(entry.before, entry.after, entry.actor) for entry in reversed(entries)]


def test_moved_regression_keeps_its_triage(history: Engine) -> None:
    (one,) = analyse(history, make_regression(3))
    assert one == Triage(regression_id(make_regression(3)), TriageState.NEW)
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

    (again,) = analyse(history, moved)

    assert (again.regression_id, again.state) == (one.regression_id, TriageState.EXPECTED)


def test_other_series_or_commits_are_another_regression(history: Engine) -> None:
    (one,) = analyse(history, make_regression(3))
    other = make_series_key(implementation="other")

    (elsewhere,) = analyse(history, make_regression(6))
    (of_others,) = analyse(history, make_regression(3, kernel="x", change_points=(make_change_point(3, series=other),)))

    assert len({one.regression_id, elsewhere.regression_id, of_others.regression_id}) == 3


def test_recovered_regression_is_fixed_until_the_recovery_is_lost(history: Engine) -> None:
    (one,) = analyse(history, make_regression(1))
    (fixed,) = analyse(history, make_regression(1, recovered_at=make_commit_ref(5)))
    (again,) = analyse(history, make_regression(1))

    assert (fixed.state, fixed.person) == (TriageState.FIXED, "roofwatch")
    assert fixed.reason == f"recovered at {make_commit_ref(5).short_sha} (Change number 5)"
    assert again.state is TriageState.NEW
    assert trail(history, one.regression_id) == [("new", "fixed", "roofwatch"), ("fixed", "new", "roofwatch")]


def test_fixed_regression_is_reopened_after_three_commits(history: Engine) -> None:
    (one,) = analyse(history, make_regression(1))
    decide(history, one.regression_id, TriageState.FIXED)

    states = []
    for number in (8, 9, 10):
        ingest_record(history, make_record(number))
        states += [triage.state for triage in analyse(history, make_regression(1))]

    assert states == [TriageState.FIXED, TriageState.FIXED, TriageState.NEW]
    assert trail(history, one.regression_id)[-1] == ("fixed", "new", "roofwatch")


@pytest.mark.parametrize("state", [*TriageState][1:])
def test_only_a_fixed_regression_is_reopened_when_found_again(history: Engine, state: TriageState) -> None:
    (one,) = analyse(history, make_regression(1))
    decide(history, one.regression_id, state)
    analyse(history)

    (again,) = analyse(history, make_regression(1))

    expected = TriageState.NEW if state is TriageState.FIXED else state
    assert (again.regression_id, again.state) == (one.regression_id, expected)


def test_triage_of_an_unknown_regression_is_refused(history: Engine) -> None:
    with pytest.raises(StoreError, match="not in project 'example/project'"):
        decide(history, UUID(int=7), TriageState.FIXED)
