"""How far each case is from its roof, on each runner class, over some of its runs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

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


_Run = tuple[int, datetime, str]
"""Position among those of its runner class, date of its commit, and runner class."""


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
    step = func.greatest(1, ranked.c.run_count // limit)
    is_read = or_(ranked.c.age < _ALWAYS_READ, ranked.c.age % step == 0)
    rows = session.execute(select(ranked).where(is_read).order_by(ranked.c.age.desc())).all()
    return {row.number: (-row.age, row.committed_at, row.runner_class) for row in rows}


def _dates(since: datetime | None, until: datetime | None) -> Iterator[ColumnElement[bool]]:
    if since is not None:
        yield CommitRow.committed_at >= since
    if until is not None:
        yield CommitRow.committed_at <= until


def _measured(session: Session, project: str, runs: Mapping[int, _Run]) -> Iterator[RoofCell]:
    row, series = MeasurementRow, SeriesRow
    columns = (
        row.run_number,
        row.outcome,
        row.median_ns,
        row.utilisation,
        row.ratio_to_reference,
        row.is_memory_bound,
        row.is_degraded,
    )
    query = (
        select(
            CaseRow.name,
            series.implementation,
            series.runner_class,
            *(func.array_agg(column) for column in columns),
        )
        .select_from(row)
        .join(series, series.id == row.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == series.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(row.run_number.in_(runs), row.outcome != Outcome.UNSUPPORTED.value)
        .group_by(CaseRow.name, series.implementation, series.runner_class)
        .order_by(CaseRow.name, series.implementation, series.runner_class)
    )
    for name, implementation, runner_class, *arrays in session.execute(query):
        in_order = sorted(zip(*arrays, strict=True), key=lambda values: runs[values[0]][0])
        _, outcome, _, _, ratio, is_memory_bound, is_degraded = in_order[-1]
        timed = [values for values in in_order if values[2] is not None]
        yield RoofCell(
            key=SeriesKey(
                project=project,
                case_id=name,
                implementation=implementation,
                metric="median_ns",
                runner_class=runner_class,
            ),
            dates=tuple(runs[number][1] for number, *_ in timed),
            values=tuple(time_ns for _, _, time_ns, *_ in timed),
            utilisations=tuple(share for _, _, _, share, *_ in timed),
            ratio_to_reference=ratio,
            bound=BOUNDS[is_memory_bound],
            is_degraded=is_degraded,
            outcome=OUTCOMES[outcome],
        )


def _imported(session: Session, project: str, runs: Mapping[int, _Run]) -> Iterator[RoofCell]:
    """Read the values of other tools, each with its newest ratio to a library."""
    classes = {number: runner_class for number, (_, _, runner_class) in runs.items()}
    ratios: dict[SeriesKey, float] = {}
    cells: list[RoofCell] = []
    for key, numbers, values in read_recent_imports(session, project, classes):
        in_order = sorted(zip(numbers, values, strict=True), key=lambda pair: runs[pair[0]][0])
        if key.is_ratio_to_reference:
            ratios[_subject(key)] = in_order[-1][1]
        if key.is_performance:
            dates = tuple(runs[number][1] for number, _ in in_order)
            cells.append(RoofCell(key, dates, tuple(value for _, value in in_order)))
    for cell in sorted(cells, key=lambda cell: cell.key):
        ratio = ratios.get(_subject(cell.key))
        yield RoofCell(
            key=cell.key,
            dates=cell.dates,
            values=cell.values,
            ratio_to_reference=ratio,
        )


def _subject(key: SeriesKey) -> SeriesKey:
    """Return what a value and its ratio to a library have in common."""
    title, _, _ = key.definition.title.partition(RATIO_TO)
    return replace(key, metric=title)
