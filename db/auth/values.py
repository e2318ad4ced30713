"""Values of who may do what, and who did what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Scope(StrEnum):
    """What a token is good for. No scope includes another but `admin`, which includes all."""

    INGEST = "ingest"
    READ = "read"
    TRIAGE = "triage"
    ADMIN = "admin"


class TriageState(StrEnum):
    """What became of a regression."""

    NEW = "new"
    """Nobody has decided, or it came back after that."""
    ACKNOWLEDGED = "acknowledged"
    """Somebody is at it."""
    EXPECTED = "expected"
    """It is real and stays: the price of something."""
    FIXED = "fixed"
    INVALID = "invalid"
    """It is none."""


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    token_id: str
    name: str
    project: str | None
    """None for all projects."""
    scopes: tuple[Scope, ...]
    is_quarantined: bool
    """All that is sent with it lands in quarantine."""
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewToken:
    token: Token
    text: str
    """What its holder sends. It is not stored and cannot be shown again."""


@dataclass(frozen=True)
class TrustedRepository:
    """A repository whose CI may send records of a project."""

    repository: str
    """`owner/name`, or the number that GitHub gave it, which outlives a change of name."""
    project: str
    refs: tuple[str, ...]
    """Patterns of refs whose records count; those of other refs land in quarantine."""


@dataclass(frozen=True)
class Triage:
    """The last decision about a regression."""

    regression_id: UUID
    """The same in every judgement, though where it lies and what belongs to it may be seen better later."""
    state: TriageState = TriageState.NEW
    person: str | None = None
    reason: str | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True)
class AuditEntry:
    entry_id: int
    at: datetime
    actor: str
    """Who was let in: a token by its id, a workflow by its repository and ref, or the command line."""
    person: str | None
    """For whom, as the actor says."""
    action: str
    project: str | None
    subject: str
    before: str | None
    after: str | None
    reason: str | None
