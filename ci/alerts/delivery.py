"""Send the messages in the outbox: claim, send, mark.

If a process dies after the claim, it is unknown whether the message arrived. It is sent again with the same key.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Engine

from roofwatch.ci.messages import AlertError
from roofwatch.db.alerts.alerts import Claim, claim_next
from roofwatch.db.alerts.values import Delivery, DeliveryState

MAX_ATTEMPTS = 12
"""About twenty hours: long enough for a channel that is down overnight."""
_FIRST_WAIT = timedelta(minutes=1)
"""Doubled after each attempt."""
_LONGEST_WAIT = timedelta(hours=6)
_log = logging.getLogger("roofwatch.alerts")


class SendError(AlertError):
    """A message could not be sent; if `is_uncertain`, it may have arrived."""

    def __init__(self, message: str, *, is_uncertain: bool, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        self.retry_after = retry_after or timedelta()
        """Shortest time to wait."""


class Sender(Protocol):
    """A channel that is ready for use."""

    def send(self, delivery: Delivery) -> None:
        """Send a message. Raises `SendError`."""


def deliver_waiting(
    engine: Engine, channels: Mapping[str, Sender | str], now: Callable[[], datetime], *, limit: int = 1_000
) -> list[Delivery]:
    """Send every message that is due, up to a limit; return those that were tried, with the result."""
    done: list[Delivery] = []
    while len(done) < limit:
        with claim_next(engine, now()) as claim:
            if claim is None:
                break
            done.append(_deliver(claim, channels, now))
    return done


def _deliver(claim: Claim, channels: Mapping[str, Sender | str], now: Callable[[], datetime]) -> Delivery:
    delivery = claim.delivery
    try:
        _send(delivery, channels.get(delivery.channel, "the rules no longer have this channel"))
    except SendError as error:
        again_at = None
        if delivery.attempt_count < MAX_ATTEMPTS:
            wait: timedelta = min(_FIRST_WAIT * 2.0 ** (delivery.attempt_count - 1), _LONGEST_WAIT)
            again_at = now() + max(wait, error.retry_after)
        claim.note_failure(str(error), is_uncertain=error.is_uncertain, next_attempt_at=again_at)
        then = "given up" if again_at is None else f"next attempt at {again_at:%Y-%m-%d %H:%M:%S} UTC"
        _log.warning("alert message %s through %r: %s; %s", delivery.key, delivery.channel, error, then)
        state = DeliveryState.FAILED if again_at is None else DeliveryState.WAITING
        return replace(delivery, state=state, error=str(error))
    claim.note_sent(now())
    return replace(delivery, state=DeliveryState.SENT, error=None)


def _send(delivery: Delivery, channel: Sender | str) -> None:
    if delivery.attempt_count > MAX_ATTEMPTS:
        raise SendError("every process that tried to send it died", is_uncertain=True)
    if isinstance(channel, str):
        raise SendError(channel, is_uncertain=False)
    try:
        channel.send(delivery)
    except SendError:
        raise
    except Exception as error:  # noqa: BLE001  one broken message must not block all others
        # its text may have an address
        raise SendError(f"unexpected {type(error).__name__}", is_uncertain=True) from None
