"""Which commits a branch has left after its history was rewritten, by the first parents that
records name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, Select, func, select, update
from sqlalchemy.orm import Session

from roofwatch.db.regressions.case_analyses import note_changed_project
from roofwatch.db.schema.run_filter import default_branch
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


@dataclass(frozen=True)
class BranchCommit:
    sha: str
    committed_at: datetime
    first_run_at: datetime
    """When its first run on this branch started."""
    is_alone: bool
    """It has a run of a clean work tree that is not part of a pair: the other side of a pair may
    never be merged.
    """
    is_named: bool
    """Such a run names the branch."""

    @property
    def age(self) -> tuple[datetime, datetime, str]:
        """Sorts newer commits last. A committer's clock may be wrong, but nothing is measured
        before its commit.
        """
        return min(self.committed_at, self.first_run_at), self.first_run_at, self.sha


def note_unreachable(engine: Engine, project: str) -> None:
    """Set `RunRow.is_unreachable` of all runs of a project. Runs without a branch count to the
    default branch.
    """
    with Session(engine) as session, session.begin():
        project_id = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
        if project_id is None:
            return
        # CI often checks out a commit without its branch
        own_branch = session.scalar(select(default_branch(project)))
        on_branch = func.coalesce(RunRow.branch, own_branch)
        rows = session.execute(_measured_commits(project_id, on_branch)).all()
        unreachable = _unreachable_by_branch(rows, _first_parents(session, project_id))
        changed: defaultdict[tuple[str | None, bool], list[int]] = defaultdict(list)
        for row in rows:
            is_unreachable = row.sha in unreachable[row.on_branch]
            if is_unreachable != row.all_unreachable or is_unreachable != row.any_unreachable:
                changed[row.on_branch, is_unreachable].append(row.id)
        if changed:
            # the history of the branch is another one now
            note_changed_project(session.connection(), project_id)
        for (branch, is_unreachable), commit_ids in changed.items():
            session.execute(
                update(RunRow)
                .where(
                    RunRow.project_id == project_id,
                    RunRow.commit_id.in_(commit_ids),
                    on_branch.is_not_distinct_from(branch),
                )
                .values(is_unreachable=is_unreachable)
            )


def _measured_commits(project_id: int, on_branch: ColumnElement[str]) -> Select[Any]:
    """Select each commit and branch with runs, and what is stored about these runs."""
    is_alone = ~RunRow.is_dirty & RunRow.pair_id.is_(None)
    return (
        select(
            CommitRow.id,
            CommitRow.sha,
            CommitRow.committed_at,
            on_branch.label("on_branch"),
            func.min(RunRow.started_at).label("first_run_at"),
            func.bool_or(is_alone).label("is_alone"),
            func.bool_or(is_alone & RunRow.branch.is_not(None)).label("is_named"),
            func.bool_and(RunRow.is_unreachable).label("all_unreachable"),
            func.bool_or(RunRow.is_unreachable).label("any_unreachable"),
        )
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(RunRow.project_id == project_id)
        .group_by(CommitRow.id, on_branch)
    )


def _first_parents(session: Session, project_id: int) -> dict[str, str]:
    parents = select(CommitRow.sha, CommitRow.parents[1]).where(CommitRow.project_id == project_id)
    # a root commit has none
    return {sha: parent for sha, parent in session.execute(parents) if parent is not None}


def _unreachable_by_branch(
    rows: Iterable[Row[Any]], first_parents: Mapping[str, str]
) -> dict[str | None, Collection[str]]:
    by_branch: defaultdict[str | None, list[BranchCommit]] = defaultdict(list)
    for row in rows:
        commit = BranchCommit(
            sha=row.sha,
            committed_at=row.committed_at,
            first_run_at=row.first_run_at,
            is_alone=row.is_alone,
            is_named=row.is_named,
        )
        by_branch[row.on_branch].append(commit)
    return {
        branch: find_unreachable(branch_commits, first_parents)
        for branch, branch_commits in by_branch.items()
    }


def find_unreachable(
    commits: Collection[BranchCommit], first_parents: Mapping[str, str]
) -> set[str]:
    """SHAs of the commits that provably left the branch, of all that were measured on it.

    The branch's tip is its newest commit that no other comes from. A commit left the branch if its
    first parents, as far as they are known, lead to a commit below the tip. If they lead to an
    unknown parent, nothing is proven. An unnamed commit newer than the tip, and what it comes from,
    may belong to the branch and is spared.
    """
    # without a name nobody knows the branch; commits measured alone are its best evidence
    named = [commit for commit in commits if commit.is_named]
    tips = _tips(named or [commit for commit in commits if commit.is_alone], first_parents)
    if not tips:
        return set()
    tip = max(tips, key=lambda commit: commit.age)
    line = set(_ancestors(tip.sha, first_parents))
    left_shas: set[str] = set()
    spared: set[str] = set()
    for side_tip in _tips(commits, first_parents):
        path: list[str] = []
        for sha in _ancestors(side_tip.sha, first_parents):
            if sha in line:
                if sha != tip.sha:  # a path that leads to the tip itself continues the branch
                    left_shas.update(path)
                break
            path.append(sha)
        # the branch may have been pushed since, by a run that does not name it
        if not side_tip.is_named and side_tip.age > tip.age:
            spared.update(path)
    return {commit.sha for commit in commits if commit.sha in left_shas - spared}


def _tips(commits: Iterable[BranchCommit], first_parents: Mapping[str, str]) -> list[BranchCommit]:
    """Commits that no other of them comes from."""
    all_commits = list(commits)
    below: set[str] = set()
    for commit in all_commits:
        sha = first_parents.get(commit.sha)
        while sha is not None and sha not in below:
            below.add(sha)
            sha = first_parents.get(sha)
    return [commit for commit in all_commits if commit.sha not in below]


def _ancestors(sha: str, first_parents: Mapping[str, str]) -> Iterator[str]:
    """A commit and its first parents, up to the first commit whose parent is unknown."""
    seen: set[str] = set()
    ancestor: str | None = sha
    while ancestor is not None and ancestor not in seen:  # records may name parents in a circle
        seen.add(ancestor)
        yield ancestor
        ancestor = first_parents.get(ancestor)
