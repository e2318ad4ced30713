"""Send what waits in the outbox: claim, send, mark.

A process may die at any of these steps. Before the claim is committed, nothing has happened. After it, whether the
message arrived is not known, so it is sent again with the same key (`roofwatch.ci.alerts.sending` has what becomes of
that by
kind of channel). A mark is committed before the next message is claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Engine

from roofwatch.ci.alerts.retry import MAX_ATTEMPTS, next_attempt_at
from roofwatch.ci.alerts.sending import Sender, SendError
from roofwatch.ci.alerts.text import notice_of
from roofwatch.db.alerts.outbox import Claim, claim_next
from roofwatch.db.alerts.values import Delivery, DeliveryState

_log = logging.getLogger("roofwatch.alerts")


def deliver_waiting(
    engine: Engine, channels: Mapping[str, Sender | str], now: Callable[[], datetime], *, limit: int = 1_000
) -> list[Delivery]:
    """Send every message that is due.

    Args:
        engine: Of the store.
        channels: By name; where one cannot be used, why.
        now: The time.
        limit: At most so many.

    Returns:
        What was tried, with how it went.
    """
    done: list[Delivery] = []
    while len(done) < limit:
        with claim_next(engine, now()) as claim:
            if claim is None:
                break
            done.append(_send(claim, channels, now))
    return done


def _try(channel: Sender, delivery: Delivery) -> None:
    try:
        channel.send(notice_of(delivery), str(delivery.key))
    except SendError:
        raise
    except Exception as error:  # noqa: BLE001  one message that no channel was made for must not hold all others
        # the error's own text may quote an address
        raise SendError(f"unexpected: {type(error).__name__}", is_uncertain=True) from None


def _send(claim: Claim, channels: Mapping[str, Sender | str], now: Callable[[], datetime]) -> Delivery:
    delivery = claim.delivery
    try:
        if delivery.attempt_count > MAX_ATTEMPTS:  # whoever tries it dies of it
            raise SendError("nobody who tried to send it lived to say so", is_uncertain=True)
        channel = channels.get(delivery.channel, "the rules have no such channel any more")
        if isinstance(channel, str):
            raise SendError(channel, is_uncertain=False)
        _try(channel, delivery)
    except SendError as error:
        again_at = next_attempt_at(delivery.attempt_count, now(), asked_wait_s=error.wait_s)
        claim.note_failure(str(error), is_uncertain=error.is_uncertain, next_attempt_at=again_at)
        _log.warning(
            "alert message %s through %r: %s; %s",
            *(delivery.key, delivery.channel, error),
            "given up" if again_at is None else f"again at {again_at:%Y-%m-%d %H:%M:%S} UTC",
        )
        state = DeliveryState.FAILED if again_at is None else DeliveryState.WAITING
        return replace(delivery, state=state, error=str(error))
    claim.note_sent(now())
    return replace(delivery, state=DeliveryState.SENT, error=None)
