"""Retention: what is old goes, and what was found in it stays.

Never touched are the runs that something still rests on: those that a later one of the same branch, runner class and
case has not taken the place of, since new runs are compared with them, and those of the commits that an open
regression names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Engine, Select, exists, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased

from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import TriageState
from roofwatch.db.maintenance.aged_parts import Part, measure, remove
from roofwatch.db.projects import QUARANTINE
from roofwatch.db.schema.measurements import MeasurementRow
from roofwatch.db.schema.regressions import ChangePointRow, RegressionRow, TriageRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunArtefactRow, RunRow

_BATCH_RUNS = 200
_SETTLED = (TriageState.EXPECTED, TriageState.FIXED, TriageState.INVALID)


@dataclass(frozen=True)
class Pruned:
    """What goes, or went, of one part."""

    part: Part
    older_than: datetime
    run_count: int
    row_count: int
    size_bytes: int
    """Of the rows or values, as the server stores them."""


def prune(
    engine: Engine,
    days: Mapping[Part, int],
    *,
    now: datetime,
    is_dry_run: bool,
    actor: str,
    on_progress: Callable[[Pruned], None] = lambda _so_far: None,
) -> list[Pruned]:
    """Remove what is older than it has to be kept, some runs a transaction, so that ingest goes on meanwhile.

    Args:
        engine: Of a store with a current schema.
        days: For how long each part is kept since it was measured, what is quarantined since it came in; what is not
            named is kept for ever.
        now: The time.
        is_dry_run: Only count.
        actor: Who does it, for the audit trail.
        on_progress: Told what has gone so far, after each batch.

    Returns:
        What went of each part, or would have gone.
    """
    pruned = []
    for part in Part:
        if part not in days:
            continue
        total = Pruned(part, now - timedelta(days=days[part]), 0, 0, 0)
        for batch in _batches(engine, total, now, is_dry_run=is_dry_run):
            total = replace(
                total,
                run_count=total.run_count + batch.run_count,
                row_count=total.row_count + batch.row_count,
                size_bytes=total.size_bytes + batch.size_bytes,
            )
            on_progress(total)
        pruned.append(total)
        if total.run_count and not is_dry_run:
            with Session(engine) as session, session.begin():
                said = f"{total.run_count} runs, {total.row_count} rows, {total.size_bytes} bytes"
                why = f"older than {days[part]} days"
                add_entry(
                    session, actor=actor, action="store.prune", project=None, subject=part, after=said, reason=why
                )
    return pruned


def _batches(engine: Engine, total: Pruned, now: datetime, *, is_dry_run: bool) -> Iterator[Pruned]:
    age = RunRow.ingested_at if total.part is Part.QUARANTINED else RunRow.started_at
    place = tuple_(age, RunRow.run_id)
    query = _due(total.part).where(age < total.older_than).order_by(age, RunRow.run_id).limit(_BATCH_RUNS)
    seen: tuple[datetime, UUID] | None = None
    while True:
        with Session(engine) as session, session.begin():
            further = query if seen is None else query.where(place > seen)
            if not is_dry_run:
                further = further.with_for_update(skip_locked=True)
            runs = session.scalars(further).all()
            if not runs:
                return
            last = runs[-1]
            seen = (last.ingested_at if total.part is Part.QUARANTINED else last.started_at, last.run_id)
            size = measure(session, total.part, runs)
            if not is_dry_run:
                remove(session, total.part, runs, now)
        if size.row_count:
            yield replace(total, run_count=size.run_count, row_count=size.row_count, size_bytes=size.size_bytes)


def _due(part: Part) -> Select[RunRow]:
    query = select(RunRow)
    if part is Part.QUARANTINED:
        of_quarantine = select(CommitRow.id).join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        is_of_one = ProjectRow.name.endswith(QUARANTINE, autoescape=True)
        return query.where(RunRow.commit_id.in_(of_quarantine.where(is_of_one)))
    has_file = exists().where(RunArtefactRow.run_id == RunRow.run_id, RunArtefactRow.content_sha256.is_not(None))
    is_there = {
        Part.SAMPLES: RunRow.samples_pruned_at.is_(None),
        Part.TELEMETRY: RunRow.telemetry.is_not(None),
        Part.ARTEFACTS: has_file,
    }[part]
    return query.where(is_there, ~_is_evidence(), ~_is_newest_of_a_series())


def _is_evidence() -> ColumnElement[bool]:
    """Whether the run is of a commit that a regression names, which nobody has settled. Those that a measurement of
    base against head dismissed count too: without it they would be open again.
    """
    settled = exists().where(
        TriageRow.project_id == CommitRow.project_id,
        TriageRow.sha == CommitRow.sha,
        TriageRow.kernel == RegressionRow.kernel,
        TriageRow.verdict == RegressionRow.verdict,
        TriageRow.is_found,
        TriageRow.state.in_([state.value for state in _SETTLED]),
    )
    named = (
        select(ChangePointRow.regression_id)
        .join(RegressionRow, RegressionRow.id == ChangePointRow.regression_id)
        .join(CommitRow, CommitRow.id == RegressionRow.commit_id)
        .where(
            or_(
                *(
                    commit_id == RunRow.commit_id
                    for commit_id in (
                        ChangePointRow.commit_id,
                        ChangePointRow.previous_commit_id,
                        RegressionRow.commit_id,
                    )
                )
            ),
            ~settled,
        )
        .correlate(RunRow)
    )
    return exists(named)


def _is_newest_of_a_series() -> ColumnElement[bool]:
    """Whether new runs are still compared with the run: some series of it has nothing newer on its branch."""
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
