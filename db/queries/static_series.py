"""Series of what is known of machine code: the same for all runs that found the same, so there is little to read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Select, func, select, true
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.queries.series_filter import SeriesFilter, Subject, is_first_of_layer, subject_columns
from roofwatch.db.queries.series_runs import SeriesRun
from roofwatch.db.schema.measurements import CompilationRow, StaticFactRow
from roofwatch.db.schema.runs import CaseRow, ProjectRow
from roofwatch.db.values import SeriesKey, SeriesPoint


def static_points(
    session: Session, wanted: SeriesFilter, runs: Mapping[int, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.STATIC)
    if not metrics:
        return
    table = StaticFactRow
    columns = [CompilationRow.run_number, CaseRow.name, table.implementation, table.function, table.target]
    facts = [table.outcome, table.message, table.code_hash, *(getattr(table, metric) for metric in metrics)]
    for row in session.execute(_facts([*columns, *facts], wanted)):
        run = runs.get(row.run_number)
        if run is None:
            continue
        for metric in metrics:
            value = getattr(row, metric)
            if row.outcome != Outcome.OK or value is not None:
                key = SeriesKey(
                    wanted.project, row.name, row.implementation, metric, function=row.function, target=row.target
                )
                point_value = value if row.outcome == Outcome.OK else None
                yield key, run.point(row.outcome, row.message, point_value, code_hash=row.code_hash)


def static_subjects(wanted: SeriesFilter) -> Select[Any]:
    """What was compiled in the runs that are wanted; of each metric how many values there are, of the first one also
    how many failures.
    """
    table = StaticFactRow
    by = (CaseRow.name, table.implementation, table.function, table.target)
    ok = table.outcome == Outcome.OK.value
    counts: list[Any] = []
    for metric in wanted.metric_keys(Layer.STATIC):
        count = func.count(getattr(table, metric)).filter(ok)
        counts.append(count + func.count().filter(~ok) if is_first_of_layer(metric) else count)
    columns = subject_columns(
        *(Layer.STATIC, CaseRow.name, table.implementation), function=table.function, target=table.target, counts=counts
    )
    return _facts(columns, wanted).group_by(*by)


def static_keys(wanted: SeriesFilter, subjects: Iterable[Subject]) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.STATIC)
    for one in subjects:
        for metric, count in zip(metrics, one.counts, strict=True):
            if count:
                yield SeriesKey(
                    wanted.project,
                    one.case_id,
                    one.implementation,
                    metric,
                    function=one.function or "",
                    target=one.target or "",
                )


def _facts(columns: Collection[Any], wanted: SeriesFilter) -> Select[Any]:
    """Select from compilations and what they found, joined with all that keys and filters need."""
    return (
        select(*columns)
        .select_from(StaticFactRow)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .join(CompilationRow, CompilationRow.static_fact_id == StaticFactRow.id)
        .join(wanted.run_of(CompilationRow.run_number), true())
        .where(ProjectRow.name == wanted.project, wanted.subject(StaticFactRow.implementation))
    )
