"""How far each case is from its roof, on each runner class, over some of its runs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from roofwatch.db.queries.runners import read_recent_imports
from roofwatch.db.schema.measurements import MeasurementRow, SeriesRow
from roofwatch.db.schema.run_filter import Limit, Words, is_in_series, is_on
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.model.history import BOUNDS, OUTCOMES, SeriesKey
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO
from roofwatch.model.stored_results import RoofCell

_ALWAYS_READ = 3
"""Newest runs of each runner class that count whatever the limit: a single one may lack cases."""


def list_roof_cells(
    session: Session,
    project: ProjectName,
    *,
    runner_classes: Words = (),
    branches: Words = (),
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Limit = 30,
) -> list[RoofCell]:
    """List what was timed, or measured by another tool, in at most about `limit` runs of each
    runner class, spread evenly over the commits between two dates.
    """
    runs = _spread_runs(session, project, runner_classes, branches, since, until, limit)
    return [*_measured(session, project, runs), *_imported(session, project, runs)]


class _Run(NamedTuple):
    """Where a run is in the history of its runner class."""

    position: int
    """Rises to the newest run."""
    committed_at: datetime
    runner_class: str


class _Result(NamedTuple):
    """One case and implementation in one run."""

    run_number: int
    outcome: str
    median_ns: float | None
    utilisation: float | None
    ratio_to_reference: float | None
    is_memory_bound: bool | None
    is_degraded: bool


def _spread_runs(
    session: Session,
    project: str,
    runner_classes: Words,
    branches: Words,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> dict[int, _Run]:
    """Read the runs that count, by number."""
    along = (CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at)
    by_class: Any = {"partition_by": EnvironmentRow.runner_class}
    newest_first = [column.desc() for column in along]
    ranked = (
        select(
            RunRow.number,
            CommitRow.committed_at,
            EnvironmentRow.runner_class,
            (func.row_number().over(**by_class, order_by=newest_first) - 1).label("age"),
            func.count().over(**by_class).label("run_count"),
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            is_in_series(project, include_branches=bool(branches)),
            is_on(project, runner_classes, branches),
            *_dates(since, until),
        )
        .subquery("ranked")
    )
    # every n-th run spreads those that are read evenly, however many there are
    step = func.greatest(1, ranked.c.run_count // limit)
    is_read = or_(ranked.c.age < _ALWAYS_READ, ranked.c.age % step == 0)
    oldest_first = select(ranked).where(is_read).order_by(ranked.c.age.desc())
    runs: dict[int, _Run] = {}
    for row in session.execute(oldest_first):
        runs[row.number] = _Run(-row.age, row.committed_at, row.runner_class)
    return runs


def _dates(since: datetime | None, until: datetime | None) -> Iterator[ColumnElement[bool]]:
    if since is not None:
        yield CommitRow.committed_at >= since
    if until is not None:
        yield CommitRow.committed_at <= until


def _measured(session: Session, project: str, runs: Mapping[int, _Run]) -> Iterator[RoofCell]:
    row, series = MeasurementRow, SeriesRow
    columns = [getattr(row, name) for name in _Result._fields]
    subject = (CaseRow.name, series.implementation, series.runner_class)
    # one row per cell: the database gathers its runs into arrays
    query = (
        select(*subject, *(func.array_agg(column) for column in columns))
        .select_from(row)
        .join(series, series.id == row.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == series.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(row.run_number.in_(runs), row.outcome != Outcome.UNSUPPORTED.value)
        .group_by(*subject)
        .order_by(*subject)
    )
    for name, implementation, runner_class, *arrays in session.execute(query):
        results = [_Result(*values) for values in zip(*arrays, strict=True)]
        results.sort(key=lambda result: runs[result.run_number].position)
        newest = results[-1]
        timed = [result for result in results if result.median_ns is not None]
        yield RoofCell(
            key=SeriesKey(
                project=project,
                case_id=name,
                implementation=implementation,
                metric="median_ns",
                runner_class=runner_class,
            ),
            dates=tuple(runs[result.run_number].committed_at for result in timed),
            values=tuple(result.median_ns for result in timed if result.median_ns is not None),
            utilisations=tuple(result.utilisation for result in timed),
            ratio_to_reference=newest.ratio_to_reference,
            bound=BOUNDS[newest.is_memory_bound],
            is_degraded=newest.is_degraded,
            outcome=OUTCOMES[newest.outcome],
        )


def _imported(session: Session, project: str, runs: Mapping[int, _Run]) -> Iterator[RoofCell]:
    """Read the values of other tools, each with its newest ratio to a library."""
    classes = {number: run.runner_class for number, run in runs.items()}
    ratios: dict[SeriesKey, float] = {}
    cells: list[RoofCell] = []
    for key, numbers, values in read_recent_imports(session, project, classes):
        dated = [(runs[number], value) for number, value in zip(numbers, values, strict=True)]
        dated.sort(key=lambda run_and_value: run_and_value[0].position)
        _, newest_value = dated[-1]
        if key.is_ratio_to_reference:
            ratios[_subject(key)] = newest_value
        if key.is_performance:
            cell = RoofCell(
                key=key,
                dates=tuple(run.committed_at for run, _ in dated),
                values=tuple(value for _, value in dated),
            )
            cells.append(cell)
    # a ratio may be read after the value that it belongs to
    for cell in sorted(cells, key=lambda cell: cell.key):
        ratio = ratios.get(_subject(cell.key))
        yield replace(cell, ratio_to_reference=ratio)


def _subject(key: SeriesKey) -> SeriesKey:
    """Return what a value and its ratio to a library have in common."""
    title, _, _ = key.definition.title.partition(RATIO_TO)
    return replace(key, metric=title)
