"""Commits that left a branch after its history was rewritten."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.db.regressions.branch_line import BranchCommit, find_unreachable
from tests.builders import NOON


def measured(sha: str, hour: int, *, run_hour: int | None = None, **fields: bool) -> BranchCommit:
    run_at = NOON + timedelta(hours=hour + 1 if run_hour is None else run_hour)
    return BranchCommit(sha, NOON + timedelta(hours=hour), run_at, **{"is_alone": True, "is_named": True} | fields)


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
    assert find_unreachable(commits("abc"), line("z-a-b z-c")) == {"a", "b"}, "the fork itself was never measured"
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
    assert find_unreachable(commits("abp", is_named=False), fork) == {"b"}, "without named runs the newest is the tip"
    in_a_pair = measured("p", 5, is_alone=False, is_named=False)
    assert find_unreachable([*commits("ab", is_named=False), in_a_pair], fork) == set(), "nor does a side of a pair"
    assert find_unreachable([in_a_pair], fork) == set()
    assert find_unreachable([*commits("ab"), measured("n", 5, is_named=False)], line("a-b-n")) == set()


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
    known = [measured(sha, number) for number, sha in enumerate(shas) if number == count - 1 or data.draw(_KNOWN)]

    def down(sha: str) -> list[str]:
        return [sha, *down(parents[sha])] if sha in parents else [sha]

    newest = down(shas[-1])
    expected = {
        one.sha for one in known if one.sha not in newest and any(ancestor in newest for ancestor in down(one.sha))
    }
    assert find_unreachable(known, parents) == expected


_KNOWN = st.sampled_from([True, True, True, False])
