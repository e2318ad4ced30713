"""Which runs of a project measured a commit that its branch has left, noted at each run."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Engine, func, select, update
from sqlalchemy.orm import Session

from roofwatch.db.queries.series_runs import default_branch
from roofwatch.db.regressions.branch_line import Measured, find_unreachable
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


def note_unreachable(engine: Engine, project: str) -> None:
    """Note at each run of a project whether its commit can be reached by first parents from the newest known tip of the
    branch that it was measured on (`roofwatch.db.regressions.branch_line`), by all that is stored now.

    A run whose branch is not known counts as one of the default branch, as it does everywhere.
    """
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
                func.bool_and(RunRow.is_unreachable).label("was_all"),
                func.bool_or(RunRow.is_unreachable).label("was_any"),
            )
            .where(RunRow.project_id == project_id)
            .group_by(RunRow.commit_id, RunRow.branch)
        )
        rows = session.execute(measured).all()
        # after them: of a run that is stored in between there is no row, and each row's commit is there
        parent = CommitRow.parents[1]
        commits = select(CommitRow.id, CommitRow.sha, CommitRow.committed_at, parent.label("first_parent"))
        known = {row.id: row for row in session.execute(commits.where(CommitRow.project_id == project_id))}
        first_parents = {row.sha: row.first_parent for row in known.values() if row.first_parent is not None}
        by_branch: defaultdict[str | None, dict[str, Measured]] = defaultdict(dict)
        for row in rows:
            commit, branch = known[row.commit_id], row.branch or own_branch
            is_named = row.is_alone and row.branch is not None
            before = by_branch[branch].get(commit.sha)
            by_branch[branch][commit.sha] = Measured(
                commit.sha,
                commit.committed_at,
                row.first_run_at if before is None else min(row.first_run_at, before.first_run_at),
                is_alone=row.is_alone or (before is not None and before.is_alone),
                is_named=is_named or (before is not None and before.is_named),
            )
        unreachable = {
            branch: find_unreachable(list(found.values()), first_parents) for branch, found in by_branch.items()
        }
        changed: defaultdict[tuple[str | None, bool], list[int]] = defaultdict(list)
        for row in rows:
            is_so = known[row.commit_id].sha in unreachable[row.branch or own_branch]
            if (is_so and not row.was_all) or (not is_so and row.was_any):
                changed[row.branch, is_so].append(row.commit_id)
        for (branch, is_so), commit_ids in changed.items():
            which = RunRow.commit_id.in_(commit_ids), RunRow.branch.is_not_distinct_from(branch)
            session.execute(update(RunRow).where(RunRow.project_id == project_id, *which).values(is_unreachable=is_so))
