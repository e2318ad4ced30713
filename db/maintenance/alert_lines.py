"""Alerts with what was told of them, on their way out of one store and into another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field
from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.alerts.values import AlertEvent, AlertState, DeliveryState, Severity
from roofwatch.db.maintenance.line import Count, Line, ProjectName, Words, columns_of
from roofwatch.db.projects import ensure_project
from roofwatch.db.schema.alerts import AlertRow, DeliveryRow
from roofwatch.db.schema.records import ProjectRow

_BATCH = 500


class FactPart(Line):
    name: Words
    text: Words


class LinkPart(Line):
    name: Words
    url: Words


class MessagePart(Line):
    title: Words
    facts: Annotated[list[FactPart], Field(max_length=1_000)]
    owners: Annotated[list[Words], Field(max_length=1_000)]
    links: Annotated[list[LinkPart], Field(max_length=1_000)]


class DeliveryPart(Line):
    """A message for one channel, as far as it came: one that was not sent is sent by the store that takes it."""

    model_config = ConfigDict(use_enum_values=True)

    episode: Count
    event: AlertEvent
    channel: Words
    key: UUID
    message: MessagePart
    state: DeliveryState
    is_uncertain: bool
    attempt_count: Count
    attempt_id: UUID | None
    next_attempt_at: AwareDatetime
    created_at: AwareDatetime
    sent_at: AwareDatetime | None
    error: Words | None


class AlertLine(Line):
    model_config = ConfigDict(use_enum_values=True)

    kind: Literal["alert"] = "alert"
    project: ProjectName
    rule: Words
    cause: Words
    severity: Severity
    state: AlertState
    episode: Count
    message: MessagePart
    regression_id: UUID | None
    fired_at: AwareDatetime
    told_at: AwareDatetime | None
    escalated_at: AwareDatetime | None
    acknowledged_at: AwareDatetime | None
    acknowledged_by: Words | None
    acknowledged_reason: Words | None
    resolved_at: AwareDatetime | None
    deliveries: Annotated[list[DeliveryPart], Field(max_length=100_000)]


def alert_lines(session: Session) -> Iterator[AlertLine]:
    """All alerts, in the order in which they came up."""
    query = (
        select(AlertRow, ProjectRow.name, DeliveryRow)
        .join(ProjectRow, ProjectRow.id == AlertRow.project_id)
        .outerjoin(DeliveryRow, DeliveryRow.alert_id == AlertRow.id)
        .order_by(AlertRow.id, DeliveryRow.id)
        .execution_options(yield_per=_BATCH)
    )
    for (alert, project), rows in groupby(session.execute(query), key=lambda row: (row[0], row[1])):
        deliveries: list[Any] = [columns_of(row[2], "id", "alert_id") for row in rows if row[2] is not None]
        known: dict[str, Any] = {**columns_of(alert, "id", "project_id")}
        yield AlertLine(project=project, deliveries=deliveries, **known)


def take_alert(session: Session, line: AlertLine) -> bool:
    """Store an alert with its messages; False where its rule knows its cause already, whose state here counts."""
    project_id = ensure_project(session, line.project)
    row = line.model_dump(exclude={"kind", "project", "deliveries"}) | {"project_id": project_id}
    new = upsert(AlertRow).values(row).on_conflict_do_nothing().returning(AlertRow.id)
    alert_id = session.execute(new).scalar_one_or_none()
    if alert_id is None:
        return False
    if line.deliveries:
        session.execute(insert(DeliveryRow), [one.model_dump() | {"alert_id": alert_id} for one in line.deliveries])
    return True
