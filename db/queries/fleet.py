"""Runs over all machines, and what they spent their time and energy on."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Float,
    Function,
    Select,
    Subquery,
    Text,
    any_,
    cast,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session, aliased

from roofwatch.db.projects import quarantine_name
from roofwatch.db.queries.runs import NEWEST_FIRST, select_runs, summarise
from roofwatch.db.schema.measurements import MeasurementRow, SeriesRow
from roofwatch.db.schema.run_filter import CaseIds, Limit, Words, is_on, project_id
from roofwatch.db.schema.runs import (
    CaseRow,
    CaseVersionRow,
    CommitRow,
    EnvironmentRow,
    ProjectRow,
    RunRow,
)
from roofwatch.db.schema.subjects import ProjectName, RunIds
from roofwatch.model.machine import Ceiling
from roofwatch.model.series_filter import Word
from roofwatch.model.stored_results import CaseCost, FleetRun, KernelCost


def list_fleet_runs(
    session: Session,
    project: ProjectName,
    *,
    limit: Limit,
    or_run: Word | None = None,
    or_commit: Word | None = None,
    runner_classes: Words = (),
    branches: Words = (),
    of_each_class: bool = False,
    with_quarantine: bool = False,
) -> list[FleetRun]:
    """List runs of any kind, newest first: at most `limit` in all or of each runner class, the
    quarantine apart.

    Runs of `or_run` (its id) and `or_commit` (its sha) are included however old they are. Given
    runner classes and branches, only runs on one of these, of commits measured on one of these, are
    listed.
    """
    names = [project, *([quarantine_name(project)] if with_quarantine else [])]
    is_listed = or_(
        *(
            _newest_runs(name, limit, runner_classes, branches, of_each_class=of_each_class)
            for name in names
        ),
        RunRow.run_id == _uuid(or_run),
        CommitRow.sha == or_commit,
    )
    query = (
        select_runs()
        .add_columns(
            EnvironmentRow,
            RunRow.document["spent_ns"],
            RunRow.document["ceilings"],
            RunRow.document["machine"].as_string(),
        )
        .where(
            ProjectRow.name.in_(names),
            is_listed,
            or_(*(is_on(name, runner_classes, branches) for name in names)),
        )
        .order_by(*NEWEST_FIRST)
    )
    return [
        FleetRun(
            **vars(summarise(*row)),
            environment=environment.to_environment(),
            spent_ns=spent_ns or {},
            ceilings=tuple(map(Ceiling.model_validate, ceilings or ())),
            machine=machine,
        )
        for *row, environment, spent_ns, ceilings, machine in session.execute(query)
    ]


def read_run_energies(session: Session, run_ids: RunIds) -> dict[str, float]:
    """Read the device energy in J from the first to the last reading of each run, without runs that
    have none.
    """
    readings = func.json_array_elements_text(RunRow.telemetry["energy_j"]).table_valued("value")
    energy_j = select(func.max(cast(readings.c.value, Float))).scalar_subquery()
    query = select(RunRow.run_id, energy_j).where(
        RunRow.run_id.in_(run_ids), RunRow.telemetry.is_not(None)
    )
    return {str(run_id): joules for run_id, joules in session.execute(query) if joules is not None}


def list_kernel_costs(
    session: Session,
    run_ids: RunIds,
    *,
    case_ids: CaseIds | None = None,
) -> list[KernelCost]:
    """List what runs spent on each kernel, in some cases or all."""
    is_wanted = _is_among(case_ids)
    timed = _timed(run_ids)
    by = (timed.c.run_id, CaseRow.kernel, CaseVersionRow.family)
    count = func.count().filter(is_wanted)
    amounts = (cast(amount.filter(is_wanted), Float) for amount in _amounts(timed))
    columns = [*by, count, func.count().filter(is_wanted, timed.c.is_degraded), *amounts]
    query = _with_cases(columns, timed).group_by(*by).having(count > 0)
    return [
        KernelCost(
            run_id=str(run_id),
            kernel=kernel,
            family=family,
            measurement_count=count,
            degraded_count=degraded_count,
            timed_ns=timed_ns or 0.0,
            energy_j=energy_j,
        )
        for run_id, kernel, family, count, degraded_count, timed_ns, energy_j in session.execute(
            query
        )
    ]


def list_case_costs(
    session: Session,
    run_ids: RunIds,
    *,
    limit: Limit,
    case_ids: CaseIds | None = None,
) -> list[CaseCost]:
    """List the cases and implementations that runs spent most on, most expensive first; only some
    cases if given.
    """
    timed = _timed(run_ids)
    # group by series first: there are fewer of these to look up
    amounts = (
        amount.label(name)
        for name, amount in zip(("timed_ns", "energy_j"), _amounts(timed), strict=True)
    )
    columns = [
        timed.c.series_id,
        func.count().label("run_count"),
        func.max(timed.c.median_ns).label("median_ns"),
    ]
    by_series = (
        select(*columns, *amounts)
        .where(timed.c.median_ns.is_not(None))
        .group_by(timed.c.series_id)
        .subquery("by_series")
    )
    by = (CaseRow.name, SeriesRow.implementation)
    run_count = cast(func.sum(by_series.c.run_count), BigInteger)
    timed_ns, energy_j = (
        cast(func.sum(amount), Float) for amount in (by_series.c.timed_ns, by_series.c.energy_j)
    )
    query = (
        _with_cases(
            [*by, run_count, func.max(by_series.c.median_ns), timed_ns, energy_j], by_series
        )
        .group_by(*by)
        .having(func.count().filter(_is_among(case_ids)) > 0)
        .order_by(timed_ns.desc(), *by)
        .limit(limit)
    )
    return [CaseCost(*row) for row in session.execute(query)]


def _newest_runs(
    project: str,
    limit: int,
    runner_classes: Collection[str],
    branches: Collection[str],
    *,
    of_each_class: bool,
) -> ColumnElement[bool]:
    run = aliased(RunRow)
    environment = aliased(EnvironmentRow)
    newest_first = (run.started_at.desc(), run.run_id)
    runs = (
        select(run.run_id)
        .join(environment, environment.id == run.environment_id)
        .where(
            run.project_id == project_id(project),
            is_on(project, runner_classes, branches, run=run, environment=environment),
        )
    )
    if not of_each_class:
        return RunRow.run_id.in_(runs.order_by(*newest_first).limit(limit))
    rank = (
        func.row_number()
        .over(partition_by=environment.runner_class, order_by=newest_first)
        .label("rank")
    )
    ranked = runs.add_columns(rank).subquery()
    return RunRow.run_id.in_(select(ranked.c.run_id).where(ranked.c.rank <= limit))


def _is_among(case_ids: Collection[str] | None) -> ColumnElement[bool]:
    """Filter cases in an aggregate; as a row condition, Postgres would read all measurements of
    thousands of cases.
    """
    if case_ids is None:
        return true()
    return CaseRow.name == any_(cast(list(case_ids), ARRAY(Text)))


def _timed(run_ids: Collection[UUID]) -> Subquery:
    """Select the measurements of some runs."""
    row = MeasurementRow
    # OFFSET 0 makes this an index lookup per run
    measured = (
        select(
            row.series_id,
            row.median_ns,
            row.joules_per_launch,
            row.launch_count,
            row.is_degraded,
        )
        .where(row.run_number == RunRow.number)
        .correlate(RunRow)
        .offset(0)
        .lateral("measured")
    )
    return (
        select(RunRow.run_id, measured)
        .join(measured, true())
        .where(RunRow.run_id.in_(run_ids))
        .subquery("timed")
    )


def _with_cases(columns: Collection[Any], timed: Subquery) -> Select[Any]:
    """Select columns of what has a `series_id`, and of its series and case."""
    return (
        select(*columns)
        .select_from(timed)
        .join(SeriesRow, SeriesRow.id == timed.c.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
    )


def _amounts(timed: Subquery) -> tuple[Function[Any], Function[Any]]:
    """Return time in ns and energy in J."""
    return (
        func.sum(timed.c.median_ns * timed.c.launch_count),
        func.sum(timed.c.joules_per_launch * timed.c.launch_count),
    )


def _uuid(run_id: str | None) -> UUID | None:
    """Parse a run id from a page's address; None if it is not one."""
    try:
        if run_id is None:
            return None
        return UUID(run_id)
    except ValueError:
        return None
