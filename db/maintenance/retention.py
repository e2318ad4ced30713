"""Retention: remove raw data that is older than the policy keeps it.

The newest run of each series and the runs of open regressions are kept: new runs are compared with
them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Engine,
    Select,
    Text,
    cast,
    delete,
    exists,
    func,
    null,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from roofwatch.db.access import add_entry
from roofwatch.db.ingest.artefacts import drop_unlinked
from roofwatch.db.projects import QUARANTINE
from roofwatch.db.schema.measurements import MeasurementRow, SampleSetRow
from roofwatch.db.schema.regressions import RegressionRow, TriageRow
from roofwatch.db.schema.runs import ProjectRow, RunArtefactRow, RunRow
from roofwatch.model.history import RegressionState
from roofwatch.model.triage import TriageState

_BATCH_RUNS = 200
_SETTLED = (TriageState.EXPECTED, TriageState.FIXED, TriageState.INVALID)


class Part(StrEnum):
    """What retention removes of old runs."""

    SAMPLES = "samples"
    """Raw samples and facts of their blocks, and regressions no longer found. Median, quartiles and
    counts stay.
    """
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
    run_count: int
    size_bytes: int
    """Size of the removed values, before they are freed on disk; a file that several runs share
    counts for each.
    """


def prune(
    engine: Engine,
    days: Mapping[Part, int],
    *,
    now: datetime,
    is_dry_run: bool,
    actor: str,
    on_progress: Callable[[Pruned], None] = lambda _so_far: None,
) -> list[Pruned]:
    """Remove parts of runs that are older than their days, in batches of one transaction each; a
    dry run only counts.

    Parts without days are kept for ever. `on_progress` is called after each batch with the count so
    far.
    """
    pruned = []
    for part in Part:
        if part not in days:
            continue
        kept_days = days[part]
        total = Pruned(part, now - timedelta(days=kept_days), 0, 0)
        due = _due(part, total.older_than)
        if is_dry_run:
            with Session(engine) as session:
                sizes = due.with_only_columns(_size(part).label("size")).subquery().c.size
                count, size = session.execute(
                    select(func.count(), func.coalesce(func.sum(sizes), 0))
                ).one()
            total = replace(total, run_count=count, size_bytes=int(size))
        while not is_dry_run:
            with Session(engine) as session, session.begin():
                batch = due.add_columns(_size(part)).order_by(RunRow.run_id).limit(_BATCH_RUNS)
                found = session.execute(batch.with_for_update(of=RunRow, skip_locked=True)).all()
                if not found:
                    break
                _remove(session, part, [run for run, _ in found], now)
            total = replace(
                total,
                run_count=total.run_count + len(found),
                size_bytes=total.size_bytes + sum(size for _, size in found),
            )
            on_progress(total)
        if part is Part.SAMPLES and not is_dry_run:
            with Session(engine) as session, session.begin():
                session.execute(delete(RegressionRow).where(_ended_before(total.older_than)))
        pruned.append(total)
        if total.run_count and not is_dry_run:
            with Session(engine) as session, session.begin():
                add_entry(
                    session,
                    actor=actor,
                    action="store.prune",
                    project=None,
                    subject=part,
                    after=f"{total.run_count} runs",
                    reason=f"older than {kept_days} days",
                )
    return pruned


def _remove(session: Session, part: Part, runs: Sequence[RunRow], now: datetime) -> None:
    """Remove a part of some runs and note when, which tells it from damage."""
    run_ids = [run.run_id for run in runs]
    chosen = RunRow.run_id.in_(run_ids)
    if part is Part.TELEMETRY:
        session.execute(
            update(RunRow).where(chosen).values(telemetry=null(), telemetry_pruned_at=now)
        )
    elif part is Part.SAMPLES:
        session.execute(
            delete(SampleSetRow).where(SampleSetRow.run_number.in_([run.number for run in runs]))
        )
        session.execute(update(RunRow).where(chosen).values(samples_pruned_at=now))
    elif part is Part.ARTEFACTS:
        session.execute(
            update(RunArtefactRow)
            .where(RunArtefactRow.run_id.in_(run_ids))
            .values(content_sha256=None)
        )
        drop_unlinked(session.connection())
    else:
        session.execute(delete(RunRow).where(chosen))
        drop_unlinked(session.connection())


def _due(part: Part, older_than: datetime) -> Select[RunRow]:
    """Old runs that still have the part and may lose it."""
    if part is Part.QUARANTINED:
        is_quarantined = ProjectRow.name.endswith(QUARANTINE, autoescape=True)
        in_quarantine = RunRow.project_id.in_(select(ProjectRow.id).where(is_quarantined))
        return select(RunRow).where(in_quarantine, RunRow.ingested_at < older_than)
    has_file = exists().where(
        RunArtefactRow.run_id == RunRow.run_id, RunArtefactRow.content_sha256.is_not(None)
    )
    has_part = {
        Part.SAMPLES: RunRow.samples_pruned_at.is_(None),
        Part.TELEMETRY: RunRow.telemetry.is_not(None),
        Part.ARTEFACTS: has_file,
    }[part]
    return select(RunRow).where(
        has_part,
        RunRow.started_at < older_than,
        ~_is_evidence(older_than),
        ~_is_newest_of_a_series(),
    )


def _stored_bytes(column: Any) -> ColumnElement[int]:
    """Bytes of a value as stored, compressed."""
    return func.pg_column_size(column)


def _size(part: Part) -> ColumnElement[int]:
    """Bytes of a part of the outer run."""
    samples = select(
        func.sum(_stored_bytes(SampleSetRow.samples_ns) + _stored_bytes(SampleSetRow.facts))
    ).where(SampleSetRow.run_number == RunRow.number)
    files = select(func.sum(RunArtefactRow.size_bytes)).where(
        RunArtefactRow.run_id == RunRow.run_id, RunArtefactRow.content_sha256.is_not(None)
    )
    sizes: dict[Part, ColumnElement[Any]] = {
        Part.SAMPLES: func.coalesce(samples.scalar_subquery(), 0),
        Part.TELEMETRY: func.coalesce(func.octet_length(cast(RunRow.telemetry, Text)), 0),
        Part.ARTEFACTS: func.coalesce(files.scalar_subquery(), 0),
    }
    whole_run = sizes[Part.SAMPLES] + sizes[Part.TELEMETRY] + sizes[Part.ARTEFACTS]
    return cast(sizes.get(part, whole_run), BigInteger)


def _ended_before(older_than: datetime) -> ColumnElement[bool]:
    """Whether a regression was no longer found at a commit before a time."""
    document = RegressionRow.document
    ended_at = func.coalesce(
        *(document[commit]["committed_at"].as_string() for commit in ("recovered_at", "commit")),
        type_=Text,
    )
    return (RegressionRow.state == RegressionState.NO_LONGER_FOUND) & (
        cast(ended_at, DateTime(timezone=True)) < older_than
    )


def _is_evidence(older_than: datetime) -> ColumnElement[bool]:
    """Whether a regression that is neither settled nor due to be removed names the run's commit.

    Regressions that a paired measurement dismissed count too: without that pair they would be open
    again.
    """
    is_settled = exists().where(
        TriageRow.regression_id == RegressionRow.regression_id, TriageRow.state.in_(_SETTLED)
    )
    return exists().where(
        RunRow.commit_id == func.any(RegressionRow.evidence_commit_ids),
        ~is_settled,
        ~_ended_before(older_than),
    )


def _is_newest_of_a_series() -> ColumnElement[bool]:
    """Whether no later run of the same branch measured some series of the run."""
    later = aliased(RunRow)
    own = func.unnest(RunRow.series_ids).table_valued("id", name="own_series").render_derived()
    replacing = (
        select(MeasurementRow.series_id)
        .join(later, later.number == MeasurementRow.run_number)
        .where(
            MeasurementRow.series_id == own.c.id,
            later.started_at > RunRow.started_at,
            ~later.is_dirty,
            ~later.is_unreachable,
            later.branch.is_not_distinct_from(RunRow.branch),
        )
        .correlate(RunRow, own)
    )
    return (
        ~RunRow.is_dirty
        & ~RunRow.is_unreachable
        & exists(select(own.c.id).where(~exists(replacing)).correlate(RunRow))
    )
