"""Names of commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofwatch.dashboard.revisions import Revisions, branches_of
from roofwatch.model.history import MeasuredCommit
from roofwatch.model.stored_results import TaggedCommit
from tests.builders import make_commit_ref, sha_of


def commit(number: int, **fields: object) -> MeasuredCommit:
    ref = make_commit_ref(number)
    measured = MeasuredCommit(
        ref.first_parent_count, ref.sha, ref.author, ref.subject, ref.committed_at
    )
    return replace(measured, **fields)  # type: ignore[arg-type]


COMMITS = [commit(number) for number in range(40)]
COMMITS[7] = commit(7, subject="Tile the loop (#1254)")
REVISIONS = Revisions(
    commits=COMMITS,
    releases=[TaggedCommit("v0.4.0", COMMITS[10]), TaggedCommit("v0.5.0", COMMITS[20])],
    branches={"main": COMMITS[-1]},
)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("v0.5.0", 20),
        ("main", 39),
        (sha_of(3), 3),
        (sha_of(3)[:10], 3),
        ("#1254", 7),
        ("2026-03-01", 11),
        ("2026-03-02", 35),
    ],
    ids=["release", "branch", "sha", "digits", "number", "date", "the next day"],
)
def test_a_commit_is_found_by_what_people_call_it(name: str, number: int) -> None:
    assert REVISIONS.find(name) == COMMITS[number]


@pytest.mark.parametrize("name", ["v9", "#1", "2020-01-01", "2026-13-01", "", "zzzz"])
def test_what_names_no_measured_commit_finds_none(name: str) -> None:
    assert REVISIONS.find(name) is None


def test_a_commit_that_left_its_branch_is_not_the_newest_of_a_day() -> None:
    gone = commit(39, is_unreachable=True)
    revisions = Revisions([gone, *COMMITS[:5]], [], {})
    assert revisions.find("2026-03-05") == COMMITS[4]


def test_releases_are_offered_first() -> None:
    assert REVISIONS.names[:3] == ["v0.5.0", "v0.4.0", "main"]


def test_the_newest_two_releases_are_the_default() -> None:
    assert REVISIONS.defaults() == ("v0.4.0", "v0.5.0")
    assert Revisions(COMMITS, [], {}).defaults() == (sha_of(38), sha_of(39))
    assert Revisions(COMMITS[:1], [], {}).defaults() is None


def test_a_title_has_what_one_would_search_for() -> None:
    title = REVISIONS.title(COMMITS[7].sha)
    for part in (COMMITS[7].short_sha, "2026-03-01", "#1254", COMMITS[7].author):
        assert part in title


def test_a_branch_stands_for_its_newest_commit() -> None:
    branches = branches_of(COMMITS, {"old": frozenset({sha_of(1), sha_of(2)}), "gone": frozenset()})
    assert branches == {"old": COMMITS[2]}
