"""Tokens: made, checked, listed, revoked.

A token reads `rw_<id>_<secret>`: the id, which may be shown, finds the row, and the secret of 256 random bits proves
the rest. Stored is the secret's sha256, which is compared in a time that tells nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Engine, insert, or_, select, update
from sqlalchemy.orm import Session

from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import NewToken, Scope, Token
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.access import TokenRow

LONGEST_VALIDITY = timedelta(days=366)

_PREFIX = "rw"
_TEXT = re.compile(rf"{_PREFIX}_(?P<token_id>[0-9a-f]{{12}})_(?P<secret>[A-Za-z0-9_-]{{43}})")
_USE_RECORDED_EVERY = timedelta(minutes=1)
_NOBODY_S_HASH = bytes(32)


def create_token(
    engine: Engine,
    *,
    name: str,
    project: str | None,
    scopes: Collection[Scope],
    now: datetime,
    validity: timedelta,
    is_quarantined: bool = False,
    actor: str,
) -> NewToken:
    """Make a token.

    Args:
        engine: Of the store.
        name: What it is for, so that a person knows it again.
        project: The only one that it is good for, which need not be there yet; None for all.
        scopes: What it may do.
        now: When its time begins.
        validity: Until it expires.
        is_quarantined: All that is sent with it lands in quarantine.
        actor: Who makes it, for the audit trail.

    Raises:
        StoreError: no scope, or a validity that cannot be.
    """
    if not scopes:
        raise StoreError(f"a token without scope is good for nothing; the scopes are {', '.join(Scope)}")
    if not timedelta() < validity <= LONGEST_VALIDITY:
        raise StoreError(
            f"a token is valid for 1 to {LONGEST_VALIDITY.days} days, not {validity.days}; make it anew then"
        )
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = {
        "token_id": token_id,
        "secret_sha256": _sha256(secret),
        "name": name,
        "project": project,
        "scopes": [scope.value for scope in Scope if scope in scopes],
        "is_quarantined": is_quarantined,
        "created_at": now,
        "expires_at": now + validity,
    }
    with Session(engine) as session, session.begin():
        session.execute(insert(TokenRow), [row])
        token = _to_token(session.get_one(TokenRow, token_id))
        scope_names = " ".join(token.scopes)
        add_entry(session, actor=actor, action="token.create", project=project, subject=token_id, after=scope_names)
    return NewToken(token, f"{_PREFIX}_{token_id}_{secret}")


def check_token(engine: Engine, text: str, now: datetime) -> Token | None:
    """The token of a text, its use recorded; None where it is none of ours, expired or revoked. The three look the same
    from outside, to the time that it takes.
    """
    said = _TEXT.fullmatch(text)
    with Session(engine) as session:
        row = None if said is None else session.get(TokenRow, said["token_id"])
        stored = _NOBODY_S_HASH if row is None else row.secret_sha256
        is_right = hmac.compare_digest(stored, _sha256(text if said is None else said["secret"]))
        if row is None or not is_right or row.revoked_at is not None or row.expires_at <= now:
            return None
        token = _to_token(row)
        is_stale = token.last_used_at is None or token.last_used_at <= now - _USE_RECORDED_EVERY
        if is_stale:
            _record_use(session, token.token_id, now)
    return token


def list_tokens(session: Session, project: str | None = None) -> list[Token]:
    """All tokens, expired and revoked ones too, the newest first; those of a project include those of all projects."""
    query = select(TokenRow).order_by(TokenRow.created_at.desc(), TokenRow.token_id)
    if project is not None:
        query = query.where(or_(TokenRow.project == project, TokenRow.project.is_(None)))
    return [_to_token(row) for row in session.scalars(query)]


def revoke_token(engine: Engine, token_id: str, *, now: datetime, actor: str) -> Token:
    """End a token at once; one that is revoked stays as it is.

    Raises:
        StoreError: there is none with this id.
    """
    with Session(engine) as session, session.begin():
        row = session.get(TokenRow, token_id, with_for_update=True)
        if row is None:
            raise StoreError(f"token {token_id}: there is none with this id; see: roofwatch token list")
        if row.revoked_at is None:
            row.revoked_at = now
            add_entry(session, actor=actor, action="token.revoke", project=row.project, subject=token_id)
        session.flush()
        return _to_token(row)


def _record_use(session: Session, token_id: str, now: datetime) -> None:
    # of many requests at once one writes
    is_stale = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at <= now - _USE_RECORDED_EVERY)
    session.execute(update(TokenRow).where(TokenRow.token_id == token_id, is_stale).values(last_used_at=now))
    session.commit()


def _sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _to_token(row: TokenRow) -> Token:
    return Token(
        token_id=row.token_id,
        name=row.name,
        project=row.project,
        scopes=tuple(Scope(scope) for scope in row.scopes),
        is_quarantined=row.is_quarantined,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
