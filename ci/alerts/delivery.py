"""Send the messages in the outbox: claim, send, write the outcome.

If a process dies after the claim, it is unknown whether the message arrived. It is sent again with the same key.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Engine

from roofwatch.ci.messages import AlertError
from roofwatch.db.alert_values import Delivery, DeliveryState
from roofwatch.db.alerts import claim_next, write_outcome

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


Send = Callable[[Delivery], None]
"""A channel that is ready for use: sends a message, or raises `SendError`."""


def deliver_waiting(engine: Engine, channels: Mapping[str, Send | str], now: Callable[[], datetime]) -> list[Delivery]:
    """Send every message that is due; return those that were tried, with the result."""
    done: list[Delivery] = []
    while (claimed := claim_next(engine, now())) is not None:
        done.append(_attempt(claimed, channels.get(claimed.channel, "the rules no longer have this channel"), now))
        write_outcome(engine, done[-1])
    return done


def _attempt(delivery: Delivery, channel: Send | str, now: Callable[[], datetime]) -> Delivery:
    try:
        _send(delivery, channel)
    except SendError as error:
        wait: timedelta = min(_FIRST_WAIT * 2.0 ** (delivery.attempt_count - 1), _LONGEST_WAIT)
        failed = replace(
            delivery,
            state=DeliveryState.WAITING if delivery.attempt_count < MAX_ATTEMPTS else DeliveryState.FAILED,
            next_attempt_at=now() + max(wait, error.retry_after),
            is_uncertain=delivery.is_uncertain or error.is_uncertain,
            error=str(error),
        )
        is_over = failed.state is DeliveryState.FAILED
        then = "given up" if is_over else f"next attempt at {failed.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        _log.warning("alert message %s through %r: %s; %s", delivery.key, delivery.channel, error, then)
        return failed
    return replace(delivery, state=DeliveryState.SENT, sent_at=now(), error=None)


def _send(delivery: Delivery, channel: Send | str) -> None:
    if delivery.attempt_count > MAX_ATTEMPTS:
        raise SendError("every process that tried to send it died", is_uncertain=True)
    if isinstance(channel, str):
        raise SendError(channel, is_uncertain=False)
    try:
        channel(delivery)
    except SendError:
        raise
    except Exception as error:  # noqa: BLE001  one broken message must not block all others
        # its text may have an address
        raise SendError(f"unexpected {type(error).__name__}", is_uncertain=True) from None
