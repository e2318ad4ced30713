"""The tables of what was judged: regressions with their change points."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Identity, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import CaseRow, CommitRow
from roofwatch.db.schema.table import Base, one_of
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

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
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
