"""The tables of regressions: what the last analysis found, what people decided, and which projects wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.auth.values import TriageState
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base
from roofwatch.db.values import RegressionState, Verdict


class RegressionRow(Base):
    """A regression as one document. Every analysis of a project replaces its rows."""

    __tablename__ = "regression"

    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"), primary_key=True)
    sha: Mapped[str] = mapped_column(primary_key=True)
    kernel: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[Verdict] = mapped_column(primary_key=True)
    first_parent_count: Mapped[int]
    state: Mapped[RegressionState]
    # commits whose runs retention keeps
    evidence_commit_ids: Mapped[list[int]]
    document: Mapped[dict[str, Any]]


class TriageRow(Base):
    """The decision about a regression that any analysis ever found.

    `sha`, `kernel`, `verdict` and `series` are those of the last analysis that found it.
    """

    __tablename__ = "triage"
    __table_args__ = (
        Index(None, "project_id", "sha", "kernel", "verdict", unique=True, postgresql_where=text("is_found")),
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
    verdict: Mapped[Verdict]
    series: Mapped[list[str]]
    is_found: Mapped[bool]
    # the newest measured commit at the time of the decision
    newest_first_parent_count: Mapped[int]
    state: Mapped[TriageState]
    person: Mapped[str | None]
    reason: Mapped[str | None]
    changed_at: Mapped[datetime | None]


class AnalysisRequestRow(Base):
    """A project waits for an analysis if one was requested after the last began."""

    __tablename__ = "analysis_request"

    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"), primary_key=True)
    requested_at: Mapped[datetime]
    analysed_at: Mapped[datetime | None]
