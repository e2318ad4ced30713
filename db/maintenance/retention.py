"""Retention: remove raw data that is older than the policy keeps it.

The newest run of each series and the runs of open regressions are kept: new runs are compared with
them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Engine,
    Integer,
    Select,
    Text,
    all_,
    cast,
    delete,
    exists,
    func,
    null,
    select,
    update,
)
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.ingest.artefacts import drop_unlinked
from roofwatch.db.projects import QUARANTINE
from roofwatch.db.regressions.case_analyses import note_changed_project
from roofwatch.db.schema.measurements import SampleSetRow
from roofwatch.db.schema.regressions import RegressionRow, TriageRow
from roofwatch.db.schema.runs import ProjectRow, RunArtefactRow, RunRow
from roofwatch.model.history import RegressionState
from roofwatch.model.triage import TriageState

# a transaction each, which bounds how long it holds its locks
_BATCH_RUNS = 200
_BATCH_ROWS = 200_000
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
        total = Pruned(
            part=part,
            older_than=now - timedelta(days=kept_days),
            run_count=0,
            size_bytes=0,
        )
        if is_dry_run:
            total = _measure(engine, total)
        else:
            for removed in _remove_in_batches(engine, part, total.older_than, now):
                total = replace(
                    total,
                    run_count=total.run_count + removed.run_count,
                    size_bytes=total.size_bytes + removed.size_bytes,
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


def _measure(engine: Engine, part: Pruned) -> Pruned:
    """Count what is due, and its size."""
    with Session(engine) as session:
        due = _due(session, part.part, part.older_than, list_newest(session))
        sizes = due.with_only_columns(_size(part.part).label("size")).subquery().c.size
        count, size = session.execute(select(func.count(), func.coalesce(func.sum(sizes), 0))).one()
    return replace(part, run_count=count, size_bytes=int(size))


def _remove_in_batches(
    engine: Engine,
    part: Part,
    older_than: datetime,
    now: datetime,
) -> Iterator[Pruned]:
    """Remove a part of all runs that are due, and yield the count of each transaction."""
    with Session(engine) as session:
        newest = list_newest(session)
        query = _due(session, part, older_than, newest).with_only_columns(
            RunRow.run_id, func.cardinality(RunRow.series_ids)
        )
        due = session.execute(query.order_by(RunRow.started_at)).all()
    for batch in _batches(due):
        with Session(engine) as session, session.begin():
            # again: what became evidence meanwhile is kept
            still_due = _due(session, part, older_than, newest).where(RunRow.run_id.in_(batch))
            locked = still_due.add_columns(_size(part)).with_for_update(of=RunRow, skip_locked=True)
            rows = session.execute(locked).all()
            _remove(session, part, [run for run, _ in rows], now)
        if rows:
            yield Pruned(
                part=part,
                older_than=older_than,
                run_count=len(rows),
                size_bytes=sum(size for _, size in rows),
            )


def _batches(due: Sequence[Any]) -> Iterator[list[UUID]]:
    """Split runs so that a transaction removes a limited number of rows."""
    batch: list[UUID] = []
    row_count = 0
    for run_id, measurement_count in due:
        batch.append(run_id)
        row_count += measurement_count
        if len(batch) >= _BATCH_RUNS or row_count >= _BATCH_ROWS:
            yield batch
            batch, row_count = [], 0
    if batch:
        yield batch


def _remove(session: Session, part: Part, runs: Sequence[RunRow], now: datetime) -> None:
    """Remove a part of some runs and note when, which tells it from damage."""
    run_ids = [run.run_id for run in runs]
    chosen = RunRow.run_id.in_(run_ids)
    match part:
        case Part.TELEMETRY:
            pruned = {"telemetry": null(), "telemetry_pruned_at": now}
            session.execute(update(RunRow).where(chosen).values(pruned))
        case Part.SAMPLES:
            numbers = [run.number for run in runs]
            session.execute(delete(SampleSetRow).where(SampleSetRow.run_number.in_(numbers)))
            session.execute(update(RunRow).where(chosen).values(samples_pruned_at=now))
            # the state of the device is evidence too
            for project_id in {run.project_id for run in runs}:
                note_changed_project(session.connection(), project_id)
        case Part.ARTEFACTS:
            files = RunArtefactRow.run_id.in_(run_ids)
            session.execute(update(RunArtefactRow).where(files).values(content_sha256=None))
            drop_unlinked(session.connection())
        case _:
            session.execute(delete(RunRow).where(chosen))
            drop_unlinked(session.connection())


def _due(
    session: Session,
    part: Part,
    older_than: datetime,
    newest: Collection[int],
) -> Select[RunRow]:
    """Old runs that still have the part and may lose it. `newest` are the runs that stay whole."""
    # no regression refers to a quarantined run, so only its age counts
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
        RunRow.commit_id != all_(_numbers(_list_evidence(session, older_than))),
        RunRow.number != all_(_numbers(newest)),
    )


def _numbers(values: Collection[int]) -> ColumnElement[Any]:
    return cast(sorted(values), ARRAY(Integer))


def _stored_bytes(column: Any) -> ColumnElement[int]:
    """Bytes of a value as stored, compressed."""
    return func.pg_column_size(column)


def _size(part: Part) -> ColumnElement[int]:
    """Bytes of a part of the outer run."""
    sample_bytes = _stored_bytes(SampleSetRow.samples_ns) + _stored_bytes(SampleSetRow.facts)
    samples = select(func.sum(sample_bytes)).where(SampleSetRow.run_number == RunRow.number)
    # a file whose content is gone takes no space
    files = select(func.sum(RunArtefactRow.size_bytes)).where(
        RunArtefactRow.run_id == RunRow.run_id,
        RunArtefactRow.content_sha256.is_not(None),
    )
    telemetry_bytes = func.octet_length(cast(RunRow.telemetry, Text))
    sizes: dict[Part, ColumnElement[Any]] = {
        Part.SAMPLES: func.coalesce(samples.scalar_subquery(), 0),
        Part.TELEMETRY: func.coalesce(telemetry_bytes, 0),
        Part.ARTEFACTS: func.coalesce(files.scalar_subquery(), 0),
    }
    # what is removed whole loses all of its parts
    whole_run = sizes[Part.SAMPLES] + sizes[Part.TELEMETRY] + sizes[Part.ARTEFACTS]
    return cast(sizes.get(part, whole_run), BigInteger)


def _ended_before(older_than: datetime) -> ColumnElement[bool]:
    """Whether a regression was no longer found at a commit before a time."""
    # one that recovered ended there; one that new data removed, at its own commit
    document = RegressionRow.document
    ended_at = func.coalesce(
        *(document[commit]["committed_at"].as_string() for commit in ("recovered_at", "commit")),
        type_=Text,
    )
    return (RegressionRow.state == RegressionState.NO_LONGER_FOUND) & (
        cast(ended_at, DateTime(timezone=True)) < older_than
    )


def _list_evidence(session: Session, older_than: datetime) -> set[int]:
    """Commits that a regression names which is neither settled nor due to be removed.

    Regressions that a paired measurement dismissed count too: without that pair they would be open
    again.
    """
    is_settled = exists().where(
        TriageRow.regression_id == RegressionRow.regression_id, TriageRow.state.in_(_SETTLED)
    )
    commits = select(func.unnest(RegressionRow.evidence_commit_ids))
    return set(session.scalars(commits.where(~is_settled, ~_ended_before(older_than))))


def list_newest(session: Session) -> set[int]:
    """Numbers of the runs after which no run of the same branch measured some series of theirs.

    Most runs measured the series of the run after them, which a hash tells. So only the newest run
    of each different list is read whole.
    """
    series_hash = func.hash_array_extended(RunRow.series_ids, cast(0, BigInteger))
    query = (
        select(RunRow.number, RunRow.project_id, RunRow.branch, RunRow.started_at, series_hash)
        .where(~RunRow.is_dirty, ~RunRow.is_unreachable)
        .order_by(RunRow.started_at.desc())
    )
    newest: set[int] = set()
    seen_lists: dict[Any, datetime] = {}
    seen_series: dict[Any, dict[int, datetime]] = defaultdict(dict)
    for number, project_id, branch, started_at, series_hash in session.execute(query):
        line = (project_id, branch)
        newest_start = seen_lists.setdefault((*line, series_hash), started_at)
        # a newer run measured exactly these series
        if newest_start > started_at:
            continue
        series_ids = session.scalar(select(RunRow.series_ids).where(RunRow.number == number))
        measured_at = seen_series[line]
        for series_id in series_ids or ():
            # runs that started at the same time are equally new
            if measured_at.setdefault(series_id, started_at) == started_at:
                newest.add(number)
    return newest
