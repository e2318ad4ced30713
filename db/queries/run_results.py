"""What single runs brought, of every case and implementation: enough to see whether anything there is new."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, Executable, func, select, true
from sqlalchemy.orm import Session

from roofwatch.collector.record.part import Outcome
from roofwatch.db.queries.codes import read_codes_of_runs
from roofwatch.db.queries.run_results_values import JudgedRun, NewError, News, NewTime
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.records import (
    AccuracyRow,
    CaseRow,
    CaseVersionRow,
    CommitRow,
    CountersRow,
    EnvironmentRow,
    MeasurementRow,
    ProfileRow,
    ProjectRow,
    RunRow,
    SeriesRow,
    TensorErrorRow,
)
from roofwatch.db.values import timing_of


def list_judged_runs(session: Session, project: str) -> list[JudgedRun]:
    """The runs that a project's judgement takes in, sides of pairs among them, in the order of the branch."""
    query = (
        select(
            RunRow.number,
            CommitRow.first_parent_count,
            CommitRow.sha,
            RunRow.started_at,
            RunRow.measured_on,
            EnvironmentRow.runner_class,
            RunRow.pair_id.is_not(None),
            func.cardinality(RunRow.series_ids),
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(of_series(project, include_dirty=False, include_pairs=True, include_branches=False))
        .order_by(CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id)
    )
    return [JudgedRun(*row) for row in session.execute(query)]


def read_news(
    session: Session, project: str, runs: Sequence[JudgedRun], row_ids: range, *, beside: Sequence[str] = ()
) -> dict[tuple[str, str], News]:
    """What some runs measured, checked and compiled, by case and implementation; of the cases in some rows. Of what is
    measured beside times, some metrics.
    """
    numbers = [run.number for run in runs]
    days = {run.measured_on for run in runs}
    news: dict[tuple[str, str], News] = {}
    for row in session.execute(_times(numbers, days, row_ids, beside)):
        name, row_id, implementation, number, runner_class, timer, cache, median_ns, spread, block_count, *values = row
        new_time = NewTime(
            number,
            runner_class,
            timing_of(timer, cache),
            median_ns,
            relative_spread=spread,
            block_count=block_count,
        )
        if any(value is not None for value in values):
            known = {metric: value for metric, value in zip(beside, values, strict=True) if value is not None}
            new_time = replace(new_time, beside=known)
        news.setdefault((name, implementation), News(row_id)).times.append(new_time)
    for name, row_id, implementation, number, tensor, ratio, outcome in session.execute(
        _errors(numbers, days, row_ids)
    ):
        new = NewError(number, tensor, ratio, is_ok=outcome == Outcome.OK.value)
        news.setdefault((name, implementation), News(row_id)).errors.append(new)
    codes = read_codes_of_runs(session, project, run_numbers=numbers, days=days, row_ids=row_ids)
    for subject, code in codes.items():
        news.setdefault(subject, News(code.row_id)).code = code.newest
    for table in (CountersRow, ProfileRow):
        for name, row_id, implementation in session.execute(_witnessed(table, numbers, days, row_ids)):
            news.setdefault((name, implementation), News(row_id)).has_witnesses = True
    return news


# Each statement begins with what the runs have, and looks the rest up for each row. Of joins Postgres chooses the
# order: it expects hardly any row of a run, and held each of 2,000 against each of 2,000, or read all that was ever
# measured of the cases.


def _times(numbers: Collection[int], days: Collection[date], row_ids: range, beside: Sequence[str]) -> Executable:
    table = MeasurementRow
    of_series = (
        select(
            CaseRow.name,
            CaseRow.id,
            SeriesRow.implementation,
            SeriesRow.runner_class,
            SeriesRow.timer,
            SeriesRow.cache,
        )
        .select_from(SeriesRow)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(SeriesRow.id == table.series_id, _is_of(row_ids, CaseRow.id))
        .offset(0)
        .lateral("of_series")
    )
    return (
        select(
            of_series.c.name,
            of_series.c.id,
            of_series.c.implementation,
            table.run_number,
            of_series.c.runner_class,
            of_series.c.timer,
            of_series.c.cache,
            table.median_ns,
            (table.q3_ns - table.q1_ns) / table.median_ns,
            table.block_count,
            *(getattr(table, metric) for metric in beside),
        )
        .select_from(table)
        .join(of_series, true())
        .where(table.measured_on.in_(days), table.run_number.in_(numbers))
    )


def _errors(numbers: Collection[int], days: Collection[date], row_ids: range) -> Executable:
    error = (
        select(TensorErrorRow.tensor, TensorErrorRow.rmse_ratio)
        .where(
            TensorErrorRow.measured_on == AccuracyRow.measured_on,
            TensorErrorRow.run_number == AccuracyRow.run_number,
            TensorErrorRow.case_id == AccuracyRow.case_id,
            TensorErrorRow.implementation == AccuracyRow.implementation,
        )
        .offset(0)
        .lateral("error")
    )
    return (
        select(
            CaseRow.name,
            CaseRow.id,
            AccuracyRow.implementation,
            AccuracyRow.run_number,
            error.c.tensor,
            error.c.rmse_ratio,
            AccuracyRow.outcome,
        )
        .select_from(AccuracyRow)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .outerjoin(error, true())
        .where(
            AccuracyRow.measured_on.in_(days),
            AccuracyRow.run_number.in_(numbers),
            _is_of(row_ids, AccuracyRow.case_id),
        )
    )


def _witnessed(
    table: type[CountersRow | ProfileRow], numbers: Collection[int], days: Collection[date], row_ids: range
) -> Executable:
    return (
        select(CaseRow.name, CaseRow.id, table.implementation)
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.measured_on.in_(days), table.run_number.in_(numbers), _is_of(row_ids, table.case_id))
        .distinct()
    )


def _is_of(row_ids: range, case_id: Any) -> ColumnElement[bool]:
    among: ColumnElement[bool] = case_id.between(row_ids.start, row_ids.stop - 1)
    return among
