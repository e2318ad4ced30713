"""The line of a branch: the commits that its newest one comes from by first parents. Pure.

A branch whose history was rewritten leaves commits behind that bear its name and stand at the same counts as those that
took their place. What proves that a commit was left is where its line meets that of the newest one: first parents lead
down from each commit in one way only, so whatever lies above that place beside the line is on another one. Counts prove
nothing, since a shallow clone counts too few. Nor does a commit whose parents are not known, because nobody measured
what lies between: it stays where its count puts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Measured:
    """A commit that was measured on a branch."""

    sha: str
    committed_at: datetime
    first_run_at: datetime
    """When the first of its runs on this branch began."""
    is_alone: bool
    """Some run of it was of a clean work tree and by itself: a side of a pair may be of a commit that never arrives."""
    is_named: bool
    """Such a run bears the branch's name: not only one whose branch is not known."""

    @property
    def age(self) -> tuple[datetime, datetime, str]:
        """The larger, the newer. Nothing was committed after it was measured, whatever the committer's clock said."""
        return min(self.committed_at, self.first_run_at), self.first_run_at, self.sha


def find_unreachable(commits: Collection[Measured], first_parents: Mapping[str, str]) -> set[str]:
    """Shas of the commits that are proven to lie beside the line of the branch's newest known tip.

    The tip is the commit that was committed last of those measured alone that no other comes from, under the branch's
    name if any bears it. A commit without the name that is newer than the tip, or leads to one that is, may go on with
    the branch, or be of another: of that nothing is said before the branch itself has gone on.

    Args:
        commits: All that was measured on one branch.
        first_parents: The first parent of every commit of the project that is known to have one.
    """
    named = [commit for commit in commits if commit.is_named]
    tips = _tips(named or [commit for commit in commits if commit.is_alone], first_parents)
    if not tips:
        return set()
    tip = max(tips, key=lambda commit: commit.age)
    line = set(_down(tip.sha, first_parents))
    is_beside: dict[str, bool] = {}
    spared: set[str] = set()
    for other in _tips(commits, first_parents):
        path: list[str] = []
        at = other.sha
        for at in _down(other.sha, first_parents):
            if at in line or at in is_beside:
                break
            path.append(at)
        # one that comes from the tip itself goes on with it
        beside = is_beside.get(at, at in line and at != tip.sha)
        is_beside.update(dict.fromkeys(path, beside))
        if not other.is_named and other.age > tip.age:
            for sha in _down(other.sha, first_parents):
                if sha in line or sha in spared:
                    break
                spared.add(sha)
    return {commit.sha for commit in commits if is_beside.get(commit.sha, False) and commit.sha not in spared}


def _tips(commits: Iterable[Measured], first_parents: Mapping[str, str]) -> list[Measured]:
    """Those that no other of them comes from."""
    given = list(commits)
    below: set[str] = set()
    for commit in given:
        at = first_parents.get(commit.sha)
        while at is not None and at not in below:
            below.add(at)
            at = first_parents.get(at)
    return [commit for commit in given if commit.sha not in below]


def _down(sha: str, first_parents: Mapping[str, str]) -> Iterable[str]:
    """The commit and those that it comes from, to the first whose parent is not known, that one included."""
    seen: set[str] = set()
    at: str | None = sha
    # what records say of parents may go in a circle
    while at is not None and at not in seen:
        seen.add(at)
        yield at
        at = first_parents.get(at)
