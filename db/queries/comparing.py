"""Which two runs to compare for two commits, and what they say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ScalarSelect, Select, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from roofwatch.collector.record.record import RunRecord, Side
from roofwatch.db.errors import NotStoredError
from roofwatch.db.queries.records import load_cases
from roofwatch.db.queries.run_values import RunDetail
from roofwatch.db.queries.runs import BEST_FIRST, read_run_details
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_Side = TypeVar("_Side", RunDetail, RunRecord)


def find_runs_to_compare(
    session: Session, project: str, base_sha: str, head_sha: str, *, runner_class: str | None = None
) -> tuple[UUID | None, UUID | None]:
    """Run ids of base and head: of the newest pair that measured just these two commits, else of the run that speaks
    for each. None where a commit has no run.

    Args:
        session: Of the store.
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        runner_class: Only where each was measured by itself on this one; a pair is of one runner anyway.
    """
    base, head = session.execute(select(*_sides(project, base_sha, head_sha, runner_class))).one()
    return base, head


def read_case_of_both(
    session: Session, project: str, base_sha: str, head_sha: str, case_id: str, *, runner_class: str | None = None
) -> tuple[RunRecord, RunRecord] | None:
    """The records of the same two runs as far as they are about one case, in one statement; None where a commit has no
    run. The commits are two.
    """
    base, head = _sides(project, base_sha, head_sha, runner_class)
    records = load_cases(session, or_(RunRow.run_id == base, RunRow.run_id == head), CaseRow.name == case_id)
    by_sha = {record.commit.sha: record for record in records}
    if base_sha not in by_sha or head_sha not in by_sha:
        return None
    return by_sha[base_sha], by_sha[head_sha]


def read_kernel_of_run(session: Session, run_id: UUID, kernel: str) -> RunRecord | None:
    """The record of a run as far as it is about one kernel; None where there is no such run."""
    return next(iter(load_cases(session, RunRow.run_id == run_id, CaseRow.kernel == kernel)), None)


def read_runs_of_commits(
    session: Session, project: str, base_sha: str, head_sha: str, *, runner_classes: Collection[str] = ()
) -> tuple[RunDetail, RunDetail]:
    """What the runs found that speak for two commits, in two statements; of the base the one on the runner class of the
    head, where there is such a run.

    Args:
        session: Of the store.
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        runner_classes: Only runs on these; any where none is named.

    Raises:
        NotStoredError: a commit has no run, or none on these runner classes.
    """
    is_on_them = EnvironmentRow.runner_class.in_(runner_classes) if runner_classes else true()
    head = _speaking_run(project, head_sha).where(is_on_them).cte("head")
    is_alike = EnvironmentRow.runner_class == select(head.c.runner_class).scalar_subquery()
    alike_first = func.coalesce(is_alike, False).desc()
    base = _speaking_run(project, base_sha, alike_first).where(is_on_them).cte("base")
    chosen = or_(*(RunRow.run_id == select(side.c.run_id).scalar_subquery() for side in (base, head)))
    found = {detail.summary.commit.sha: detail for detail in read_run_details(session, chosen)}
    for sha in (base_sha, head_sha):
        if sha not in found:
            raise NotStoredError(f"commit {sha[:8]} of {project}: no run is stored; reload the page and choose another")
    return found[base_sha], found[head_sha]


def read_runs(session: Session, base_id: UUID, head_id: UUID) -> tuple[RunDetail, RunDetail]:
    """What two runs found, in two statements.

    Raises:
        NotStoredError: there is no such run.
    """
    details = read_run_details(session, RunRow.run_id.in_([base_id, head_id]))
    return _both({detail.summary.run_id: detail for detail in details}, base_id, head_id)


def read_case_of_runs(session: Session, base_id: UUID, head_id: UUID, case_id: str) -> tuple[RunRecord, RunRecord]:
    """The records of two runs as far as they are about one case, in one statement.

    Raises:
        NotStoredError: there is no such run.
    """
    records = load_cases(session, RunRow.run_id.in_([base_id, head_id]), CaseRow.name == case_id)
    return _both({str(record.run_id): record for record in records}, base_id, head_id)


def _both(found: Mapping[str, _Side], base_id: UUID, head_id: UUID) -> tuple[_Side, _Side]:
    for run_id in (base_id, head_id):
        if str(run_id) not in found:
            raise NotStoredError(f"run {run_id}: not stored; reload the page and choose another")
    return found[str(base_id)], found[str(head_id)]


def _sides(
    project: str, base_sha: str, head_sha: str, runner_class: str | None
) -> tuple[ScalarSelect[UUID] | Any, ScalarSelect[UUID] | Any]:
    """Expressions for the run ids of base and head."""
    base, head = (_speaking_run(project, sha) for sha in (base_sha, head_sha))
    if runner_class is not None:
        is_on_it = EnvironmentRow.runner_class == runner_class
        base, head = base.where(is_on_it), head.where(is_on_it)
    alone = [side.with_only_columns(RunRow.run_id).scalar_subquery() for side in (base, head)]
    if runner_class is not None:
        return alone[0], alone[1]
    pair = _newest_pair(project, base_sha, head_sha).cte("pair")
    both = [select(side).scalar_subquery() for side in (pair.c.base, pair.c.head)]
    return func.coalesce(both[0], alone[0]), func.coalesce(both[1], alone[1])


def _speaking_run(project: str, sha: str, *before: Any) -> Select[UUID, str]:
    """The run that speaks for a commit, and its runner class; what some expressions put before others comes first."""
    return (
        select(RunRow.run_id, EnvironmentRow.runner_class)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(ProjectRow.name == project, CommitRow.sha == sha)
        .order_by(*before, *BEST_FIRST)
        .limit(1)
    )


def _newest_pair(project: str, base_sha: str, head_sha: str) -> Select[UUID, UUID]:
    base_run, head_run = aliased(RunRow), aliased(RunRow)
    base_commit, head_commit = aliased(CommitRow), aliased(CommitRow)
    return (
        select(base_run.run_id.label("base"), head_run.run_id.label("head"))
        .join(head_run, head_run.pair_id == base_run.pair_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .join(ProjectRow, ProjectRow.id == base_commit.project_id)
        .where(
            ProjectRow.name == project,
            head_commit.project_id == ProjectRow.id,
            base_commit.sha == base_sha,
            head_commit.sha == head_sha,
            base_run.pair_side == Side.BASE.value,
            head_run.pair_side == Side.HEAD.value,
        )
        .order_by(head_run.started_at.desc(), head_run.run_id)
        .limit(1)
    )
