"""Tokens, repositories whose CI may send records without one of ours, and the audit trail of who
did what and why.

A token reads `rw_<id>_<secret>`. The ID is public; the secret has 256 random bits, and only its
sha256 is stored.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, insert, or_, select, update
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.schema.access import AuditEntryRow, TokenRow, TrustedRepositoryRow
from roofwatch.db.schema.table import to_value
from roofwatch.model.history import Scope

# a token that never expires outlives the reason for it
MAX_VALIDITY = timedelta(days=366)

# 32 random bytes in base64, after an id that may be logged
_TOKEN = re.compile(r"rw_(?P<token_id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_USE_INTERVAL = timedelta(minutes=1)
"""Resolution of the time of last use."""
# compared for unknown tokens too, so that the time tells nothing
_NO_HASH = bytes(32)


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
    runner_class: str | None = None
    """Whose jobs a token with the scope `runner` may take."""
    device_minutes: float | None = None
    """That jobs queued with it may take in 24 hours; None for any."""

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
class AuditEntry:
    entry_id: int
    recorded_at: datetime
    actor: str
    """Who was authenticated: a token by its ID, a workflow by repository and ref, or the command
    line.
    """
    person: str | None
    """For whom, as the actor claims."""
    action: str
    project: str | None
    subject: str
    before: str | None
    after: str | None
    reason: str | None


def create_token(
    engine: Engine,
    *,
    name: str,
    project: str | None,
    scopes: Collection[Scope],
    now: datetime,
    validity: timedelta,
    is_quarantined: bool = False,
    runner_class: str | None = None,
    device_minutes: float | None = None,
    actor: str,
) -> NewToken:
    """Create a token for one project, or for all if None; `is_quarantined` quarantines all records
    sent with it.

    Jobs queued with it may take `device_minutes` in 24 hours, None for any. A token with the scope
    `runner` has no other scope, and takes jobs of its `runner_class`.

    Raises:
        StoreError: no scope, a runner without a class, or a validity above `MAX_VALIDITY`.
    """
    if not scopes:
        raise StoreError(f"a token needs a scope: {', '.join(Scope)}")
    is_runner = Scope.RUNNER in scopes
    if is_runner and (runner_class is None or len(scopes) > 1):
        raise StoreError("a token with the scope runner has no other scope, and needs --class")
    if runner_class is not None and not is_runner:
        raise StoreError("only a token with the scope runner has a runner class")
    if not timedelta() < validity <= MAX_VALIDITY:
        raise StoreError(f"a token is valid for 1 to {MAX_VALIDITY.days} days, not {validity.days}")
    token_id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    row = TokenRow(
        token_id=token_id,
        secret_sha256=_sha256(secret),
        name=name,
        project=project,
        scopes=[scope.value for scope in Scope if scope in scopes],
        is_quarantined=is_quarantined,
        created_at=now,
        expires_at=now + validity,
        runner_class=runner_class,
        device_minutes=device_minutes,
    )
    with Session(engine) as session, session.begin():
        session.add(row)
        session.flush()
        scope_names = " ".join(row.scopes)
        add_entry(
            session,
            actor=actor,
            action="token.create",
            project=project,
            subject=token_id,
            after=scope_names,
        )
        return NewToken(_to_token(row), f"rw_{token_id}_{secret}")


def check_token(engine: Engine, text: str, now: datetime) -> Token | None:
    """Find the token of a text and record its use. None if it is unknown, expired or revoked, all
    in equal time.
    """
    parsed = _TOKEN.fullmatch(text)
    with Session(engine) as session:
        row = None
        if parsed is not None:
            row = session.get(TokenRow, parsed["token_id"])
        stored = _NO_HASH if row is None else row.secret_sha256
        is_right = hmac.compare_digest(
            stored, _sha256(text if parsed is None else parsed["secret"])
        )
        if row is None or not is_right or row.revoked_at is not None or row.expires_at <= now:
            return None
        token = _to_token(row)
        if token.last_used_at is None or token.last_used_at <= now - _USE_INTERVAL:
            # of many concurrent requests only one writes
            is_stale = or_(
                TokenRow.last_used_at.is_(None), TokenRow.last_used_at <= now - _USE_INTERVAL
            )
            session.execute(
                update(TokenRow)
                .where(TokenRow.token_id == token.token_id, is_stale)
                .values(last_used_at=now)
            )
            session.commit()
    return token


def list_tokens(session: Session, project: str | None = None) -> list[Token]:
    """All tokens, also expired and revoked ones, newest first; for a project, its own and those of
    all projects.
    """
    query = select(TokenRow).order_by(TokenRow.created_at.desc(), TokenRow.token_id)
    if project is not None:
        query = query.where(or_(TokenRow.project == project, TokenRow.project.is_(None)))
    return [_to_token(row) for row in session.scalars(query)]


def revoke_token(engine: Engine, token_id: str, *, now: datetime, actor: str) -> Token:
    """Revoke a token at once; does nothing if it is revoked already.

    Raises:
        StoreError: unknown ID.
    """
    with Session(engine) as session, session.begin():
        row = session.get(TokenRow, token_id, with_for_update=True)
        if row is None:
            raise StoreError(f"token {token_id}: unknown ID; see: roofwatch token list")
        if row.revoked_at is None:
            row.revoked_at = now
            add_entry(
                session,
                actor=actor,
                action="token.revoke",
                project=row.project,
                subject=token_id,
            )
        session.flush()
        return _to_token(row)


def trust_repository(
    engine: Engine,
    repository: str,
    project: str,
    refs: Sequence[str],
    *,
    actor: str,
) -> None:
    """Let a repository's workflows send records of a project. Records of other refs are
    quarantined.
    """
    with Session(engine) as session, session.begin():
        session.merge(TrustedRepositoryRow(repository=repository, project=project, refs=list(refs)))
        refs_text = " ".join(refs)
        add_entry(
            session,
            actor=actor,
            action="repository.trust",
            project=project,
            subject=repository,
            after=refs_text,
        )


def distrust_repository(engine: Engine, repository: str, project: str, *, actor: str) -> None:
    """Stop trusting a repository.

    Raises:
        StoreError: it was not trusted.
    """
    with Session(engine) as session, session.begin():
        row = session.get(TrustedRepositoryRow, (repository, project))
        if row is None:
            raise StoreError(f"repository {repository}: not trusted for {project}")
        session.delete(row)
        add_entry(
            session,
            actor=actor,
            action="repository.distrust",
            project=project,
            subject=repository,
        )


def list_trusted(session: Session, names: Collection[str] | None = None) -> list[TrustedRepository]:
    """All trusted repositories, or those with some names."""
    query = select(TrustedRepositoryRow).order_by(
        TrustedRepositoryRow.repository, TrustedRepositoryRow.project
    )
    if names is not None:
        query = query.where(TrustedRepositoryRow.repository.in_(names))
    return [
        TrustedRepository(row.repository, row.project, tuple(row.refs))
        for row in session.scalars(query)
    ]


def add_entry(
    session: Session,
    *,
    actor: str,
    action: str,
    project: str | None,
    subject: str,
    **details: str | None,
) -> None:
    """Add an entry in the transaction that makes the change. Details: `person`, `before`, `after`,
    `reason`.
    """
    entry = {"actor": actor, "action": action, "project": project, "subject": subject, **details}
    session.execute(insert(AuditEntryRow), [entry])


def list_entries(
    session: Session,
    project: str,
    *,
    subject: str | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> list[AuditEntry]:
    """Entries of a project, newest first; only of one subject, or before one entry, if given."""
    query = select(AuditEntryRow).where(AuditEntryRow.project == project)
    if subject is not None:
        query = query.where(AuditEntryRow.subject == subject)
    if before_id is not None:
        query = query.where(AuditEntryRow.entry_id < before_id)
    rows = session.scalars(query.order_by(AuditEntryRow.entry_id.desc()).limit(limit))
    return [to_value(AuditEntry, row) for row in rows]


def _sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _to_token(row: TokenRow) -> Token:
    # a newer server may know more scopes; they open nothing here
    scopes = tuple(scope for scope in Scope if scope.value in row.scopes)
    return to_value(Token, row, scopes=scopes)
