"""Triage follows a regression through later analyses, which leave out commits that left their
branch.
"""

from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.access import list_entries
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.branch_line import BranchCommit, find_unreachable
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Regression
from roofwatch.model.triage import Triage, TriageState
from tests.builders import (
    NOON,
    PROJECT,
    make_change_point,
    make_commit_ref,
    make_record,
    make_regression,
    make_series_key,
)
from tests.databases import set_triage


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
    set_triage(
        engine, PROJECT, regression_id, state, person="A Person", reason="a reason", actor="test"
    )


def trail(engine: Engine, regression_id: UUID) -> list[tuple[str | None, str | None, str]]:
    """From, to and by whom, oldest first."""
    with Session(engine) as session:
        entries = list_entries(session, PROJECT, subject=str(regression_id))
    return [(entry.before, entry.after, entry.actor) for entry in reversed(entries)]


def test_moved_regression_keeps_its_triage(history: Engine) -> None:
    (one,) = analyse(history, make_regression(3))
    assert one == Triage(regression_id(make_regression(3)), TriageState.NEW)
    decide(history, one.regression_id, TriageState.EXPECTED)
    other = make_series_key(
        case_id="rms_norm/n_rows=64,n_cols=128/float32/fwd", implementation="other"
    )
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


def test_a_change_elsewhere_is_another_regression(history: Engine) -> None:
    (one,) = analyse(history, make_regression(3))
    other = make_series_key(implementation="other")

    (elsewhere,) = analyse(history, make_regression(6))
    (of_others,) = analyse(
        history, make_regression(3, kernel="x", change_points=(make_change_point(3, series=other),))
    )

    assert len({one.regression_id, elsewhere.regression_id, of_others.regression_id}) == 3


def test_recovered_regression_is_fixed_until_the_recovery_is_lost(history: Engine) -> None:
    (one,) = analyse(history, make_regression(1))
    (fixed,) = analyse(history, make_regression(1, recovered_at=make_commit_ref(5)))
    (again,) = analyse(history, make_regression(1))

    assert (fixed.state, fixed.person) == (TriageState.FIXED, "roofwatch")
    assert fixed.reason == f"recovered at {make_commit_ref(5).short_sha} (Change number 5)"
    assert again.state is TriageState.NEW
    assert trail(history, one.regression_id) == [
        ("new", "fixed", "roofwatch"),
        ("fixed", "new", "roofwatch"),
    ]


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
def test_only_a_fixed_regression_is_reopened_when_found_again(
    history: Engine, state: TriageState
) -> None:
    (one,) = analyse(history, make_regression(1))
    decide(history, one.regression_id, state)
    analyse(history)

    (again,) = analyse(history, make_regression(1))

    expected = TriageState.NEW if state is TriageState.FIXED else state
    assert (again.regression_id, again.state) == (one.regression_id, expected)


def test_triage_of_an_unknown_regression_is_refused(history: Engine) -> None:
    with pytest.raises(StoreError, match="not in project 'example/project'"):
        decide(history, UUID(int=7), TriageState.FIXED)


def measured(sha: str, hour: int, *, run_hour: int | None = None, **fields: bool) -> BranchCommit:
    run_at = NOON + timedelta(hours=hour + 1 if run_hour is None else run_hour)
    return BranchCommit(
        sha, NOON + timedelta(hours=hour), run_at, **{"is_alone": True, "is_named": True} | fields
    )


def line(text: str) -> dict[str, str]:
    """First parents of lines such as `a-b-c a-d`."""
    links = (one.split("-") for one in text.split())
    return {child: parent for commits in links for parent, child in pairwise(commits)}


def commits(shas: str, **fields: bool) -> list[BranchCommit]:
    """Commits, one per hour."""
    return [measured(sha, hour, **fields) for hour, sha in enumerate(shas)]


def test_rewritten_commits_are_unreachable() -> None:
    assert find_unreachable(commits("abcdef"), line("a-b-c-d a-e-f")) == {"b", "c", "d"}
    assert find_unreachable(commits("abc"), line("a-b a-c")) == {"b"}, "an amended commit"
    assert find_unreachable(commits("abc"), line("z-a-b z-c")) == {"a", "b"}, (
        "the fork itself was never measured"
    )
    assert find_unreachable(commits("abcd"), line("a-b-c-d")) == set()


def test_unknown_parents_prove_nothing() -> None:
    assert find_unreachable(commits("abcd"), {}) == set()
    assert find_unreachable(commits("abcd"), line("a-b c-d")) == set()
    assert find_unreachable(commits("abcdef"), line("a-b-c x-d-e-f")) == set()
    # the parent of x is unknown
    assert find_unreachable(commits("abcd"), line("a-b-c x-d")) == set()
    assert find_unreachable([], {}) == set()


def test_tip_is_the_newest_commit_not_the_newest_run() -> None:
    late_job = [*commits("a"), measured("b", 1, run_hour=9), measured("c", 2, run_hour=3)]
    wrong_clock = [*commits("a"), measured("b", 90_000, run_hour=2), measured("c", 2, run_hour=3)]

    assert find_unreachable(late_job, line("a-b a-c")) == {"b"}
    assert find_unreachable(wrong_clock, line("a-b a-c")) == {"b"}


def test_runs_without_a_branch_do_not_move_a_named_branch() -> None:
    fork = line("a-b a-p")
    stray = [*commits("ab"), measured("p", 5, is_named=False)]

    assert find_unreachable(stray, fork) == set(), "it may be the next commit of the branch"
    assert find_unreachable([*stray, measured("c", 6)], {**fork, "c": "b"}) == {"p"}
    assert find_unreachable(commits("abp", is_named=False), fork) == {"b"}, (
        "without named runs the newest is the tip"
    )
    in_a_pair = measured("p", 5, is_alone=False, is_named=False)
    assert find_unreachable([*commits("ab", is_named=False), in_a_pair], fork) == set(), (
        "nor does a side of a pair"
    )
    assert find_unreachable([in_a_pair], fork) == set()
    assert (
        find_unreachable([*commits("ab"), measured("n", 5, is_named=False)], line("a-b-n")) == set()
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_result_equals_a_walk_from_each_commit(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    shas = [f"{number:02}" for number in range(count)]
    parents = {
        sha: data.draw(st.sampled_from(shas[:number]))
        for number, sha in enumerate(shas)
        if number and data.draw(_KNOWN)
    }
    known = [
        measured(sha, number)
        for number, sha in enumerate(shas)
        if number == count - 1 or data.draw(_KNOWN)
    ]

    def down(sha: str) -> list[str]:
        return [sha, *down(parents[sha])] if sha in parents else [sha]

    newest = down(shas[-1])
    expected = {
        one.sha
        for one in known
        if one.sha not in newest and any(ancestor in newest for ancestor in down(one.sha))
    }
    assert find_unreachable(known, parents) == expected


_KNOWN = st.sampled_from([True, True, True, False])
