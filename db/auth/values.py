"""Values of access: scopes, tokens, trusted repositories, triage and the audit trail."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from roofwatch.db.values import Regression, RegressionState, Verdict


class Scope(StrEnum):
    """What a token may do. Only `admin` includes the others."""

    INGEST = "ingest"
    READ = "read"
    TRIAGE = "triage"
    ADMIN = "admin"


class TriageState(StrEnum):
    """What people decided about a regression."""

    NEW = "new"
    """Not triaged, or found again."""
    ACKNOWLEDGED = "acknowledged"
    """Someone works on it."""
    EXPECTED = "expected"
    """Real and accepted."""
    FIXED = "fixed"
    INVALID = "invalid"
    """Not a regression."""


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    token_id: str
    name: str
    project: str | None
    """None for all projects."""
    scopes: tuple[Scope, ...]
    is_quarantined: bool
    """Records sent with it are quarantined."""
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None

    def state(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at <= now:
            return "expired"
        return "quarantine" if self.is_quarantined else "good"


@dataclass(frozen=True)
class NewToken:
    token: Token
    text: str
    """What clients send. It is not stored and cannot be shown again."""


@dataclass(frozen=True)
class TrustedRepository:
    """A repository whose CI may send records of a project."""

    repository: str
    """`owner/name`, or GitHub's repository ID, which survives a rename."""
    project: str
    refs: tuple[str, ...]
    """Patterns of trusted refs; records of other refs are quarantined."""


@dataclass(frozen=True)
class Triage:
    """The last decision about a regression."""

    regression_id: UUID
    """The same in every analysis that finds the regression."""
    state: TriageState = TriageState.NEW
    person: str | None = None
    reason: str | None = None
    changed_at: datetime | None = None


_WAITING = {TriageState.NEW, TriageState.ACKNOWLEDGED}


@dataclass(frozen=True)
class TriagedRegression:
    """A regression with its triage."""

    regression_id: str
    """The same in every analysis."""
    regression: Regression
    triage: Triage

    @property
    def is_open(self) -> bool:
        """Whether somebody still has to act on it."""
        return (
            self.regression.verdict is Verdict.REGRESSED
            and self.regression.state is RegressionState.OPEN
            and self.regression.recovered_at is None
            and self.triage.state in _WAITING
        )

    @property
    def settled_by(self) -> str:
        """Why it is no longer open."""
        if self.regression.state is RegressionState.DISMISSED:
            return "not confirmed when measured again"
        if self.regression.state is RegressionState.NO_LONGER_FOUND:
            return "no longer found"
        if self.triage.state not in _WAITING:
            return str(self.triage.state)
        return "recovered" if self.regression.recovered_at is not None else "open"


@dataclass(frozen=True)
class AuditEntry:
    entry_id: int
    at: datetime
    actor: str
    """Who was authenticated: a token by its ID, a workflow by repository and ref, or the command line."""
    person: str | None
    """For whom, as the actor claims."""
    action: str
    project: str | None
    subject: str
    before: str | None
    after: str | None
    reason: str | None
