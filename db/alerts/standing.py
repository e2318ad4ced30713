"""Alerts as they stand. Each change is written in one transaction with the deliveries that tell of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.alerts.values import Alert, AlertState, AlertStep, DeliveryState, Fact, Link, Message, Severity
from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.triage import decide
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.runs import ProjectRow

_KEPT = ("severity", "state", "episode", "regression_id", "fired_at", "told_at", "escalated_at")
_DECIDED = ("acknowledged_at", "acknowledged_by", "acknowledged_reason", "resolved_at")


def list_alerts(
    session: Session, project: str | None = None, states: Collection[AlertState] | None = None
) -> list[Alert]:
    """Alerts, the last fired first; of one project or some states only where these are given."""
    query = (
        select(AlertRow, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
        .order_by(AlertRow.fired_at.desc(), AlertRow.id.desc())
    )
    if project is not None:
        query = query.where(ProjectRow.name == project)
    if states is not None:
        query = query.where(AlertRow.state.in_([state.value for state in states]))
    return [to_alert(row, name) for row, name in session.execute(query)]


def lock_alerts(session: Session, project: str) -> list[Alert]:
    """All alerts of a project, which nobody else changes until the transaction ends.

    Raises:
        StoreError: the project is not there.
    """
    lock = select(ProjectRow.id).where(ProjectRow.name == project).with_for_update(key_share=True)
    if session.scalar(lock) is None:
        raise StoreError(f"project {project!r}: not in this database; ingest a record of it first")
    return list_alerts(session, project)


def write_steps(session: Session, steps: Sequence[AlertStep], now: datetime) -> None:
    """Have alerts stand as they do from now on, and put what is told of that into the outbox."""
    for step in steps:
        alert_row_id = _write(session, step.alert)
        deliveries = [
            {
                "alert_id": alert_row_id,
                "episode": step.alert.episode,
                "event": notification.event.value,
                "channel": notification.channel,
                "key": uuid4(),
                "message": message_document(step.alert.message),
                "state": DeliveryState.WAITING.value,
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
    """Note that somebody is at it: it is not escalated. With the alert of a regression, so is the regression.

    Raises:
        StoreError: there is no such alert, or it does not fire.
    """
    with Session(engine) as session, session.begin():
        alert = next((one for one in list_alerts(session) if one.alert_id == alert_id), None)
        if alert is None:
            raise StoreError(f"alert {alert_id}: there is none with this id; see: roofwatch alert list")
        alert = next(one for one in lock_alerts(session, alert.project) if one.alert_id == alert_id)
        if alert.state is not AlertState.FIRING:
            raise StoreError(f"alert {alert_id}: it is {alert.state}, and only one that fires can be acknowledged")
        row = _row_of(session, alert)
        row.state, row.acknowledged_at = AlertState.ACKNOWLEDGED.value, now
        row.acknowledged_by, row.acknowledged_reason = person, reason
        if alert.regression_id is not None:
            state = TriageState.ACKNOWLEDGED
            decide(session, alert.project, alert.regression_id, state, person=person, reason=reason, actor=actor)
        add_entry(
            session,
            actor=actor,
            person=person,
            action="alert.acknowledge",
            project=alert.project,
            subject=str(alert_id),
            before=alert.state.value,
            after=AlertState.ACKNOWLEDGED.value,
            reason=reason,
        )
        session.flush()
        return to_alert(row, alert.project)


def to_alert(row: AlertRow, project: str) -> Alert:
    return Alert(
        project=project,
        rule=row.rule,
        cause=row.cause,
        severity=Severity(row.severity),
        state=AlertState(row.state),
        episode=row.episode,
        message=to_message(row.message),
        fired_at=row.fired_at,
        regression_id=row.regression_id,
        told_at=row.told_at,
        escalated_at=row.escalated_at,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
        acknowledged_reason=row.acknowledged_reason,
        resolved_at=row.resolved_at,
    )


def message_document(message: Message) -> dict[str, Any]:
    return asdict(message)


def to_message(document: dict[str, Any]) -> Message:
    return Message(
        title=document["title"],
        facts=tuple(Fact(**fact) for fact in document["facts"]),
        owners=tuple(document["owners"]),
        links=tuple(Link(**link) for link in document["links"]),
    )


def _row_of(session: Session, alert: Alert) -> AlertRow:
    return session.scalars(
        select(AlertRow)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
        .where(ProjectRow.name == alert.project, AlertRow.rule == alert.rule, AlertRow.cause == alert.cause)
    ).one()


def _write(session: Session, alert: Alert) -> int:
    project_id = session.scalars(select(ProjectRow.id).where(ProjectRow.name == alert.project)).one()
    values = {name: getattr(alert, name) for name in (*_KEPT, *_DECIDED)}
    values |= {"message": message_document(alert.message)}
    identity = {"project_id": project_id, "rule": alert.rule, "cause": alert.cause}
    writing = upsert(AlertRow).values(**identity, **values)
    row_id: int = session.scalars(
        writing.on_conflict_do_update(
            index_elements=[AlertRow.project_id, AlertRow.rule, AlertRow.cause], set_=values
        ).returning(AlertRow.id)
    ).one()
    return row_id
