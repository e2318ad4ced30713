"""What ages in a run: how much of it there is, and how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Row, Table, delete, func, literal_column, null, select, update
from sqlalchemy.orm import Session

from roofwatch.db.artefacts import drop_unlinked
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CompilationRow,
    CountersRow,
    MeasurementRow,
    ProfileActivityRow,
    ProfileRow,
    SampleSetRow,
    TensorErrorRow,
)
from roofwatch.db.schema.runs import ArtefactChunkRow, RunArtefactRow, RunRow
from roofwatch.db.schema.table import Base

_OF_RUNS: tuple[type[Base], ...] = (
    MeasurementRow,
    SampleSetRow,
    AccuracyRow,
    TensorErrorRow,
    CompilationRow,
    CountersRow,
    ProfileRow,
    ProfileActivityRow,
)


class Part(StrEnum):
    """What ages."""

    SAMPLES = "samples"
    """Raw samples with the facts of their blocks; of a measurement stay its median, quartiles and counts."""
    TELEMETRY = "telemetry"
    """Readings of the device while a run went on."""
    ARTEFACTS = "artefacts"
    """Files that came with a run; that it had them, and their sha256, stays."""
    QUARANTINED = "quarantined"
    """Whole runs that nobody vouched for."""


@dataclass(frozen=True)
class Size:
    run_count: int
    row_count: int
    size_bytes: int


def measure(session: Session, part: Part, runs: Sequence[RunRow]) -> Size:
    """How much of a part some runs have."""
    if part is Part.TELEMETRY:
        sizes = select(func.count(), func.sum(func.pg_column_size(RunRow.telemetry)))
        found = [session.execute(sizes.where(RunRow.run_id.in_([run.run_id for run in runs]))).one()]
    elif part is Part.SAMPLES:
        found = [_rows_of(session, SampleSetRow, runs)]
    elif part is Part.ARTEFACTS:
        found = [_files_of(session, runs)]
    else:
        own = select(func.count(), func.sum(func.pg_column_size(literal_column("run"))))
        found = [session.execute(own.select_from(RunRow).where(RunRow.run_id.in_([run.run_id for run in runs]))).one()]
        found += [_rows_of(session, table, runs) for table in _OF_RUNS]
    row_count = sum(count for count, _ in found)
    return Size(len(runs) if row_count else 0, row_count, sum(int(size or 0) for _, size in found))


def remove(session: Session, part: Part, runs: Sequence[RunRow], now: datetime) -> None:
    """Remove a part of some runs, and note when, so that nobody takes what is missing for damage."""
    chosen = RunRow.run_id.in_([run.run_id for run in runs])
    if part is Part.TELEMETRY:
        session.execute(update(RunRow).where(chosen).values(telemetry=null(), telemetry_pruned_at=now))
    elif part is Part.SAMPLES:
        session.execute(delete(SampleSetRow).where(*_belongs_to(SampleSetRow.__table__, runs)))
        session.execute(update(RunRow).where(chosen).values(samples_pruned_at=now))
    elif part is Part.ARTEFACTS:
        of_runs = RunArtefactRow.run_id.in_([run.run_id for run in runs])
        session.execute(update(RunArtefactRow).where(of_runs).values(content_sha256=None))
        drop_unlinked(session.connection())
    else:
        session.execute(delete(RunRow).where(chosen))  # the tables' own trigger takes the rest along
        drop_unlinked(session.connection())


def _files_of(session: Session, runs: Sequence[RunRow]) -> Row[tuple[int, int | None]]:
    """One that several runs have counts for each: it goes with the last of them."""
    packed = select(func.sum(func.octet_length(ArtefactChunkRow.packed)))
    size = packed.where(ArtefactChunkRow.sha256 == RunArtefactRow.content_sha256).scalar_subquery()
    query = select(func.count(), func.sum(size)).where(
        RunArtefactRow.run_id.in_([run.run_id for run in runs]), RunArtefactRow.content_sha256.is_not(None)
    )
    return session.execute(query).one()


def _rows_of(session: Session, table: type[Base], runs: Sequence[RunRow]) -> Row[tuple[int, int | None]]:
    name: ColumnElement[object] = literal_column(table.__tablename__)
    query = select(func.count(), func.sum(func.pg_column_size(name))).select_from(table)
    return session.execute(query.where(*_belongs_to(table.__table__, runs))).one()


def _belongs_to(table: object, runs: Sequence[RunRow]) -> tuple[ColumnElement[bool], ...]:
    """With the days, so that only the partitions of these runs are opened."""
    assert isinstance(table, Table)
    return (
        table.c.run_number.in_([run.number for run in runs]),
        table.c.measured_on.in_({run.measured_on for run in runs}),
    )
