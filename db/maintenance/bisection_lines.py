"""Bisections with their commits and steps, on their way out of one store and into another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field
from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.bisections.values import BisectionState, Standing
from roofwatch.db.maintenance.line import Count, Line, ProjectName, Words, columns_of
from roofwatch.db.projects import ensure_project
from roofwatch.db.schema.bisections import BisectionCommitRow, BisectionRow, BisectionStepRow
from roofwatch.db.schema.records import ProjectRow

_MOST_PARTS = 100_000


class CommitPart(Line):
    model_config = ConfigDict(use_enum_values=True)

    position: Count
    sha: Words
    first_parent_count: Count
    author: Words
    subject: Words
    committed_at: AwareDatetime
    probability: float
    standing: Standing
    reason: Words
    pair_count: Count
    relative_change: float | None


class StepPart(Line):
    position: Count
    sha: Words
    pair_count: Count
    relative_change: float | None
    probability: float
    note: Words
    finished_at: AwareDatetime


class BisectionLine(Line):
    """One that is not over goes on with whoever holds its claim, or takes it once that has run out."""

    model_config = ConfigDict(use_enum_values=True)

    kind: Literal["bisection"] = "bisection"
    bisection_id: UUID
    project: ProjectName
    case_id: Words
    implementation: Words | None
    runner_class: Words | None
    good_sha: Words
    bad_sha: Words
    state: BisectionState
    requested_by: Words
    regression_id: UUID | None
    requested_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    claim_id: UUID | None
    leased_until: AwareDatetime | None
    measurement_count: Count
    note: Words
    first_sha: Words | None
    last_sha: Words | None
    confidence: float | None
    relative_change: float | None
    change_low: float | None
    change_high: float | None
    commits: Annotated[list[CommitPart], Field(max_length=_MOST_PARTS)]
    steps: Annotated[list[StepPart], Field(max_length=_MOST_PARTS)]


def bisection_lines(session: Session) -> Iterator[BisectionLine]:
    """All bisections, in the order in which they were asked for."""
    query = (
        select(BisectionRow, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == BisectionRow.project_id)
        .order_by(BisectionRow.requested_at, BisectionRow.bisection_id)
    )
    for row, project in session.execute(query).all():
        known: dict[str, Any] = {**columns_of(row, "project_id")}
        parts = {
            name: [columns_of(part, "bisection_id") for part in session.scalars(_parts(table, row.bisection_id))]
            for name, table in (("commits", BisectionCommitRow), ("steps", BisectionStepRow))
        }
        yield BisectionLine(project=project, **known, **parts)


def take_bisection(session: Session, line: BisectionLine) -> bool:
    """Store a bisection; False where it is there, or another of the same range that is not over."""
    row = line.model_dump(exclude={"kind", "project", "commits", "steps"})
    row["project_id"] = ensure_project(session, line.project)
    new = upsert(BisectionRow).values(row).on_conflict_do_nothing().returning(BisectionRow.bisection_id)
    if session.execute(new).scalar_one_or_none() is None:
        return False
    for table, parts in ((BisectionCommitRow, line.commits), (BisectionStepRow, line.steps)):
        if parts:
            of_it = {"bisection_id": line.bisection_id}
            session.execute(insert(table), [part.model_dump() | of_it for part in parts])
    return True


def _parts(table: type[BisectionCommitRow | BisectionStepRow], bisection_id: UUID) -> Any:
    return select(table).where(table.bisection_id == bisection_id).order_by(table.position)
