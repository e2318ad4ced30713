"""The audit trail: who did what and why, newest first."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from roofwatch.db.auth.values import AuditEntry
from roofwatch.db.schema.access import AuditEntryRow


def add_entry(
    session: Session,
    *,
    actor: str,
    action: str,
    project: str | None,
    subject: str,
    person: str | None = None,
    before: str | None = None,
    after: str | None = None,
    reason: str | None = None,
) -> None:
    """Note what is done, in the transaction that does it."""
    entry = {
        "actor": actor,
        "person": person,
        "action": action,
        "project": project,
        "subject": subject,
        "before": before,
        "after": after,
        "reason": reason,
    }
    session.execute(insert(AuditEntryRow), [entry])


def list_entries(
    session: Session, project: str, *, subject: str | None = None, before_id: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """What was done in a project, newest first; to one subject, or only before an entry, if those are given."""
    query = select(AuditEntryRow).where(AuditEntryRow.project == project)
    if subject is not None:
        query = query.where(AuditEntryRow.subject == subject)
    if before_id is not None:
        query = query.where(AuditEntryRow.id < before_id)
    return [
        AuditEntry(
            entry_id=row.id,
            at=row.at,
            actor=row.actor,
            person=row.person,
            action=row.action,
            project=row.project,
            subject=row.subject,
            before=row.before,
            after=row.after,
            reason=row.reason,
        )
        for row in session.scalars(query.order_by(AuditEntryRow.id.desc()).limit(limit))
    ]
