"""Values of whole series as numpy arrays, which the analysis of a project screens for changes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Date, Double, Row, cast, func, literal, select, true
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import Session

from roofwatch.db.queries.series_keys import has_metric
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    MeasurementRow,
    SeriesRow,
    TensorErrorRow,
)
from roofwatch.db.schema.run_filter import is_in_series, project_id
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.model.history import SeriesKey
from roofwatch.model.machine import Outcome


@dataclass(frozen=True)
class TimeColumns:
    """The successful times of one series by one timer and cache state; shapes are [runs].

    Ordered by commit on the branch, then by time.
    """

    key: SeriesKey
    places: NDArray[np.int64]
    """Position of each run's commit among the measured commits of the project, from 0."""
    medians_ns: NDArray[np.float64]
    relative_spreads: NDArray[np.float64]
    """Interquartile range over median."""
    block_counts: NDArray[np.float64]
    days: NDArray[np.datetime64]
    """Start day of each run, in UTC."""
    has_failures: bool
    secondary: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Secondary metrics by name, NaN where not measured; only those with a value in any run."""


@dataclass(frozen=True)
class ErrorColumns:
    """The error of one tensor in each passed check; shapes are [runs],
    ordered as in `TimeColumns`.
    """

    key: SeriesKey
    places: NDArray[np.int64]
    rmse_ratios: NDArray[np.float64]


def list_case_names(session: Session, project: str) -> dict[int, str]:
    """Names of a project's cases by row id, in storage order, so neighbours lie together on
    disk.
    """
    query = select(CaseRow.id, CaseRow.name).where(CaseRow.project_id == project_id(project))
    return dict(session.execute(query.order_by(CaseRow.id)).all())


def count_analysed_runs(session: Session, project: str) -> int:
    """Count the runs that an analysis of the project reads: the most values that a case has."""
    query = select(func.count()).select_from(RunRow)
    return session.scalars(query.where(is_in_series(project, include_pairs=True))).one()


def read_time_columns(
    session: Session,
    project: str,
    row_ids: Sequence[int],
    *,
    secondary: Collection[str] = (),
) -> Iterator[TimeColumns]:
    """Read the times of some cases of `list_case_names`, and some secondary metrics."""
    # the frame of runs is read once: the series only name their runs by number
    runs = _read_runs(session, project)
    row = MeasurementRow
    subject_columns = (
        CaseRow.name,
        SeriesRow.implementation,
        SeriesRow.runner_class,
        SeriesRow.timer,
        SeriesRow.cache,
    )
    series = (
        select(SeriesRow.id, *subject_columns, *(has_metric(metric) for metric in secondary))
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseRow.id.in_(row_ids))
        .order_by(*subject_columns, SeriesRow.id)
    )
    by_subject: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    # a change of timer or cache begins another row, so a subject may have several
    stored_metrics: set[str] = set()
    for series_id, *parts in session.execute(series):
        by_subject[tuple(parts[: len(subject_columns)])].append(series_id)
        stored_metrics.update(compress(secondary, parts[len(subject_columns) :]))
    # one array per column, instead of a row per value
    columns = {
        "run_number": row.run_number,
        "median_ns": row.median_ns,
        "spread": (row.q3_ns - row.q1_ns) / row.median_ns,
        "block_count": row.block_count,
        **{metric: getattr(row, metric) for metric in sorted(stored_metrics)},
    }
    series_ids = [series_id for ids in by_subject.values() for series_id in ids]
    query = (
        select(row.series_id, *_pack(columns))
        .where(row.series_id.in_(series_ids))
        .group_by(row.series_id)
    )
    packed = {series_row.series_id: series_row for series_row in session.execute(query)}
    places = runs["place"].to_numpy()
    days = runs["day"].to_numpy("datetime64[D]")
    for (name, implementation, runner_class, *_), ids in by_subject.items():
        positions, values = _unpack(
            [packed[series_id] for series_id in ids if series_id in packed], columns, runs
        )
        if not len(positions):
            continue
        # a failed measurement has no time, but shows that the series has failures
        is_ok = ~np.isnan(values["median_ns"])
        positions, values = (
            positions[is_ok],
            {column: of_runs[is_ok] for column, of_runs in values.items()},
        )
        yield TimeColumns(
            key=SeriesKey(
                project=project,
                case_id=name,
                implementation=implementation,
                metric="median_ns",
                runner_class=runner_class,
            ),
            places=places[positions],
            medians_ns=values["median_ns"],
            relative_spreads=values["spread"],
            block_counts=values["block_count"],
            days=days[positions],
            has_failures=not is_ok.all(),
            secondary={
                metric: values[metric]
                for metric in sorted(stored_metrics)
                if not np.isnan(values[metric]).all()
            },
        )


def read_error_columns(
    session: Session,
    project: str,
    row_ids: Sequence[int],
) -> Iterator[ErrorColumns]:
    """Read the errors of some cases in passed checks."""
    runs = _read_runs(session, project)
    check = AccuracyRow
    error = TensorErrorRow
    # OFFSET 0 makes this a lookup by key: without statistics, Postgres would compare all errors
    # with all checks
    tensors = (
        select(error.part().label("tensor"), error.rmse_ratio)
        .where(error.is_of(check))
        .correlate(check)
        .offset(0)
        .lateral("tensors")
    )
    columns = {"run_number": check.run_number, "rmse_ratio": tensors.c.rmse_ratio}
    by = (CaseRow.name, check.implementation, EnvironmentRow.runner_class, tensors.c.tensor)
    query = (
        select(*by, *_pack(columns))
        .select_from(check)
        .join(tensors, true())
        .join(CaseRow, CaseRow.id == check.case_id)
        .join(RunRow, RunRow.number == check.run_number)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(check.case_id.in_(row_ids), check.outcome == Outcome.OK.value)
        .group_by(*by)
    )
    for row in session.execute(query):
        positions, values = _unpack([row], columns, runs)
        name, implementation, runner_class, tensor = row[: len(by)]
        key = SeriesKey(
            project=project,
            case_id=name,
            implementation=implementation,
            metric="rmse_ratio",
            runner_class=runner_class,
            tensor=tensor,
        )
        yield ErrorColumns(key, runs["place"].to_numpy()[positions], values["rmse_ratio"])


def _read_runs(session: Session, project: str) -> pd.DataFrame:
    """Read the runs of the default branch and of pairs by number, ordered by commit,
    then by time.
    """
    along = (CommitRow.first_parent_count, CommitRow.sha)
    commit_place = func.dense_rank().over(order_by=along) - 1
    query = (
        select(RunRow.number, commit_place.label("place"), cast(RunRow.started_at, Date))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(is_in_series(project, include_pairs=True))
        .order_by(*along, RunRow.started_at, RunRow.run_id)
    )
    runs = pd.DataFrame(session.execute(query).all(), columns=["number", "place", "day"]).set_index(
        "number"
    )
    return runs.astype({"place": "int64"})


def _pack(columns: Mapping[str, Any]) -> list[Any]:
    """Concatenate the values of each group in binary, which numpy reads without an object per
    value.
    """
    # NULL has no binary form in an array of doubles
    numbers = {
        name: func.coalesce(cast(column, Double), cast("NaN", Double))
        for name, column in columns.items()
    }
    separator = literal(b"", BYTEA)
    return [
        func.string_agg(func.float8send(number), separator, type_=BYTEA).label(name)
        for name, number in numbers.items()
    ]


def _unpack(
    rows: Sequence[Row[Any]],
    columns: Iterable[str],
    runs: pd.DataFrame,
) -> tuple[NDArray[np.intp], dict[str, NDArray[np.float64]]]:
    """Return the positions in `runs` of the values of some rows, in order, and the values by
    column.

    Values of other branches, and of runs that were stored meanwhile, are dropped.
    """
    values: dict[str, NDArray[np.float64]] = {}
    for name in columns:
        packed = b"".join(getattr(row, name) for row in rows)
        values[name] = np.frombuffer(packed, dtype=">f8")
    # a run that is not in the frame gets position -1
    positions = runs.index.get_indexer(pd.Index(values["run_number"].astype(np.int64)))
    order = np.argsort(positions)
    order = order[positions[order] >= 0]
    return positions[order], {
        name: numbers[order].astype(np.float64) for name, numbers in values.items()
    }
