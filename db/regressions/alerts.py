"""Alerts, and the outbox of their messages.

A change of an alert and the messages about it are written in one transaction. A sender claims a
message for a limited time. If it dies, the message is claimed again after that time, and marked as
uncertain.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import Engine, exists, func, select, update
from sqlalchemy.orm import Session, aliased

from roofwatch.db.access import add_entry
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import lock_project
from roofwatch.db.regressions.triage import decide
from roofwatch.db.schema.regressions import AlertRow, DeliveryRow
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.table import to_value
from roofwatch.model.alert import Alert, AlertState, AlertStep, Delivery, DeliveryState
from roofwatch.model.triage import TriageState

CLAIMED_FOR = timedelta(minutes=20)
"""Longer than any attempt: the client of GitHub waits for up to 15 minutes."""
_DOCUMENT = TypeAdapter(Alert)


def list_alerts(
    session: Session,
    project: str | None = None,
    states: Collection[AlertState] | None = None,
) -> list[Alert]:
    """Alerts, the last fired first; only of one project or some states if given."""
    query = select(AlertRow.document)
    if project is not None:
        query = query.where(AlertRow.project_id == project_id(project))
    if states is not None:
        query = query.where(AlertRow.state.in_(states))
    alerts = map(_DOCUMENT.validate_python, session.scalars(query))
    return sorted(alerts, key=lambda alert: (alert.fired_at, alert.alert_id), reverse=True)


def write_steps(session: Session, project: str, steps: Sequence[AlertStep]) -> None:
    """Lock the project; write new states of its alerts, and the messages about them.

    Raises:
        StoreError: the project is not there.
    """
    own_id = lock_project(session, project)
    for step in steps:
        alert = step.alert
        document = _DOCUMENT.dump_python(step.alert, mode="json")
        session.merge(
            AlertRow(
                id=alert.alert_id,
                project_id=own_id,
                state=alert.state,
                document=document,
            )
        )
        # deliveries refer to the alert's row
        session.flush()
        for delivery in step.deliveries:
            # its message may be about more alerts than this one
            message_document = _DOCUMENT.dump_python(delivery.alert, mode="json")
            session.add(
                DeliveryRow(
                    **vars(delivery) | {"alert_id": alert.alert_id, "alert": message_document}
                )
            )


def acknowledge(
    engine: Engine,
    alert_id: UUID,
    *,
    person: str,
    reason: str,
    actor: str,
    now: datetime,
    episode: int | None = None,
) -> Alert:
    """Acknowledge an alert, and its regression if it has one: someone works on it.

    Raises:
        StoreError: unknown ID, or the alert is not firing, or not in that episode.
    """
    with Session(engine) as session, session.begin():
        row = session.get(AlertRow, alert_id)
        if row is None:
            raise StoreError(f"alert {alert_id}: unknown ID; see: roofwatch alert list")
        project = _DOCUMENT.validate_python(row.document).project
        lock_project(session, project)
        # another process may have changed it before the lock
        session.refresh(row)
        if row.state is not AlertState.FIRING:
            raise StoreError(
                f"alert {alert_id} is {row.state}; only a firing alert can be acknowledged"
            )
        firing_alert = _DOCUMENT.validate_python(row.document)
        # what was acknowledged is the episode that the person saw
        if episode not in {None, firing_alert.episode}:
            raise StoreError(f"alert {alert_id} fired again since episode {episode}")
        alert = firing_alert.acknowledged(now, person, reason)
        firing = list_alerts(session, project, {AlertState.FIRING})
        # they were told in one message
        companions = [
            companion for companion in firing if companion.event and companion.event == alert.event
        ]
        steps = [AlertStep(companion.acknowledged(now, person, reason)) for companion in companions]
        write_steps(session, project, [*steps, AlertStep(alert)])
        if alert.regression_id is not None:
            state = TriageState.ACKNOWLEDGED
            decide(
                session,
                project,
                alert.regression_id,
                state,
                person=person,
                reason=reason,
                actor=actor,
            )
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
        return alert


def claim_next(engine: Engine, now: datetime) -> Delivery | None:
    """Claim the delivery that is due longest; None if none is due.

    Messages of one alert pass a channel in the order in which they were written.
    """
    # a reminder must not overtake the message that it reminds of
    earlier = aliased(DeliveryRow)
    has_earlier = exists().where(
        earlier.alert_id == DeliveryRow.alert_id,
        earlier.channel == DeliveryRow.channel,
        earlier.id < DeliveryRow.id,
        earlier.state == DeliveryState.WAITING,
    )
    due = (
        select(DeliveryRow)
        .where(
            DeliveryRow.state == DeliveryState.WAITING,
            DeliveryRow.next_attempt_at <= now,
            ~has_earlier,
        )
        .order_by(DeliveryRow.next_attempt_at, DeliveryRow.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    with Session(engine) as session, session.begin():
        row = session.scalars(due).one_or_none()
        if row is None:
            return None
        # counted before the attempt: a process that dies in it has tried too
        row.attempt_count += 1
        delivery = _to_delivery(row)
        row.next_attempt_at, row.is_uncertain = (
            now + CLAIMED_FOR,
            True,
        )  # until the outcome is written
        return delivery


def count_recent(session: Session, since: datetime) -> dict[str, int]:
    """Count the messages by channel that were written since a time, of all projects."""
    counted = (
        select(DeliveryRow.channel, func.count())
        .where(DeliveryRow.created_at >= since)
        .group_by(DeliveryRow.channel)
    )
    return dict(session.execute(counted).all())


def write_outcome(engine: Engine, delivery: Delivery) -> None:
    """Write the outcome of the attempt that `claim_next` began, unless another attempt has begun
    since.
    """
    names = ("state", "is_uncertain", "next_attempt_at", "sent_at", "error")
    values = {name: getattr(delivery, name) for name in names}
    with Session(engine) as session, session.begin():
        # of a later attempt, the later outcome is the true one
        attempt = (
            DeliveryRow.key == delivery.key,
            DeliveryRow.attempt_count == delivery.attempt_count,
        )
        session.execute(update(DeliveryRow).where(*attempt).values(values))


def list_deliveries(
    session: Session,
    project: str | None = None,
    states: Collection[DeliveryState] | None = None,
) -> list[Delivery]:
    """The newest hundred deliveries, the newest first;
    only of one project or some states if given.
    """
    # people look at the newest; older ones are for the database's own tools
    query = select(DeliveryRow).order_by(DeliveryRow.id.desc()).limit(100)
    if project is not None:
        query = query.join(AlertRow).where(AlertRow.project_id == project_id(project))
    if states is not None:
        query = query.where(DeliveryRow.state.in_(states))
    return list(map(_to_delivery, session.scalars(query)))


def _to_delivery(row: DeliveryRow) -> Delivery:
    return to_value(Delivery, row, alert=_DOCUMENT.validate_python(row.alert))
