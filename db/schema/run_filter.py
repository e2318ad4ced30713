"""Conditions on the runs of a project, and the types of what clients select by."""

from collections.abc import Collection
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import ColumnElement, ScalarSelect, and_, exists, false, func, or_, select, true
from sqlalchemy.orm import aliased

from roofwatch.db.schema.measurements import CompilationRow
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.model.history import CommitRef
from roofwatch.model.series_filter import Word

COMMIT_COLUMNS = tuple(getattr(CommitRow, field.name) for field in fields(CommitRef))
_DEFAULT_BRANCHES = ("main", "master", "trunk")

# Parameters come from anybody with a token, so their types limit them.
Words = Annotated[tuple[Word, ...], Field(max_length=10_000)]
CaseIds = Annotated[frozenset[Word], Field(max_length=100_000)]
Limit = Annotated[int, Field(ge=1, le=10_000)]


def project_id(project: str) -> ScalarSelect[int]:
    """Return a project's id as a scalar subquery, which lets Postgres use the index on runs."""
    project_row = aliased(ProjectRow)
    return select(project_row.id).where(project_row.name == project).scalar_subquery()


def is_in_series(
    project: str,
    *,
    include_dirty: bool = False,
    include_pairs: bool = False,
    include_branches: bool = False,
) -> ColumnElement[bool]:
    """Select runs that count for the series of a project.

    Options include runs of a modified work tree, sides of pairs, and other branches with commits
    that a rewritten branch no longer has. A run without a branch (detached HEAD) counts for the
    default branch, because most CI jobs check out this way.
    """
    conditions = [RunRow.project_id == project_id(project)]
    if not include_dirty:
        conditions.append(RunRow.is_dirty.is_(False))
    if not include_pairs:
        conditions.append(RunRow.pair_id.is_(None))
    if not include_branches:
        conditions.append(or_(RunRow.branch.is_(None), RunRow.branch == default_branch(project)))
        conditions.append(RunRow.is_unreachable.is_(False))
    return and_(*conditions)


def is_on(
    project: str,
    runner_classes: Collection[str],
    branches: Collection[str] = (),
    *,
    run: Any = RunRow,
    environment: Any = EnvironmentRow,
) -> ColumnElement[bool]:
    """Select runs on some runner classes, of commits measured on some branches; an empty collection
    means any.

    A commit counts if any of its runs names one of the branches. Run and environment may be
    aliases.
    """
    conditions: list[ColumnElement[bool]] = [true()]
    if runner_classes:
        conditions.append(environment.runner_class.in_(runner_classes))
    if branches:
        measured = aliased(RunRow)
        commits = select(measured.commit_id).where(
            measured.project_id == project_id(project), measured.branch.in_(branches)
        )
        conditions.append(run.commit_id.in_(commits))
    return and_(*conditions)


def is_number_of(run_number: Any, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Check run numbers against the runs that meet a condition.

    `coalesce` keeps this a hashed subplan; as a join, Postgres without statistics would read all
    results per run.
    """
    return func.coalesce(run_number.in_(select(RunRow.number).where(condition)), false())


def compiled_by() -> ScalarSelect[int]:
    """Return the run that compiled the code of the outer run: itself, else the newest one of the
    same clean commit.
    """
    compiling_run = aliased(RunRow)
    is_own = compiling_run.number == RunRow.number
    return (
        select(compiling_run.number)
        .where(
            compiling_run.commit_id == RunRow.commit_id,
            or_(is_own, and_(compiling_run.is_dirty.is_(False), RunRow.is_dirty.is_(False))),
            exists().where(CompilationRow.run_number == compiling_run.number),
        )
        .order_by(is_own.desc(), compiling_run.started_at.desc())
        .limit(1)
        .correlate(RunRow)
        .scalar_subquery()
    )


def default_branch(project: str) -> ScalarSelect[str | None]:
    """Return `main`, `master`, `trunk` or the branch with the most runs; NULL if no run names a
    branch.
    """
    run = aliased(RunRow)
    return (
        select(run.branch)
        .where(run.project_id == project_id(project), run.branch.is_not(None))
        .group_by(run.branch)
        .order_by(run.branch.in_(_DEFAULT_BRANCHES).desc(), func.count().desc(), run.branch)
        .limit(1)
        .scalar_subquery()
    )
