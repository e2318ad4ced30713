"""The tables of regressions: their change points, what people decide, and which projects wait for an analysis."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.auth.values import TriageState
from roofwatch.db.schema.runs import CaseRow, CommitRow, ProjectRow
from roofwatch.db.schema.table import Base, RowId, one_of
from roofwatch.db.values import Cause, RegressionState, Verdict


class RegressionRow(Base):
    """Judged from the runs and replaced whole whenever a project is judged again."""

    __tablename__ = "regression"
    __table_args__ = (
        UniqueConstraint("commit_id", "kernel", "verdict"),
        one_of("verdict", Verdict),
        one_of("cause", Cause),
        one_of("state", RegressionState),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    kernel: Mapped[str]
    verdict: Mapped[str]
    cause: Mapped[str]
    summary: Mapped[str]
    state: Mapped[str]
    is_confirmed: Mapped[bool]
    suspects: Mapped[list[dict[str, Any]]] = mapped_column(JSON())
    family: Mapped[str]
    typical_change: Mapped[float | None]
    change_spread: Mapped[float | None]
    is_alert: Mapped[bool]
    recovered_commit_id: Mapped[int | None] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))


class ChangePointRow(Base):
    __tablename__ = "change_point"
    __table_args__ = (
        Index(None, "commit_id"),
        Index(None, "previous_commit_id"),
        Index(None, "case_id"),
        one_of("verdict", Verdict),
    )

    regression_id: Mapped[int] = mapped_column(ForeignKey(RegressionRow.id, ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    previous_commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    case_id: Mapped[int] = mapped_column(ForeignKey(CaseRow.id, ondelete="CASCADE"))
    implementation: Mapped[str]
    metric: Mapped[str]
    runner_class: Mapped[str]
    function: Mapped[str]
    target: Mapped[str]
    tensor: Mapped[str]
    verdict: Mapped[str]
    before: Mapped[float | None]
    after: Mapped[float | None]
    evidence: Mapped[str]
    is_gradual: Mapped[bool]


class TriageRow(Base):
    """What became of a regression: a row for every one that was ever found, as its row of the judgement is made anew
    each time. `sha`, `kernel` and `verdict` are those of the last judgement that found it.
    """

    __tablename__ = "triage"
    __table_args__ = (
        # of what was found, one at a time can be meant
        Index(None, "project_id", "sha", "kernel", "verdict", unique=True, postgresql_where=text("is_found")),
        one_of("verdict", Verdict),
        one_of("state", TriageState),
        CheckConstraint(
            "num_nulls(person, reason, changed_at) = 0 OR "
            "(state = 'new' AND num_nonnulls(person, reason, changed_at) = 0)",
            name="decided_whole",
        ),
    )

    regression_id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    sha: Mapped[str]
    kernel: Mapped[str]
    verdict: Mapped[str]
    series: Mapped[list[str]]
    is_found: Mapped[bool]
    # the newest commit that was measured when it was decided
    newest_place: Mapped[int]
    state: Mapped[str]
    person: Mapped[str | None]
    reason: Mapped[str | None]
    changed_at: Mapped[datetime | None]


class JudgingRow(Base):
    """A project waits to be judged where it was asked for after the last judgement began."""

    __tablename__ = "judging"

    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"), primary_key=True)
    asked_at: Mapped[datetime]
    judged_at: Mapped[datetime | None]
