"""Store what an export holds: each thing once, however often it is done and wherever it was cut short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC

import orjson
import psycopg
from sqlalchemy import Engine, and_, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.audit import add_entry
from roofwatch.db.engine.error_hints import first_line
from roofwatch.db.engine.statistics import gather_statistics
from roofwatch.db.errors import ConflictError, StoreError
from roofwatch.db.ingest.content import Content
from roofwatch.db.ingest.ingest import store_record
from roofwatch.db.maintenance.aged_runs import store_summaries
from roofwatch.db.maintenance.alert_lines import AlertLine, take_alert
from roofwatch.db.maintenance.archive import (
    AgedRun,
    AnyLine,
    ArtefactLine,
    AuditLine,
    Run,
    TriageLine,
    TrustedRepositoryLine,
)
from roofwatch.db.maintenance.artefact_lines import ArtefactTaker
from roofwatch.db.maintenance.bisection_lines import BisectionLine, take_bisection
from roofwatch.db.projects import ensure_project
from roofwatch.db.schema.access import AuditEntryRow, TriageRow, TrustedRepositoryRow
from roofwatch.db.schema.partitions import ensure_partitions
from roofwatch.db.schema.records import RunRow


@dataclass
class Imported:
    new_counts: Counter[str] = field(default_factory=Counter)
    """By kind of line, what was not there before."""
    known_counts: Counter[str] = field(default_factory=Counter)
    """By kind of line, what was, or was left out."""
    conflicts: list[str] = field(default_factory=list)
    """Runs that are stored with other content; the stored ones were kept."""
    projects: set[str] = field(default_factory=set)
    """Those with runs, to be judged; also of known ones: an import before may have been cut short before it judged."""

    def count(self, kind: str, *, was_new: bool) -> None:
        (self.new_counts if was_new else self.known_counts)[kind] += 1


def import_lines(
    engine: Engine, lines: Iterable[tuple[int, AnyLine]], *, takes_trust: bool, actor: str, source_sha256: str
) -> Imported:
    """Store everything, one thing a transaction.

    Args:
        engine: Of a store with a current schema.
        lines: Of an export, each with its number.
        takes_trust: Repositories that the export trusts are trusted here too; else nobody new is let in.
        actor: Who does it, for the audit trail.
        source_sha256: Of the export, for the audit trail.

    Raises:
        StoreError: a line says what cannot be; those before it are stored.
    """
    imported = Imported()
    with ArtefactTaker(engine) as artefacts:
        for number, line in lines:
            try:
                if isinstance(line, ArtefactLine):
                    was_new = artefacts.take(line)
                    if was_new is not None:
                        imported.count(line.kind, was_new=was_new)
                else:
                    _take(engine, line, number, takes_trust, imported)
            except (DataError, IntegrityError, psycopg.DataError) as error:
                said = first_line(error) if isinstance(error, DBAPIError) else str(error)
                raise StoreError(f"line {number}: {line.kind}: the database refuses a value: {said}") from None
    if imported.new_counts:
        with Session(engine) as session, session.begin():
            said = ", ".join(f"{count} {kind}" for kind, count in sorted(imported.new_counts.items()))
            subject = f"sha256:{source_sha256}"
            add_entry(session, actor=actor, action="store.import", project=None, subject=subject, after=said)
        gather_statistics(engine)
    return imported


def _take(engine: Engine, line: AnyLine, number: int, takes_trust: bool, imported: Imported) -> None:
    if isinstance(line, Run):
        _take_run(engine, line, number, imported)
        return
    with Session(engine) as session, session.begin():
        if isinstance(line, TriageLine):
            was_new = _take_triage(session, line)
        elif isinstance(line, AlertLine):
            was_new = take_alert(session, line)
        elif isinstance(line, BisectionLine):
            was_new = take_bisection(session, line)
        elif isinstance(line, AuditLine):
            was_new = _take_audit(session, line)
        elif isinstance(line, TrustedRepositoryLine):
            was_new = takes_trust and _take_trust(session, line)
        else:
            return
    imported.count(line.kind, was_new=was_new)


def _take_run(engine: Engine, line: Run, number: int, imported: Imported) -> None:
    record = RunRecord.from_json(orjson.dumps(line.record), name=f"line {number}")
    is_whole = line.telemetry_pruned_at is None and not isinstance(line, AgedRun)
    content = Content(record, None if is_whole else line.content_hash)
    if content.hash != line.content_hash:
        raise StoreError(f"line {number}: run {record.run_id} has not the content that its sha256 is of; export again")
    ensure_partitions(engine, record.started_at.astimezone(UTC).date())
    try:
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            stored = store_record(connection, record, content, is_quarantined=line.is_quarantined)
            was_new = stored.was_new
            if was_new and isinstance(line, AgedRun):
                store_summaries(connection, record, line)
            if was_new:
                kept = {"ingested_at": line.ingested_at, "telemetry_pruned_at": line.telemetry_pruned_at}
                connection.execute(update(RunRow).where(RunRow.run_id == record.run_id).values(kept))
    except ConflictError as error:
        imported.conflicts.append(str(error))
        return
    imported.count(line.kind, was_new=was_new)
    if not line.is_quarantined:
        imported.projects.add(record.project)


def _take_triage(session: Session, line: TriageLine) -> bool:
    """What was decided last counts. A regression that was found here too, under an id of its own, stays that one."""
    project_id = ensure_project(session, line.project)
    is_same = and_(
        TriageRow.project_id == project_id,
        TriageRow.sha == line.sha,
        TriageRow.kernel == line.kernel,
        TriageRow.verdict == line.verdict.value,
        TriageRow.is_found,
    )
    has_its_id = TriageRow.regression_id == line.regression_id
    known = session.scalars(select(TriageRow).where(or_(has_its_id, is_same) if line.is_found else has_its_id)).first()
    if known is None:
        values = line.model_dump(exclude={"kind", "project"})
        values |= {"verdict": line.verdict.value, "state": line.state.value}
        session.add(TriageRow(project_id=project_id, **values))
        return True
    if line.changed_at is None or (known.changed_at is not None and known.changed_at >= line.changed_at):
        return False
    known.state, known.person, known.reason = line.state.value, line.person, line.reason
    known.changed_at = line.changed_at
    return True


def _take_audit(session: Session, line: AuditLine) -> bool:
    entry = line.model_dump(exclude={"kind"})
    same = [getattr(AuditEntryRow, name).is_not_distinct_from(value) for name, value in entry.items()]
    if session.scalar(select(literal(True)).where(select(AuditEntryRow.id).where(*same).exists())):
        return False
    session.execute(insert(AuditEntryRow).values(entry))
    return True


def _take_trust(session: Session, line: TrustedRepositoryLine) -> bool:
    row = line.model_dump(exclude={"kind"})
    new = upsert(TrustedRepositoryRow).values(row).on_conflict_do_nothing().returning(TrustedRepositoryRow.project)
    return session.execute(new).one_or_none() is not None
