"""Alerts. A change of an alert and the messages about it are written in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlalchemy import Engine, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.alerts.values import Alert, AlertState, AlertStep, DeliveryState, Message
from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import lock_project
from roofwatch.db.regressions.triage import decide
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import to_value

_COLUMNS = [field.name for field in fields(Alert) if field.name not in {"project", "message"}]
_MESSAGE = TypeAdapter(Message)


def list_alerts(
    session: Session, project: str | None = None, states: Collection[AlertState] | None = None
) -> list[Alert]:
    """Alerts, the last fired first; only of one project or some states if given."""
    query = (
        select(AlertRow, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
        .order_by(AlertRow.fired_at.desc(), AlertRow.id.desc())
    )
    if project is not None:
        query = query.where(ProjectRow.name == project)
    if states is not None:
        query = query.where(AlertRow.state.in_(states))
    return [to_alert(row, name) for row, name in session.execute(query)]


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
        new = upsert(AlertRow).values(values)
        keys = [AlertRow.project_id, AlertRow.rule, AlertRow.cause]
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
        project = next((one.project for one in list_alerts(session) if one.alert_id == alert_id), None)
        if project is None:
            raise StoreError(f"alert {alert_id}: unknown ID; see: roofwatch alert list")
        alert = next(one for one in lock_alerts(session, project) if one.alert_id == alert_id)
        if alert.state is not AlertState.FIRING:
            raise StoreError(f"alert {alert_id} is {alert.state}; only a firing alert can be acknowledged")
        row = session.scalars(
            select(AlertRow)
            .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
            .where(ProjectRow.name == project, AlertRow.rule == alert.rule, AlertRow.cause == alert.cause)
        ).one()
        row.state, row.acknowledged_at = AlertState.ACKNOWLEDGED, now
        row.acknowledged_by, row.acknowledged_reason = person, reason
        if alert.regression_id is not None:
            state = TriageState.ACKNOWLEDGED
            decide(session, project, alert.regression_id, state, person=person, reason=reason, actor=actor)
        add_entry(
            session,
            actor=actor,
            person=person,
            action="alert.acknowledge",
            project=project,
            subject=str(alert_id),
            before=alert.state,
            after=AlertState.ACKNOWLEDGED,
            reason=reason,
        )
        session.flush()
        return to_alert(row, project)


def to_alert(row: AlertRow, project: str) -> Alert:
    return to_value(Alert, row, project=project, message=_MESSAGE.validate_python(row.message))
