"""Retention: remove raw data that is older than the policy keeps it.

The newest run of each series and the runs of open regressions are kept: new runs are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import ColumnElement, Engine, Select, delete, exists, func, literal_column, null, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from roofwatch.db.artefacts import drop_unlinked
from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import TriageState
from roofwatch.db.projects import QUARANTINE
from roofwatch.db.schema.every import Base
from roofwatch.db.schema.measurements import MeasurementRow, SampleSetRow
from roofwatch.db.schema.partitions import PARTITIONED
from roofwatch.db.schema.regressions import RegressionRow, TriageRow
from roofwatch.db.schema.runs import ArtefactChunkRow, ProjectRow, RunArtefactRow, RunRow

_BATCH_RUNS = 200
_SETTLED = (TriageState.EXPECTED, TriageState.FIXED, TriageState.INVALID)


class Part(StrEnum):
    """What retention removes of old runs."""

    SAMPLES = "samples"
    """Raw samples and facts of their blocks. Median, quartiles and counts stay."""
    TELEMETRY = "telemetry"
    """Readings of the device during a run."""
    ARTEFACTS = "artefacts"
    """Contents of files; their names and sha256 stay."""
    QUARANTINED = "quarantined"
    """Whole runs in quarantine, by when they were ingested."""


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be, of one part."""

    part: Part
    older_than: datetime
    run_count: int = 0
    row_count: int = 0
    size_bytes: int = 0
    """As stored by the server."""


def prune(
    engine: Engine,
    days: Mapping[Part, int],
    *,
    now: datetime,
    is_dry_run: bool,
    actor: str,
    on_progress: Callable[[Pruned], None] = lambda _so_far: None,
) -> list[Pruned]:
    """Remove old parts of runs, in batches, so that ingest can go on.

    Args:
        engine: Of a store with a current schema.
        days: How long to keep each part; others are kept for ever.
        now: The time.
        is_dry_run: Only count.
        actor: For the audit trail.
        on_progress: Called after each batch with the counts so far.
    """
    pruned = []
    for part in Part:
        if part not in days:
            continue
        total = Pruned(part, now - timedelta(days=days[part]))
        for run_count, row_count, size_bytes in _batches(engine, total, now, is_dry_run=is_dry_run):
            total = replace(
                total,
                run_count=total.run_count + run_count,
                row_count=total.row_count + row_count,
                size_bytes=total.size_bytes + size_bytes,
            )
            on_progress(total)
        pruned.append(total)
        if total.run_count and not is_dry_run:
            with Session(engine) as session, session.begin():
                add_entry(
                    session,
                    actor=actor,
                    action="store.prune",
                    project=None,
                    subject=part,
                    after=f"{total.run_count} runs, {total.row_count} rows, {total.size_bytes} bytes",
                    reason=f"older than {days[part]} days",
                )
    return pruned


def _batches(engine: Engine, total: Pruned, now: datetime, *, is_dry_run: bool) -> Iterator[tuple[int, int, int]]:
    """Runs, rows and bytes of each batch, which is removed unless it is a dry run."""
    age = RunRow.ingested_at if total.part is Part.QUARANTINED else RunRow.started_at
    query = _due(total.part).where(age < total.older_than).order_by(age, RunRow.run_id).limit(_BATCH_RUNS)
    last: tuple[datetime, UUID] | None = None
    while True:
        with Session(engine) as session, session.begin():
            batch = query if last is None else query.where(tuple_(age, RunRow.run_id) > last)
            if not is_dry_run:
                batch = batch.with_for_update(skip_locked=True)
            runs = session.scalars(batch).all()
            if not runs:
                return
            last = (runs[-1].ingested_at if total.part is Part.QUARANTINED else runs[-1].started_at, runs[-1].run_id)
            row_count, size_bytes = _measure(session, total.part, runs)
            if not is_dry_run:
                _remove(session, total.part, runs, now)
        if row_count:
            yield len(runs), row_count, size_bytes


def _measure(session: Session, part: Part, runs: Sequence[RunRow]) -> tuple[int, int]:
    """Rows and bytes of a part of some runs."""
    chosen = RunRow.run_id.in_([run.run_id for run in runs])
    packed = select(func.sum(func.octet_length(ArtefactChunkRow.packed)))
    file_bytes = packed.where(ArtefactChunkRow.sha256 == RunArtefactRow.content_sha256).scalar_subquery()
    of_part: dict[Part, list[Select[int, int | None]]] = {
        Part.TELEMETRY: [select(func.count(), func.sum(func.pg_column_size(RunRow.telemetry))).where(chosen)],
        Part.SAMPLES: [_size_of_rows("sample_set", runs)],
        Part.ARTEFACTS: [
            select(func.count(), func.sum(file_bytes)).where(
                RunArtefactRow.run_id.in_([run.run_id for run in runs]), RunArtefactRow.content_sha256.is_not(None)
            )
        ],
        Part.QUARANTINED: [
            select(func.count(), func.sum(func.pg_column_size(literal_column("run"))))
            .select_from(RunRow)
            .where(chosen),
            *(_size_of_rows(table, runs) for table in PARTITIONED),
        ],
    }
    sizes = [session.execute(query).one() for query in of_part[part]]
    return sum(rows for rows, _ in sizes), sum(int(size_bytes or 0) for _, size_bytes in sizes)


def _size_of_rows(table_name: str, runs: Sequence[RunRow]) -> Select[int, int | None]:
    table = Base.metadata.tables[table_name]
    size_bytes: ColumnElement[int | None] = func.sum(func.pg_column_size(literal_column(table_name)))
    return (
        select(func.count(), size_bytes)
        .select_from(table)
        .where(
            table.c.run_number.in_([run.number for run in runs]),
            table.c.measured_on.in_({run.measured_on for run in runs}),  # opens only these partitions
        )
    )


def _remove(session: Session, part: Part, runs: Sequence[RunRow], now: datetime) -> None:
    """Remove a part of some runs and note when, which tells it from damage."""
    run_ids = [run.run_id for run in runs]
    chosen = RunRow.run_id.in_(run_ids)
    if part is Part.TELEMETRY:
        session.execute(update(RunRow).where(chosen).values(telemetry=null(), telemetry_pruned_at=now))
    elif part is Part.SAMPLES:
        session.execute(
            delete(SampleSetRow).where(
                SampleSetRow.run_number.in_([run.number for run in runs]),
                SampleSetRow.measured_on.in_({run.measured_on for run in runs}),
            )
        )
        session.execute(update(RunRow).where(chosen).values(samples_pruned_at=now))
    elif part is Part.ARTEFACTS:
        session.execute(update(RunArtefactRow).where(RunArtefactRow.run_id.in_(run_ids)).values(content_sha256=None))
        drop_unlinked(session.connection())
    else:
        session.execute(delete(RunRow).where(chosen))  # a trigger deletes the results
        drop_unlinked(session.connection())


def _due(part: Part) -> Select[RunRow]:
    """Runs that still have the part and may lose it."""
    if part is Part.QUARANTINED:
        is_quarantined = ProjectRow.name.endswith(QUARANTINE, autoescape=True)
        return select(RunRow).where(RunRow.project_id.in_(select(ProjectRow.id).where(is_quarantined)))
    has_file = exists().where(RunArtefactRow.run_id == RunRow.run_id, RunArtefactRow.content_sha256.is_not(None))
    has_part = {
        Part.SAMPLES: RunRow.samples_pruned_at.is_(None),
        Part.TELEMETRY: RunRow.telemetry.is_not(None),
        Part.ARTEFACTS: has_file,
    }[part]
    return select(RunRow).where(has_part, ~_is_evidence(), ~_is_newest_of_a_series())


def _is_evidence() -> ColumnElement[bool]:
    """Whether a regression that is not settled names the run's commit.

    Regressions that a paired measurement dismissed count too: without that pair they would be open again.
    """
    is_settled = exists().where(
        TriageRow.project_id == RegressionRow.project_id,
        TriageRow.sha == RegressionRow.sha,
        TriageRow.kernel == RegressionRow.kernel,
        TriageRow.verdict == RegressionRow.verdict,
        TriageRow.is_found,
        TriageRow.state.in_(_SETTLED),
    )
    return exists().where(RunRow.commit_id == func.any(RegressionRow.evidence_commit_ids), ~is_settled)


def _is_newest_of_a_series() -> ColumnElement[bool]:
    """Whether no later run of the same branch measured some series of the run."""
    later = aliased(RunRow)
    own = func.unnest(RunRow.series_ids).table_valued("id", name="own_series").render_derived()
    replacing = (
        select(MeasurementRow.series_id)
        .join(later, later.number == MeasurementRow.run_number)
        .where(
            MeasurementRow.series_id == own.c.id,
            MeasurementRow.measured_on >= RunRow.measured_on,
            later.started_at > RunRow.started_at,
            ~later.is_dirty,
            ~later.is_unreachable,
            later.branch.is_not_distinct_from(RunRow.branch),
        )
        .correlate(RunRow, own)
    )
    return (
        ~RunRow.is_dirty & ~RunRow.is_unreachable & exists(select(own.c.id).where(~exists(replacing)).correlate(RunRow))
    )
