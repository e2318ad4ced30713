"""Which series a project has."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Text,
    and_,
    any_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.orm import Session
from sqlalchemy.sql.selectable import LateralFromClause

from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CaseDocumentRow,
    CompilationRow,
    ImportedRow,
    MeasurementRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.run_filter import is_in_series, project_id
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, EnvironmentRow, RunRow
from roofwatch.model.history import SeriesKey
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import METRICS, RATES, Layer
from roofwatch.model.proofs import OPERATORS
from roofwatch.model.series_filter import IncludedRuns, SeriesFilter

WORK: Mapping[str, Any] = {rate.key: getattr(CaseVersionRow, rate.work) for rate in RATES}
"""Work of a case by the metric that is this work over its time."""


@dataclass(frozen=True)
class _Filter:
    subject: ColumnElement[bool]
    """Condition on `CaseRow`."""
    runs: ColumnElement[bool]
    """Condition on `RunRow`."""
    metrics: Sequence[str]
    """Wanted metrics of one layer."""
    first_metric: str
    """First metric of the layer: the only one that is listed for a subject without values."""


def metrics_of(layer: Layer) -> list[str]:
    """Return the metric names of a layer."""
    return [name for name, metric in METRICS.items() if metric.layer is layer]


def list_series_keys(
    session: Session,
    project: str,
    *,
    kernel: str | None = None,
    metric: str | None = None,
    cases: Collection[str] | None = None,
    **included: Unpack[IncludedRuns],
) -> list[SeriesKey]:
    """List the series of a project in order: only of a kernel, a metric, or some case ids if given.

    A subject without any value has one series: the first metric of its layer, which shows the
    failures. See `is_in_series` for the runs that count.
    """
    subject = and_(
        CaseRow.project_id == project_id(project),
        *([] if kernel is None else [CaseRow.kernel == kernel]),
        *([] if cases is None else [CaseRow.name.in_(cases)]),
    )
    runs = is_in_series(project, **included)
    queries = []
    for layer, query in _SUBJECTS.items():
        names = metrics_of(layer)
        selected_metrics = [name for name in names if metric in (None, name)]
        if selected_metrics:
            queries.append(
                query(
                    _Filter(
                        subject=subject,
                        runs=runs,
                        metrics=selected_metrics,
                        first_metric=names[0],
                    )
                )
            )
    # a metric that is not in the table may be one of another tool
    if metric not in METRICS:
        queries.append(
            _imported(
                _Filter(
                    subject=subject,
                    runs=runs,
                    metrics=[] if metric is None else [metric],
                    first_metric="",
                )
            )
        )
    rows = session.execute(union_all(*queries)).all()
    with_tensors = {row[:3] for row in rows if row.tensor}
    of_tensors = frozenset(metrics_of(Layer.ACCURACY))
    # a set: a series has several rows if its timer, cache state or case version changed
    keys: set[SeriesKey] = set()
    for row in rows:
        names = row.metrics
        # a failed check has no tensors and counts for those of other runs
        if not row.tensor and row[:3] in with_tensors:
            names = [name for name in names if name not in of_tensors]
        keys.update(
            SeriesKey(
                project,
                row.case_id,
                row.implementation,
                name,
                *row[2:6],
            )
            for name in names
        )
    return sorted(keys)


def list_filtered_keys(session: Session, chosen: SeriesFilter) -> list[SeriesKey]:
    """List the series that a client chose, in order."""
    cases = None
    if chosen.case is not None:
        cases = [chosen.case]
    return list_series_keys(
        session,
        chosen.project,
        kernel=chosen.kernel,
        metric=chosen.metric,
        cases=cases,
        **chosen.included,
    )


def _columns(
    filters: _Filter,
    implementation: Any,
    has_value: Callable[[str], ColumnElement[bool]],
    *,
    runner_class: Any = "",
    function: Any = "",
    target: Any = "",
    tensor: Any = "",
) -> list[ColumnElement[Any]]:
    """Return the columns of a subject: what its series have in common, and the metrics with a
    series.
    """
    texts = {
        "case_id": CaseRow.name,
        "implementation": implementation,
        "runner_class": runner_class,
        "function": function,
        "target": target,
        "tensor": tensor,
    }
    names = [case((has_value(name), cast(literal(name), Text))) for name in filters.metrics]
    metrics = func.array_remove(cast(array(names), ARRAY(Text)), None, type_=ARRAY(Text))
    return [
        *(cast(text, Text).label(name) for name, text in texts.items()),
        metrics.label("metrics"),
    ]


def has_metric(metric: str) -> ColumnElement[bool]:
    """Check whether any measurement of a series, in any run, has a stored metric."""
    return literal(metric, Text) == any_(SeriesRow.metrics)


def _measured(filters: _Filter) -> Select[Any]:
    """Look for one measurement per series and metric instead of reading all."""
    has_time = _has_measurement(filters, MeasurementRow.outcome == Outcome.OK.value)

    def has_value(metric: str) -> ColumnElement[bool]:
        if metric == filters.first_metric:
            return true()
        if metric in WORK:
            return and_(WORK[metric] > 0, has_time)
        # most series have no value of most metrics: the list saves a search through all results
        return case(
            (
                has_metric(metric),
                _has_measurement(filters, getattr(MeasurementRow, metric).is_not(None)),
            ),
            else_=false(),
        )

    columns = _columns(
        filters,
        SeriesRow.implementation,
        has_value,
        runner_class=SeriesRow.runner_class,
    )
    return (
        select(*columns)
        .select_from(SeriesRow)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(filters.subject, _has_measurement(filters, true()))
    )


def _has_measurement(filters: _Filter, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Check whether a series has a measurement that meets a condition, in any wanted run.

    The run is a scalar subquery and `OFFSET 0` prevents a join: without statistics, Postgres would
    join in an order that reads all measurements.
    """
    is_wanted = (
        select(filters.runs)
        .select_from(RunRow)
        .where(RunRow.number == MeasurementRow.run_number)
        .correlate(MeasurementRow)
        .scalar_subquery()
    )
    return exists(
        select(1)
        .where(MeasurementRow.series_id == SeriesRow.id, condition, is_wanted)
        .correlate(SeriesRow)
        .offset(0)
    )


def _run(filters: _Filter, run_number: Any) -> LateralFromClause:
    """Look each run up by its number; a plain join would read all results per run if there are no
    statistics.
    """
    return (
        select(RunRow.number, RunRow.environment_id)
        .where(RunRow.number == run_number, filters.runs)
        .correlate_except(RunRow)
        .offset(0)
        .lateral("run_of")
    )


def _accuracy(filters: _Filter) -> Select[Any]:
    table, error = AccuracyRow, TensorErrorRow
    run = _run(filters, table.run_number)
    tensor = func.coalesce(error.part(), "")
    is_ok = func.count().filter(table.outcome == Outcome.OK.value) > 0

    def has_value(metric: str) -> ColumnElement[bool]:
        if metric != filters.first_metric:
            return is_ok
        return true()

    columns = _columns(
        filters,
        table.implementation,
        has_value,
        runner_class=EnvironmentRow.runner_class,
        tensor=tensor,
    )
    return (
        select(*columns)
        .select_from(table)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(run, true())
        .join(EnvironmentRow, EnvironmentRow.id == run.c.environment_id)
        .outerjoin(error, error.is_of(table))
        .where(filters.subject)
        .group_by(
            CaseRow.name,
            table.implementation,
            EnvironmentRow.runner_class,
            error.tensor,
            error.regime,
        )
    )


def _static(filters: _Filter) -> Select[Any]:
    table = StaticFactRow
    is_ok = table.outcome == Outcome.OK.value

    def has_value(metric: str) -> ColumnElement[bool]:
        has_any = func.count(getattr(table, metric)).filter(is_ok) > 0
        if metric != filters.first_metric:
            return has_any
        return or_(has_any, func.bool_or(~is_ok))

    columns = _columns(
        filters,
        table.implementation,
        has_value,
        function=table.function,
        target=table.target,
    )
    return (
        select(*columns)
        .select_from(table)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(CompilationRow, CompilationRow.static_fact_id == table.id)
        .join(_run(filters, CompilationRow.run_number), true())
        .where(filters.subject)
        .group_by(
            CaseRow.name,
            table.implementation,
            table.function,
            table.target,
        )
    )


def _operators(filters: _Filter) -> Select[Any]:
    table = CaseDocumentRow
    columns = _columns(filters, table.implementation, lambda _: true(), function=OPERATORS)
    return (
        select(*columns)
        .select_from(table)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(_run(filters, table.run_number), true())
        .where(filters.subject, table.kind == "operator_costs")
        .group_by(CaseRow.name, table.implementation)
    )


def _imported(filters: _Filter) -> Select[Any]:
    """Look for imported metrics; without names, for all."""
    table = ImportedRow
    columns = _columns(
        filters,
        table.implementation,
        lambda _: true(),
        runner_class=EnvironmentRow.runner_class,
    )
    run = _run(filters, table.run_number)
    query = (
        select(
            *columns[:-1], func.array_agg(table.key.distinct(), type_=ARRAY(Text)).label("metrics")
        )
        .select_from(table)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(run, true())
        .join(EnvironmentRow, EnvironmentRow.id == run.c.environment_id)
        .where(filters.subject)
        .group_by(CaseRow.name, table.implementation, EnvironmentRow.runner_class)
    )
    if not filters.metrics:
        return query
    return query.where(table.key.in_(filters.metrics))


_SUBJECTS = {
    Layer.MEASURED: _measured,
    Layer.ACCURACY: _accuracy,
    Layer.STATIC: _static,
    Layer.OPERATORS: _operators,
}
