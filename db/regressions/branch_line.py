"""Which commits a branch has left after its history was rewritten, by the first parents that records name."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Engine, func, select, update
from sqlalchemy.orm import Session

from roofwatch.db.queries.run_filter import default_branch
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


@dataclass(frozen=True)
class BranchCommit:
    """A commit that was measured on a branch."""

    sha: str
    committed_at: datetime
    first_run_at: datetime
    """When its first run on this branch started."""
    is_alone: bool
    """It has a run of a clean work tree that is not part of a pair: the other side of a pair may never be merged."""
    is_named: bool
    """Such a run names the branch."""

    @property
    def age(self) -> tuple[datetime, datetime, str]:
        """Sorts newer commits last. A committer's clock may be wrong, but nothing is measured before its commit."""
        return min(self.committed_at, self.first_run_at), self.first_run_at, self.sha


def note_unreachable(engine: Engine, project: str) -> None:
    """Set `RunRow.is_unreachable` of all runs of a project. Runs without a branch count to the default branch."""
    with Session(engine) as session, session.begin():
        project_id = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
        if project_id is None:
            return
        own_branch = session.scalar(select(default_branch(project)))
        is_alone = ~RunRow.is_dirty & RunRow.pair_id.is_(None)
        measured = (
            select(
                RunRow.commit_id,
                RunRow.branch,
                func.min(RunRow.started_at).label("first_run_at"),
                func.bool_or(is_alone).label("is_alone"),
                func.bool_and(RunRow.is_unreachable).label("all_unreachable"),
                func.bool_or(RunRow.is_unreachable).label("any_unreachable"),
            )
            .where(RunRow.project_id == project_id)
            .group_by(RunRow.commit_id, RunRow.branch)
        )
        rows = session.execute(measured).all()
        # read after the runs, so every run's commit is there
        columns = (CommitRow.id, CommitRow.sha, CommitRow.committed_at, CommitRow.parents[1].label("first_parent"))
        commits = {row.id: row for row in session.execute(select(*columns).where(CommitRow.project_id == project_id))}
        first_parents = {row.sha: row.first_parent for row in commits.values() if row.first_parent is not None}
        by_branch: defaultdict[str | None, dict[str, BranchCommit]] = defaultdict(dict)
        for row in rows:
            commit, known = commits[row.commit_id], by_branch[row.branch or own_branch]
            is_named = row.is_alone and row.branch is not None
            new = BranchCommit(commit.sha, commit.committed_at, row.first_run_at, row.is_alone, is_named)
            known[commit.sha] = _merge(known.get(commit.sha, new), new)
        unreachable = {branch: find_unreachable(known.values(), first_parents) for branch, known in by_branch.items()}
        changed: defaultdict[tuple[str | None, bool], list[int]] = defaultdict(list)
        for row in rows:
            is_unreachable = commits[row.commit_id].sha in unreachable[row.branch or own_branch]
            if is_unreachable != row.all_unreachable or is_unreachable != row.any_unreachable:
                changed[row.branch, is_unreachable].append(row.commit_id)
        for (branch, is_unreachable), commit_ids in changed.items():
            session.execute(
                update(RunRow)
                .where(
                    RunRow.project_id == project_id,
                    RunRow.commit_id.in_(commit_ids),
                    RunRow.branch.is_not_distinct_from(branch),
                )
                .values(is_unreachable=is_unreachable)
            )


def find_unreachable(commits: Collection[BranchCommit], first_parents: Mapping[str, str]) -> set[str]:
    """SHAs of the commits that provably left the branch, of all that were measured on it.

    The branch's tip is its newest commit that no other comes from. A commit left the branch if its first parents, as
    far as they are known, lead to a commit below the tip. If they lead to an unknown parent, nothing is proven. An
    unnamed commit newer than the tip, and what it comes from, may belong to the branch and is spared.
    """
    named = [commit for commit in commits if commit.is_named]
    tips = _tips(named or [commit for commit in commits if commit.is_alone], first_parents)
    if not tips:
        return set()
    tip = max(tips, key=lambda commit: commit.age)
    line = set(_ancestors(tip.sha, first_parents))
    left: set[str] = set()
    spared: set[str] = set()
    for other in _tips(commits, first_parents):
        path: list[str] = []
        for sha in _ancestors(other.sha, first_parents):
            if sha in line:
                if sha != tip.sha:  # a path that leads to the tip itself continues the branch
                    left.update(path)
                break
            path.append(sha)
        if not other.is_named and other.age > tip.age:
            spared.update(path)
    return {commit.sha for commit in commits if commit.sha in left - spared}


def _merge(one: BranchCommit, other: BranchCommit) -> BranchCommit:
    return replace(
        one,
        first_run_at=min(one.first_run_at, other.first_run_at),
        is_alone=one.is_alone or other.is_alone,
        is_named=one.is_named or other.is_named,
    )


def _tips(commits: Iterable[BranchCommit], first_parents: Mapping[str, str]) -> list[BranchCommit]:
    """Commits that no other of them comes from."""
    given = list(commits)
    below: set[str] = set()
    for commit in given:
        sha = first_parents.get(commit.sha)
        while sha is not None and sha not in below:
            below.add(sha)
            sha = first_parents.get(sha)
    return [commit for commit in given if commit.sha not in below]


def _ancestors(sha: str, first_parents: Mapping[str, str]) -> Iterator[str]:
    """A commit and its first parents, up to the first commit whose parent is unknown."""
    seen: set[str] = set()
    at: str | None = sha
    while at is not None and at not in seen:  # records may name parents in a circle
        seen.add(at)
        yield at
        at = first_parents.get(at)
