"""The state of the service as a whole, for its metrics."""

import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from roofwatch.db.regressions.analysis_queue import QueueState, read_queue_state
from roofwatch.db.schema.access import AuditEntryRow, TokenRow
from roofwatch.db.schema.regressions import DeliveryRow
from roofwatch.model.alert import DeliveryState

BACKUP = "store.backup"
"""Action of the audit trail."""
_TOKEN_USE = timedelta(days=7)
"""A token that was not used for this long is no longer needed."""
_SERVER = text(
    """
    SELECT pg_database_size(current_database()),
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        current_setting('max_connections')::int
    """
)
_ARCHIVE_AGE = text(
    """
    SELECT extract(epoch FROM
        now() - coalesce(last_archived_time, pg_postmaster_start_time()))::double precision
    FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'
    """
)
_PROBE = text(
    """
    CREATE TEMP TABLE disk_probe ON COMMIT DROP AS
    SELECT repeat(md5(number::text), 250) AS filling FROM generate_series(1, 250) number
    """
)
"""Two megabytes, which a full disk has no room for."""


@dataclass(frozen=True)
class ServiceState:
    database_bytes: int
    connection_count: int
    """Of all clients of the server."""
    max_connections: int
    disk_free_bytes: int | None
    """Of an embedded server; None for another, whose disk cannot be seen from here."""
    queue: QueueState
    delivery_count: int
    """Messages that wait to be sent."""
    oldest_delivery_s: float
    failed_delivery_count: int
    """Messages that were given up."""
    backup_age_s: float | None
    """None without any backup by `roofwatch db backup`."""
    archive_age_s: float | None
    """Since a segment of the write-ahead log was archived; None if that is not configured."""
    token_expiry_s: float | None
    """Until the first token in use expires; None without tokens in use."""


def read_service_state(session: Session, now: datetime) -> ServiceState:
    database_bytes, connection_count, max_connections = session.execute(_SERVER).one()
    waiting = select(func.count(), func.min(DeliveryRow.created_at)).where(
        DeliveryRow.state == DeliveryState.WAITING
    )
    delivery_count, oldest_delivery_at = session.execute(waiting).one()
    failed = select(func.count()).where(DeliveryRow.state == DeliveryState.FAILED)
    backup_at = session.scalar(
        select(func.max(AuditEntryRow.recorded_at)).where(AuditEntryRow.action == BACKUP)
    )
    expires_at = session.scalar(
        select(func.min(TokenRow.expires_at)).where(
            TokenRow.revoked_at.is_(None),
            TokenRow.expires_at > now,
            TokenRow.last_used_at > now - _TOKEN_USE,
        )
    )
    return ServiceState(
        database_bytes=database_bytes,
        connection_count=connection_count,
        max_connections=max_connections,
        disk_free_bytes=_free_bytes(session),
        queue=read_queue_state(session),
        delivery_count=delivery_count,
        oldest_delivery_s=_age_s(oldest_delivery_at, now) or 0.0,
        failed_delivery_count=session.scalar(failed) or 0,
        backup_age_s=_age_s(backup_at, now),
        archive_age_s=session.scalar(_ARCHIVE_AGE),
        token_expiry_s=None if expires_at is None else (expires_at - now).total_seconds(),
    )


def probe_disk(session: Session) -> None:
    """Write and drop a small temporary table.

    Raises:
        DBAPIError: the disk is full, or the database failed.
    """
    session.execute(_PROBE)


def _age_s(moment: datetime | None, now: datetime) -> float | None:
    if moment is None:
        return None
    return (now - moment).total_seconds()


def _free_bytes(session: Session) -> int | None:
    host = session.get_bind().engine.url.query.get("host")
    folder = None
    if isinstance(host, str):
        folder = Path(host)
    if folder is None or not folder.is_absolute() or not folder.exists():
        return None
    return shutil.disk_usage(folder).free
