"""The tables of who may do what, and who did what: tokens, trusted repositories, triage and the audit trail; and when a
project was judged. They stand beside the records: none of this is in a record file.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, LargeBinary, func, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.auth.values import Scope, TriageState
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base
from roofwatch.db.values import Verdict

__all__ = [
    "AuditEntryRow",
    "Base",
    "JudgingRow",
    "TokenRow",
    "TriageRow",
    "TrustedRepositoryRow",
]


def _quoted(values: type[Scope | TriageState | Verdict]) -> str:
    return ", ".join(f"'{value}'" for value in values)


class TokenRow(Base):
    """Of the secret only the sha256, from which 256 random bits cannot be found: no salt or stretching is needed."""

    __tablename__ = "token"
    __table_args__ = (
        CheckConstraint("octet_length(secret_sha256) = 32", name="secret_is_a_sha256"),
        CheckConstraint("cardinality(scopes) > 0", name="scopes_not_empty"),
        CheckConstraint(f"scopes <@ ARRAY[{_quoted(Scope)}]", name="scopes"),
        CheckConstraint("expires_at > created_at", name="expires_later"),
    )

    token_id: Mapped[str] = mapped_column(primary_key=True)
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary)
    name: Mapped[str]
    # not a foreign key: a project is there with its first record, which needs a token
    project: Mapped[str | None]
    scopes: Mapped[list[str]]
    is_quarantined: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class TrustedRepositoryRow(Base):
    """A repository whose CI may send records of a project with no stored secret."""

    __tablename__ = "trusted_repository"
    __table_args__ = (CheckConstraint("cardinality(refs) > 0", name="refs_not_empty"),)

    repository: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(primary_key=True)
    refs: Mapped[list[str]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class TriageRow(Base):
    """What became of a regression: a row for every one that was ever found, as its row of the judgement is made anew
    each time. `sha`, `kernel` and `verdict` are those of the last judgement that found it.
    """

    __tablename__ = "triage"
    __table_args__ = (
        # of what was found, one at a time can be meant
        Index(None, "project_id", "sha", "kernel", "verdict", unique=True, postgresql_where=text("is_found")),
        CheckConstraint(f"verdict IN ({_quoted(Verdict)})", name="verdict"),
        CheckConstraint(f"state IN ({_quoted(TriageState)})", name="state"),
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
    newest_place: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str]
    person: Mapped[str | None]
    reason: Mapped[str | None]
    changed_at: Mapped[datetime | None]


class AuditEntryRow(Base):
    """Only ever added to. `actor` is who was let in, `person` who that one says it was for."""

    __tablename__ = "audit_entry"
    __table_args__ = (Index(None, "project", "id"), Index(None, "at"))

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    actor: Mapped[str]
    person: Mapped[str | None]
    action: Mapped[str]
    project: Mapped[str | None]
    subject: Mapped[str]
    before: Mapped[str | None]
    after: Mapped[str | None]
    reason: Mapped[str | None]


class JudgingRow(Base):
    """A project waits to be judged where it was asked for after the last judgement began."""

    __tablename__ = "judging"

    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"), primary_key=True)
    asked_at: Mapped[datetime]
    judged_at: Mapped[datetime | None]
