"""Alerts and the outbox of their messages.

A change of an alert and the messages about it are written in one transaction. A sender commits the state `sending` and
keeps the row locked while it sends. A row that is `sending` but not locked was left by a sender that died; it is
claimed again, and marked as uncertain.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import datetime
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlalchemy import Engine, Select, exists, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session, aliased

from roofwatch.db.alerts.values import Alert, AlertState, AlertStep, Delivery, DeliveryState, Message
from roofwatch.db.auth.access import add_entry
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import lock_project
from roofwatch.db.regressions.triage import decide
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import to_value

_COLUMNS = [field.name for field in fields(Alert) if field.name not in {"project", "message", "told_at"}]
_MESSAGE = TypeAdapter(Message)
_TIMES = TypeAdapter(dict[str, datetime])
_UNSENT = (DeliveryState.WAITING, DeliveryState.SENDING)


def list_alerts(
    session: Session, project: str | None = None, states: Collection[AlertState] | None = None
) -> list[Alert]:
    """Alerts, the last fired first; only of one project or some states if given."""
    query = _alerts().order_by(AlertRow.fired_at.desc(), AlertRow.id.desc())
    if project is not None:
        query = query.where(ProjectRow.name == project)
    if states is not None:
        query = query.where(AlertRow.state.in_(states))
    return [_to_alert(row, name) for row, name in session.execute(query)]


def lock_alerts(session: Session, project: str) -> list[Alert]:
    """All alerts of a project, locked until the transaction ends.

    Raises:
        StoreError: the project is not there.
    """
    lock_project(session, project)
    return list_alerts(session, project)


def write_steps(session: Session, steps: Sequence[AlertStep], now: datetime) -> None:
    """Write new states of alerts, and a delivery for each message about them."""
    for step in steps:
        alert, message = step.alert, asdict(step.alert.message)
        project_id = select(ProjectRow.id).where(ProjectRow.name == alert.project).scalar_subquery()
        values = {name: getattr(alert, name) for name in _COLUMNS} | {"project_id": project_id, "message": message}
        values["told_at"] = _TIMES.dump_python(dict(alert.told_at), mode="json")
        new = upsert(AlertRow).values(values)
        keys = [AlertRow.project_id, AlertRow.cause]
        alert_row_id = session.scalars(
            new.on_conflict_do_update(index_elements=keys, set_=values).returning(AlertRow.id)
        ).one()
        deliveries = [
            {
                "alert_id": alert_row_id,
                "episode": alert.episode,
                "event": notification.event,
                "channel": notification.channel,
                "key": uuid4(),
                "message": message,
                "state": DeliveryState.WAITING,
                "is_uncertain": False,
                "attempt_count": 0,
                "next_attempt_at": now,
                "created_at": now,
            }
            for notification in step.notifications
        ]
        if deliveries:
            session.execute(insert(DeliveryRow), deliveries)


def acknowledge(engine: Engine, alert_id: UUID, *, person: str, reason: str, actor: str, now: datetime) -> Alert:
    """Acknowledge an alert, and its regression if it has one: someone works on it.

    Raises:
        StoreError: unknown ID, or the alert is not firing.
    """
    with Session(engine) as session, session.begin():
        known = session.execute(_alerts())
        found = next(((row, name) for row, name in known if _to_alert(row, name).alert_id == alert_id), None)
        if found is None:
            raise StoreError(f"alert {alert_id}: unknown ID; see: roofwatch alert list")
        row, project = found
        lock_project(session, project)
        session.refresh(row)
        if row.state is not AlertState.FIRING:
            raise StoreError(f"alert {alert_id} is {row.state}; only a firing alert can be acknowledged")
        row.state, row.acknowledged_at = AlertState.ACKNOWLEDGED, now
        row.acknowledged_by, row.acknowledged_reason = person, reason
        if row.regression_id is not None:
            state = TriageState.ACKNOWLEDGED
            decide(session, project, row.regression_id, state, person=person, reason=reason, actor=actor)
        add_entry(
            session,
            actor=actor,
            person=person,
            action="alert.acknowledge",
            project=project,
            subject=str(alert_id),
            before=AlertState.FIRING,
            after=AlertState.ACKNOWLEDGED,
            reason=reason,
        )
        session.flush()
        return _to_alert(row, project)


def _alerts() -> Select[AlertRow, str]:
    return select(AlertRow, ProjectRow.name).join(ProjectRow, ProjectRow.id == AlertRow.project_id)


def _to_alert(row: AlertRow, project: str) -> Alert:
    return to_value(
        Alert,
        row,
        project=project,
        rules=tuple(row.rules),
        message=_MESSAGE.validate_python(row.message),
        told_at=_TIMES.validate_python(row.told_at),
        escalated_to=tuple(row.escalated_to),
    )


class Claim:
    """A delivery that only this process may send. Its outcome is committed when the `with` block ends."""

    def __init__(self, row: DeliveryRow, delivery: Delivery) -> None:
        self._row = row
        self.delivery = delivery

    def note_sent(self, now: datetime) -> None:
        self._row.state, self._row.sent_at, self._row.error = DeliveryState.SENT, now, None

    def note_failure(self, error: str, *, is_uncertain: bool, next_attempt_at: datetime | None) -> None:
        """Note a failed attempt, after which the message may have arrived if uncertain; without a next attempt, give
        up.

        The error is for people, without secrets.
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
        earlier.state.in_(_UNSENT),
    )
    return (
        select(DeliveryRow)
        .where(DeliveryRow.state.in_(_UNSENT), DeliveryRow.next_attempt_at <= now, ~has_earlier)
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
        alert=_to_alert(alert, project),
        message=_MESSAGE.validate_python(row.message),
    )
