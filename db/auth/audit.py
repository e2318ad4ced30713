"""The audit trail: who did what and why."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from roofwatch.db.auth.values import AuditEntry
from roofwatch.db.schema.access import AuditEntryRow
from roofwatch.db.schema.table import to_value


def add_entry(
    session: Session, *, actor: str, action: str, project: str | None, subject: str, **details: str | None
) -> None:
    """Add an entry in the transaction that makes the change. Details: `person`, `before`, `after`, `reason`."""
    entry = {"actor": actor, "action": action, "project": project, "subject": subject, **details}
    session.execute(insert(AuditEntryRow), [entry])


def list_entries(
    session: Session, project: str, *, subject: str | None = None, before_id: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """Entries of a project, newest first; only of one subject, or before one entry, if given."""
    query = select(AuditEntryRow).where(AuditEntryRow.project == project)
    if subject is not None:
        query = query.where(AuditEntryRow.subject == subject)
    if before_id is not None:
        query = query.where(AuditEntryRow.entry_id < before_id)
    rows = session.scalars(query.order_by(AuditEntryRow.entry_id.desc()).limit(limit))
    return [to_value(AuditEntry, row) for row in rows]
