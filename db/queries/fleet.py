"""Questions about a fleet: which runs there were on which machines, and what they spent on what."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Float,
    Function,
    ScalarSelect,
    Select,
    Subquery,
    Text,
    any_,
    cast,
    func,
    null,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session, aliased, defer

from roofwatch.collector.record.machine import Ceiling, Environment
from roofwatch.db.projects import is_quarantine, quarantine_name
from roofwatch.db.queries.filters import Narrowing, project_id
from roofwatch.db.queries.fleet_values import CaseCost, FleetRun, KernelCost
from roofwatch.db.schema.measurements import MeasurementRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CeilingRow, CommitRow, EnvironmentRow, ProjectRow, RunRow


def list_fleet_runs(
    session: Session,
    project: str,
    *,
    limit: int,
    or_run: str | None = None,
    or_commit: str | None = None,
    runner_classes: Collection[str] = (),
    branches: Collection[str] = (),
    of_each_class: bool = False,
    with_quarantine: bool = False,
) -> list[FleetRun]:
    """The runs that started last, newest first, of any kind.

    Args:
        session: Of the store.
        project: Its name.
        limit: So many.
        or_run: Id of a run that is wanted however old it is; one that the project does not have is left out.
        or_commit: Sha of a commit whose runs are wanted likewise.
        runner_classes: Only runs on these, what is wanted besides too; any where none is named.
        branches: Only runs of commits that were measured under the name of one of these, likewise.
        of_each_class: So many of each runner class, however long ago it gave its last.
        with_quarantine: As many of the project's quarantine too, marked as what they are.
    """
    names = [project, *([quarantine_name(project)] if with_quarantine else [])]
    narrowings = [Narrowing(name, runner_classes, branches) for name in names]
    wanted = or_(
        *(_newest_runs(narrowing, limit, of_each_class=of_each_class) for narrowing in narrowings),
        RunRow.run_id == _uuid(or_run),
        CommitRow.sha == or_commit,
    )
    admitted = or_(*(narrowing.admits(RunRow, EnvironmentRow) for narrowing in narrowings))
    query = (
        select(RunRow, CommitRow, EnvironmentRow, ProjectRow.name, _ceilings_of_run())
        .options(defer(RunRow.telemetry), defer(RunRow.unread_fields))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(ProjectRow.name.in_(names), wanted, admitted)
        .order_by(RunRow.started_at.desc(), RunRow.run_id)
    )
    return [
        FleetRun(
            run_id=str(run.run_id),
            commit=commit.to_ref(),
            environment=Environment.model_validate(
                {name: getattr(environment, name) for name in Environment.model_fields}
            ),
            started_at=run.started_at,
            finished_at=run.finished_at,
            harness_version=run.harness_version,
            is_dirty=run.is_dirty,
            is_paired=run.pair_id is not None,
            spent_ns=run.spent_ns,
            ceilings=tuple(map(Ceiling.model_validate, ceilings or ())),
            is_quarantined=is_quarantine(name),
            is_unreachable=run.is_unreachable,
        )
        for run, commit, environment, name, ceilings in session.execute(query)
    ]


def read_run_energies(session: Session, run_ids: Collection[str]) -> dict[str, float]:
    """Energy in J that the device took from the first reading of a run to its last, by run; without the runs of which
    it was not read.
    """
    readings = func.json_array_elements_text(RunRow.telemetry["energy_j"]).table_valued("value")
    energy_j = select(func.max(cast(readings.c.value, Float))).scalar_subquery()
    query = select(RunRow.run_id, energy_j).where(RunRow.run_id.in_(_keys(run_ids)), RunRow.telemetry.is_not(None))
    return {str(run_id): joules for run_id, joules in session.execute(query) if joules is not None}


def list_kernel_costs(
    session: Session, run_ids: Collection[str], *, case_ids: Collection[str] | None = None
) -> list[KernelCost]:
    """What runs spent on each kernel.

    Args:
        session: Of the store.
        run_ids: Of the runs.
        case_ids: Only what they spent on these cases; None for all.
    """
    is_wanted = _is_among(case_ids)
    timed = _timed(run_ids)
    by = (timed.c.run_id, CaseRow.kernel, CaseVersionRow.family)
    count = func.count().filter(is_wanted)
    amounts = (cast(amount.filter(is_wanted), Float) for amount in _amounts(timed))
    columns = [*by, count, func.count().filter(is_wanted, timed.c.is_degraded), *amounts]
    query = _of_cases(columns, timed).group_by(*by).having(count > 0)
    return [
        KernelCost(str(run_id), kernel, family, count, degraded_count, timed_ns or 0.0, energy_j)
        for run_id, kernel, family, count, degraded_count, timed_ns, energy_j in session.execute(query)
    ]


def list_case_costs(
    session: Session, run_ids: Collection[str], *, limit: int, case_ids: Collection[str] | None = None
) -> list[CaseCost]:
    """The cases and implementations that runs spent most on, the dearest first.

    Args:
        session: Of the store.
        run_ids: Of the runs.
        limit: So many.
        case_ids: Of these cases; None for all.
    """
    timed = _timed(run_ids)
    # of a series first, as there are fewer of these to look up; a run has a case with an implementation once
    amounts = (amount.label(name) for name, amount in zip(("timed_ns", "energy_j"), _amounts(timed), strict=True))
    columns = [timed.c.series_id, func.count().label("run_count"), func.max(timed.c.median_ns).label("median_ns")]
    of_series = (
        select(*columns, *amounts)
        .where(timed.c.median_ns.is_not(None))
        .group_by(timed.c.series_id)
        .subquery("of_series")
    )
    by = (CaseRow.name, SeriesRow.implementation)
    run_count = cast(func.sum(of_series.c.run_count), BigInteger)
    timed_ns, energy_j = (cast(func.sum(amount), Float) for amount in (of_series.c.timed_ns, of_series.c.energy_j))
    query = (
        _of_cases([*by, run_count, func.max(of_series.c.median_ns), timed_ns, energy_j], of_series)
        .group_by(*by)
        .having(func.count().filter(_is_among(case_ids)) > 0)
        .order_by(timed_ns.desc(), *by)
        .limit(limit)
    )
    return [CaseCost(*row) for row in session.execute(query)]


def _newest_runs(narrowing: Narrowing, limit: int, *, of_each_class: bool) -> ColumnElement[bool]:
    run, environment = aliased(RunRow), aliased(EnvironmentRow)
    newest_first = (run.started_at.desc(), run.run_id)
    of_project = (
        select(run.run_id)
        .join(environment, environment.id == run.environment_id)
        .where(run.project_id == project_id(narrowing.project), narrowing.admits(run, environment))
    )
    if not of_each_class:
        return RunRow.run_id.in_(of_project.order_by(*newest_first).limit(limit))
    place = func.row_number().over(partition_by=environment.runner_class, order_by=newest_first).label("place")
    placed = of_project.add_columns(place).subquery()
    return RunRow.run_id.in_(select(placed.c.run_id).where(placed.c.place <= limit))


def _is_among(case_ids: Collection[str] | None) -> ColumnElement[bool]:
    """For aggregates alone: as a condition on rows, thousands of cases would have Postgres begin with those, and read
    all that was ever measured of them.
    """
    return true() if case_ids is None else CaseRow.name == any_(cast(list(case_ids), ARRAY(Text)))


def _ceilings_of_run() -> ScalarSelect[Any]:
    """As a document beside the run: they are few, and one statement reads all."""
    names = tuple(Ceiling.model_fields)
    fields = [part for name in names for part in (name, getattr(CeilingRow, name))]
    document = func.json_agg(aggregate_order_by(func.json_build_object(*fields), CeilingRow.position))
    return select(document).where(CeilingRow.run_id == RunRow.run_id).scalar_subquery()


def _timed(run_ids: Collection[str]) -> Subquery:
    """What runs measured, a row for each series of a run, with how many of its launches were timed, as the run lists
    them.

    Both are put one after the other and grouped, not joined: Postgres expects a run to list ten series and to have
    hardly any measurement, and would hold each of 2,000 against each of 2,000.
    """
    wanted = RunRow.run_id.in_(_keys(run_ids))
    launches = (
        func.unnest(RunRow.series_ids, RunRow.launch_counts)
        .table_valued("series_id", "launch_count", name="launches")
        .render_derived()
        .lateral()
    )
    # by a look into the index for each run: of a join Postgres chooses the order, and may read a whole month
    measured_by_run = (
        select(MeasurementRow.series_id, MeasurementRow.median_ns, MeasurementRow.joules_per_launch)
        .where(MeasurementRow.measured_on == RunRow.measured_on, MeasurementRow.run_number == RunRow.number)
        .correlate(RunRow)
        .offset(0)
        .lateral("measured_by_run")
    )
    is_degraded = measured_by_run.c.series_id == func.any(RunRow.degraded_series_ids)
    values = [*measured_by_run.c, is_degraded.label("is_degraded"), null().label("launch_count")]
    measured = select(RunRow.run_id, *values).join(measured_by_run, true()).where(wanted)
    listed = (
        select(RunRow.run_id, launches.c.series_id, null(), null(), null(), launches.c.launch_count)
        .join(launches, true())
        .where(wanted)
    )
    each = union_all(measured, listed).subquery("each")
    by = (each.c.run_id, each.c.series_id)
    once = [
        func.max(each.c.median_ns).label("median_ns"),
        func.max(each.c.joules_per_launch).label("joules_per_launch"),
        func.bool_or(each.c.is_degraded).label("is_degraded"),
        func.max(each.c.launch_count).label("launch_count"),
    ]
    is_measured = func.count(each.c.is_degraded) > 0
    return select(*by, *once).group_by(*by).having(is_measured).subquery("timed")


def _of_cases(columns: Collection[Any], timed: Subquery) -> Select[Any]:
    """Columns of what has a `series_id`, and of its series and case."""
    return (
        select(*columns)
        .select_from(timed)
        .join(SeriesRow, SeriesRow.id == timed.c.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
    )


def _amounts(timed: Subquery) -> tuple[Function[Any], Function[Any]]:
    """Time in ns and energy in J."""
    return (
        func.sum(timed.c.median_ns * timed.c.launch_count),
        func.sum(timed.c.joules_per_launch * timed.c.launch_count),
    )


def _uuid(run_id: str | None) -> UUID | None:
    """None, which no run is called, for what is no id at all: it comes from an address."""
    try:
        return None if run_id is None else UUID(run_id)
    except ValueError:
        return None


def _keys(run_ids: Collection[str]) -> list[UUID]:
    return [UUID(run_id) for run_id in run_ids]
