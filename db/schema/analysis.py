"""The tables of the analysis: what it found in each case, what changed since, and its queue."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, LargeBinary, func
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import CaseRow, ProjectRow
from roofwatch.db.schema.table import Base


class CaseAnalysisRow(Base):
    """What the last analysis of a case found. `basis` says by which method and on which branch."""

    __tablename__ = "case_analysis"

    case_id: Mapped[int] = mapped_column(
        ForeignKey(CaseRow.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    basis: Mapped[str]
    # lists of documents
    findings: Mapped[dict[str, Any]]
    series: Mapped[dict[str, Any]]
    # day of each judged series and measured day, as little-endian int32 since 0001-01-01
    days: Mapped[bytes] = mapped_column(LargeBinary)
    # rows of libraries and their values
    controls: Mapped[dict[str, Any]] = mapped_column(server_default="[[], []]")


class CaseChangeRow(Base):
    """A case with values that the stored analysis may lack; without a case, all of the project.

    Rows are only added and removed: what is added during an analysis waits for the next.
    """

    __tablename__ = "case_change"
    __table_args__ = (Index(None, "project_id"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    case_id: Mapped[int | None]


class AnalysisJobRow(Base):
    """The place of a project in the queue. A worker locks the row while it analyses the project, so
    requests are noted elsewhere: in `project.analysis_requested_at`.
    """

    __tablename__ = "analysis_job"
    __table_args__ = (CheckConstraint("failure_count >= 0", name="failure_count_not_negative"),)

    project_id: Mapped[int] = mapped_column(
        ForeignKey(ProjectRow.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    # in sequence
    failure_count: Mapped[int] = mapped_column(server_default="0")
    not_before: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
    duration_s: Mapped[float | None]
    error: Mapped[str | None]
