"""Requests that are sent again because their answer was lost: done once, whoever asks how often."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.schema.access import IdempotencyKeyRow

KEPT_FOR = timedelta(days=7)
"""A client that has no answer by then has given up."""


class ReusedKeyError(StoreError):
    """A key that another request was done under."""


@dataclass(frozen=True)
class OnceOnly:
    """A request that a client gave a name of its own.

    Source: the Idempotency-Key header of the IETF's draft (draft-ietf-httpapi-idempotency-key-header).
    """

    actor: str
    """Who was let in: everybody's keys are their own."""
    key: str
    request_sha256: bytes
    """Of all that the request asks for."""


def is_first(session: Session, request: OnceOnly) -> bool:
    """Note a request in the transaction that does what it asks for; False where that was done before. One that is being
    done is waited for, and one that failed was not done.

    Raises:
        ReusedKeyError: what was done under the key is something else.
    """
    row = IdempotencyKeyRow
    values = {"actor": request.actor, "key": request.key, "request_sha256": request.request_sha256}
    new = upsert(row).values(values).on_conflict_do_nothing().returning(row.key)
    if session.scalar(new) is not None:
        session.execute(delete(row).where(row.done_at < func.now() - KEPT_FOR))
        return True
    of_key = select(row.request_sha256).where(row.actor == request.actor, row.key == request.key)
    done = session.scalar(of_key)
    if done is not None and not hmac.compare_digest(done, request.request_sha256):
        raise ReusedKeyError(
            "this Idempotency-Key was sent with another request before; a new request needs a key of its own"
        )
    return False
