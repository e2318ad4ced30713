"""The tables of access: tokens, trusted repositories, readers and the audit trail."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Identity, Index, LargeBinary, func
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.table import Base, not_negative, quoted
from roofwatch.model.history import Scope


class TokenRow(Base):
    """Only the sha256 of a secret is stored. It has 256 random bits, so it needs no salt."""

    __tablename__ = "token"
    __table_args__ = (
        CheckConstraint("octet_length(secret_sha256) = 32", name="secret_is_a_sha256"),
        CheckConstraint("cardinality(scopes) > 0", name="scopes_not_empty"),
        CheckConstraint(f"scopes <@ ARRAY[{quoted(Scope)}]", name="scopes"),
        CheckConstraint("expires_at > created_at", name="expires_later"),
        CheckConstraint(
            "(runner_class IS NOT NULL) = ('runner' = ANY (scopes)) "
            "AND (runner_class IS NULL OR cardinality(scopes) = 1)",
            name="runner_has_a_class_and_no_other_scope",
        ),
        *not_negative("device_minutes"),
    )

    token_id: Mapped[str] = mapped_column(primary_key=True)
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary)
    name: Mapped[str]
    # no foreign key: a project is created by its first record, which needs a token
    project: Mapped[str | None]
    scopes: Mapped[list[str]]
    is_quarantined: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    runner_class: Mapped[str | None]
    device_minutes: Mapped[float | None]


class TrustedRepositoryRow(Base):
    __tablename__ = "trusted_repository"
    __table_args__ = (CheckConstraint("cardinality(refs) > 0", name="refs_not_empty"),)

    repository: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(primary_key=True)
    refs: Mapped[list[str]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ProjectAccessRow(Base):
    """A restricted project. Others can be read by everybody who reaches the service."""

    __tablename__ = "project_access"

    # no foreign key: a project can be restricted before its first record
    project: Mapped[str] = mapped_column(primary_key=True)
    readers: Mapped[list[str]]


class AuditEntryRow(Base):
    """Append-only. `actor` was authenticated; `person` is whom the actor names."""

    __tablename__ = "audit_entry"
    __table_args__ = (Index(None, "project", "entry_id"), Index(None, "at"))

    entry_id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    # the column has its name in the released schema
    recorded_at: Mapped[datetime] = mapped_column("at", server_default=func.now())
    actor: Mapped[str]
    person: Mapped[str | None]
    action: Mapped[str]
    project: Mapped[str | None]
    subject: Mapped[str]
    before: Mapped[str | None]
    after: Mapped[str | None]
    reason: Mapped[str | None]
