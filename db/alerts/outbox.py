"""The outbox: messages to send, and what became of those that were sent.

A sender commits the state `sending` and keeps the row locked while it sends. A row that is `sending` but not locked was
left by a sender that died; it is claimed again, and marked as uncertain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

from pydantic import TypeAdapter
from sqlalchemy import Engine, Select, exists, select
from sqlalchemy.orm import Session, aliased

from roofwatch.db.alerts.alerts import to_alert
from roofwatch.db.alerts.values import Delivery, DeliveryState, Message
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import to_value

_OPEN = (DeliveryState.WAITING, DeliveryState.SENDING)
_MESSAGE = TypeAdapter(Message)


class Claim:
    """A delivery that only this process may send. Its outcome is committed when the `with` block ends."""

    def __init__(self, row: DeliveryRow, delivery: Delivery) -> None:
        self._row = row
        self.delivery = delivery

    def note_sent(self, now: datetime) -> None:
        self._row.state, self._row.sent_at, self._row.error = DeliveryState.SENT, now, None

    def note_failure(self, error: str, *, is_uncertain: bool, next_attempt_at: datetime | None) -> None:
        """Note a failed attempt.

        Args:
            error: For people, without secrets.
            is_uncertain: The message may have arrived.
            next_attempt_at: When to try again; None to give up.
        """
        row = self._row
        row.error, row.is_uncertain = error, row.is_uncertain or is_uncertain
        if next_attempt_at is None:
            row.state = DeliveryState.FAILED
        else:
            row.state, row.next_attempt_at = DeliveryState.WAITING, next_attempt_at


@contextmanager
def claim_next(engine: Engine, now: datetime) -> Iterator[Claim | None]:
    """Claim the delivery that is due longest; None if none is due.

    Messages of one alert pass a channel in the order in which they were written.
    """
    attempt_id = uuid4()
    with Session(engine) as session, session.begin():
        due = _due(now).with_for_update(of=DeliveryRow, skip_locked=True).limit(1)
        row = session.scalars(due).one_or_none()
        delivery_id = None if row is None else row.id
        if row is not None:
            row.is_uncertain = row.is_uncertain or row.state is DeliveryState.SENDING
            row.state, row.attempt_id, row.attempt_count = DeliveryState.SENDING, attempt_id, row.attempt_count + 1
    if delivery_id is None:
        yield None
        return
    with Session(engine) as session, session.begin():
        # another sender may have claimed it between the two transactions
        own = select(DeliveryRow).where(DeliveryRow.id == delivery_id, DeliveryRow.attempt_id == attempt_id)
        row = session.scalars(own.with_for_update()).one_or_none()
        if row is None:
            yield None
        else:
            _, alert, project = session.execute(_deliveries().where(DeliveryRow.id == row.id)).one()
            yield Claim(row, _to_delivery(row, alert, project))


def list_deliveries(
    session: Session,
    project: str | None = None,
    *,
    states: Collection[DeliveryState] | None = None,
    limit: int = 100,
) -> list[Delivery]:
    """Deliveries, the newest first; only of one project or some states if given."""
    query = _deliveries().order_by(DeliveryRow.id.desc()).limit(limit)
    if project is not None:
        query = query.where(ProjectRow.name == project)
    if states is not None:
        query = query.where(DeliveryRow.state.in_(states))
    return [_to_delivery(*row) for row in session.execute(query)]


def _due(now: datetime) -> Select[DeliveryRow]:
    earlier = aliased(DeliveryRow)
    has_earlier = exists().where(
        earlier.alert_id == DeliveryRow.alert_id,
        earlier.channel == DeliveryRow.channel,
        earlier.id < DeliveryRow.id,
        earlier.state.in_(_OPEN),
    )
    return (
        select(DeliveryRow)
        .where(DeliveryRow.state.in_(_OPEN), DeliveryRow.next_attempt_at <= now, ~has_earlier)
        .order_by(DeliveryRow.next_attempt_at, DeliveryRow.id)
    )


def _deliveries() -> Select[DeliveryRow, AlertRow, str]:
    return (
        select(DeliveryRow, AlertRow, ProjectRow.name)
        .join(AlertRow, AlertRow.id == DeliveryRow.alert_id)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
    )


def _to_delivery(row: DeliveryRow, alert: AlertRow, project: str) -> Delivery:
    return to_value(
        Delivery,
        row,
        delivery_id=row.id,
        alert=to_alert(alert, project),
        message=_MESSAGE.validate_python(row.message),
    )
