"""The store as lines: everything that could not be found out again, one state of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.orm import Session

from roofwatch.db.engine.migrate import head_revision
from roofwatch.db.maintenance.aged_runs import read_summaries
from roofwatch.db.maintenance.alert_lines import alert_lines
from roofwatch.db.maintenance.archive import (
    AgedRun,
    AnyLine,
    AuditLine,
    Header,
    Run,
    Tally,
    TriageLine,
    TrustedRepositoryLine,
    run_line,
    to_bytes,
)
from roofwatch.db.maintenance.artefact_lines import artefact_lines
from roofwatch.db.maintenance.as_sent import load_as_sent, load_as_sent_without_measurements
from roofwatch.db.maintenance.bisection_lines import bisection_lines
from roofwatch.db.projects import is_quarantine
from roofwatch.db.schema.access import AuditEntryRow, TriageRow, TrustedRepositoryRow
from roofwatch.db.schema.records import CommitRow, ProjectRow, RunRow

_BATCH = 500


def export_lines(
    engine: Engine, *, now: datetime, on_progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Iterator[bytes]:
    """Everything as one state of the store has it; what is judged is left out, since it follows from the rest.

    One record is held at a time, however many there are.

    Args:
        engine: Of a store with a current schema.
        now: The time.
        on_progress: Told how many runs are done, of how many.

    Raises:
        StoreError: a run cannot be read back.
    """
    tally = Tally()
    with engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
        for kind, line in _lines(connection, now, on_progress):
            tally.add(line, kind)
            yield line
    yield to_bytes(tally.manifest())


def _lines(
    connection: Connection, now: datetime, on_progress: Callable[[int, int], None]
) -> Iterator[tuple[str, bytes]]:
    yield "header", to_bytes(Header(made_at=now, schema_revision=head_revision()))
    yield from _runs(connection, on_progress)
    with Session(connection) as session:
        for deeds in (artefact_lines, _triage, alert_lines, bisection_lines, _audit, _trusted):
            for deed in deeds(session):
                yield deed.kind, to_bytes(deed)


def _runs(connection: Connection, on_progress: Callable[[int, int], None]) -> Iterator[tuple[str, bytes]]:
    run_count = connection.scalar(select(func.count()).select_from(RunRow)) or 0
    # in the order of ingest: of what records of one commit say of it, the first counts
    query = (
        select(RunRow.run_id, ProjectRow.name)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .order_by(RunRow.ingested_at, RunRow.run_id)
        .execution_options(yield_per=_BATCH)
    )
    with Session(connection) as session:
        for done, (run_id, name) in enumerate(connection.execute(query), start=1):
            yield _run(session, session.get_one(RunRow, run_id), is_quarantined=is_quarantine(name))
            session.expunge_all()
            on_progress(done, run_count)


def _run(session: Session, run: RunRow, *, is_quarantined: bool) -> tuple[str, bytes]:
    known = {
        "is_quarantined": is_quarantined,
        "content_hash": run.content_hash,
        "ingested_at": run.ingested_at,
        "telemetry_pruned_at": run.telemetry_pruned_at,
        "record": {},
    }
    if run.samples_pruned_at is None:
        record = load_as_sent(session, run.run_id)
        head = Run(**known)
    else:
        record = load_as_sent_without_measurements(session, run.run_id)
        head = AgedRun(
            **known,
            samples_pruned_at=run.samples_pruned_at,
            unread_fields=run.unread_fields,
            summaries=read_summaries(session, run),
        )
    return head.kind, run_line(head, record.to_json())


def _triage(session: Session) -> Iterator[AnyLine]:
    query = select(TriageRow, ProjectRow.name).join(ProjectRow, ProjectRow.id == TriageRow.project_id)
    for row, project in session.execute(query.order_by(TriageRow.regression_id).execution_options(yield_per=_BATCH)):
        yield TriageLine(
            regression_id=row.regression_id,
            project=project,
            sha=row.sha,
            kernel=row.kernel,
            verdict=row.verdict,
            series=row.series,
            is_found=row.is_found,
            newest_place=row.newest_place,
            state=row.state,
            person=row.person,
            reason=row.reason,
            changed_at=row.changed_at,
        )


def _audit(session: Session) -> Iterator[AnyLine]:
    query = select(AuditEntryRow).order_by(AuditEntryRow.id).execution_options(yield_per=_BATCH)
    for row in session.scalars(query):
        yield AuditLine(
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


def _trusted(session: Session) -> Iterator[AnyLine]:
    keys = (TrustedRepositoryRow.repository, TrustedRepositoryRow.project)
    for row in session.scalars(select(TrustedRepositoryRow).order_by(*keys).execution_options(yield_per=_BATCH)):
        yield TrustedRepositoryLine(
            repository=row.repository, project=row.project, refs=row.refs, created_at=row.created_at
        )
