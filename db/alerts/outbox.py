"""The outbox: messages that wait to be sent, and what became of those that were.

A delivery that is `sending` has its row locked by whoever is at it, for as long as it takes, beside the committed state
that says so. So one that says `sending` and is not locked was left by a sender that died: it is claimed again at once,
and known to be uncertain. No clock decides that, and no slow sender is taken for a dead one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

from sqlalchemy import Engine, Select, exists, select
from sqlalchemy.orm import Session, aliased

from roofwatch.db.alerts.standing import to_alert, to_message
from roofwatch.db.alerts.values import AlertEvent, Delivery, DeliveryState
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.runs import ProjectRow

_OPEN = (DeliveryState.WAITING.value, DeliveryState.SENDING.value)


class Claim:
    """A delivery that this process alone is at. What became of it is committed when the block ends."""

    def __init__(self, row: DeliveryRow, delivery: Delivery) -> None:
        self._row = row
        self.delivery = delivery

    def note_sent(self, now: datetime) -> None:
        self._row.state, self._row.sent_at, self._row.error = DeliveryState.SENT.value, now, None

    def note_failure(self, error: str, *, is_uncertain: bool, next_attempt_at: datetime | None) -> None:
        """Note why it could not be sent.

        Args:
            error: For a person, without anything secret.
            is_uncertain: It may have arrived for all that.
            next_attempt_at: When to try again; None to give up.
        """
        row = self._row
        row.error, row.is_uncertain = error, row.is_uncertain or is_uncertain
        if next_attempt_at is None:
            row.state = DeliveryState.FAILED.value
        else:
            row.state, row.next_attempt_at = DeliveryState.WAITING.value, next_attempt_at


@contextmanager
def claim_next(engine: Engine, now: datetime) -> Iterator[Claim | None]:
    """Claim the delivery that has been due the longest for the time of a `with` block; None where none is.

    Messages of one alert go through a channel one after the other, in the order in which they were written.
    """
    attempt_id = uuid4()
    with Session(engine) as session, session.begin():
        row = session.scalars(_due(now).with_for_update(of=DeliveryRow, skip_locked=True).limit(1)).one_or_none()
        if row is None:
            delivery_id = None
        else:
            delivery_id = row.id
            # whoever was at it before died: nobody knows how far it had come
            row.is_uncertain = row.is_uncertain or row.state == DeliveryState.SENDING.value
            row.state, row.attempt_id, row.attempt_count = (
                DeliveryState.SENDING.value,
                attempt_id,
                row.attempt_count + 1,
            )
    if delivery_id is None:
        yield None
        return
    with Session(engine) as session, session.begin():
        mine = select(DeliveryRow).where(DeliveryRow.id == delivery_id, DeliveryRow.attempt_id == attempt_id)
        row = session.scalars(mine.with_for_update()).one_or_none()
        # between the two, somebody else may have taken ours for a dead one's, or its alert may be gone
        yield None if row is None else Claim(row, _delivery(session, row))


def list_deliveries(
    session: Session,
    project: str | None = None,
    *,
    states: Collection[DeliveryState] | None = None,
    limit: int = 100,
) -> list[Delivery]:
    """Deliveries, the newest first; of one project or some states only where these are given."""
    query = _with_alert().order_by(DeliveryRow.id.desc()).limit(limit)
    if project is not None:
        query = query.where(ProjectRow.name == project)
    if states is not None:
        query = query.where(DeliveryRow.state.in_([state.value for state in states]))
    return [_to_delivery(*row) for row in session.execute(query)]


def _due(now: datetime) -> Select[DeliveryRow]:
    earlier = aliased(DeliveryRow)
    comes_first = exists().where(
        earlier.alert_id == DeliveryRow.alert_id,
        earlier.channel == DeliveryRow.channel,
        earlier.id < DeliveryRow.id,
        earlier.state.in_(_OPEN),
    )
    return (
        select(DeliveryRow)
        .where(DeliveryRow.state.in_(_OPEN), DeliveryRow.next_attempt_at <= now, ~comes_first)
        .order_by(DeliveryRow.next_attempt_at, DeliveryRow.id)
    )


def _with_alert() -> Select[DeliveryRow, AlertRow, str]:
    return (
        select(DeliveryRow, AlertRow, ProjectRow.name)
        .join(AlertRow, AlertRow.id == DeliveryRow.alert_id)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
    )


def _delivery(session: Session, row: DeliveryRow) -> Delivery:
    return _to_delivery(*session.execute(_with_alert().where(DeliveryRow.id == row.id)).one())


def _to_delivery(row: DeliveryRow, alert: AlertRow, project: str) -> Delivery:
    return Delivery(
        delivery_id=row.id,
        key=row.key,
        channel=row.channel,
        event=AlertEvent(row.event),
        episode=row.episode,
        alert=to_alert(alert, project),
        message=to_message(row.message),
        state=DeliveryState(row.state),
        attempt_count=row.attempt_count,
        attempt_id=row.attempt_id,
        is_uncertain=row.is_uncertain,
        created_at=row.created_at,
        next_attempt_at=row.next_attempt_at,
        sent_at=row.sent_at,
        error=row.error,
    )
