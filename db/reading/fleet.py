"""Questions about a fleet: which runs there were on which machines, and what they spent on what."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Float,
    Function,
    ScalarSelect,
    Select,
    Text,
    any_,
    cast,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session, aliased, defer

from collector.machine import Ceiling, Environment
from db.projects import is_quarantine, quarantine_name
from db.reading.fleet_values import CaseCost, FleetRun, KernelCost
from db.reading.narrowing import Narrowing, project_id
from db.tables.records import (
    CaseRow,
    CaseVersionRow,
    CeilingRow,
    CommitRow,
    EnvironmentRow,
    MeasurementRow,
    ProjectRow,
    RunRow,
    SeriesRow,
)

_LAUNCHES = (
    func.unnest(RunRow.series_ids, RunRow.launch_counts)
    .table_valued("series_id", "launch_count", name="launches")
    .render_derived()
    .lateral()
)
"""Of a run, how many launches of each series were timed."""


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
    degraded = MeasurementRow.series_id == func.any(RunRow.degraded_series_ids)
    by = (RunRow.run_id, CaseRow.kernel, CaseVersionRow.family)
    count = func.count().filter(is_wanted)
    amounts = (cast(amount.filter(is_wanted), Float) for amount in (_timed_ns(), _energy_j()))
    query = (
        _timed([*by, count, func.count().filter(is_wanted, degraded), *amounts], run_ids)
        .group_by(*by)
        .having(count > 0)
    )
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
    by = (CaseRow.name, SeriesRow.implementation)
    run_count = func.count(MeasurementRow.run_number.distinct())
    timed_ns, energy_j = (cast(amount, Float) for amount in (_timed_ns(), _energy_j()))
    query = (
        _timed([*by, run_count, func.max(MeasurementRow.median_ns), timed_ns, energy_j], run_ids)
        .where(MeasurementRow.median_ns.is_not(None))
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


def _timed(columns: Collection[Any], run_ids: Collection[str]) -> Select[Any]:
    return (
        select(*columns)
        .select_from(RunRow)
        .join(_LAUNCHES, true())
        .join(
            MeasurementRow,
            (MeasurementRow.measured_on == RunRow.measured_on)
            & (MeasurementRow.run_number == RunRow.number)
            & (MeasurementRow.series_id == _LAUNCHES.c.series_id),
        )
        .join(SeriesRow, SeriesRow.id == MeasurementRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(RunRow.run_id.in_(_keys(run_ids)))
    )


def _timed_ns() -> Function[Any]:
    return func.sum(MeasurementRow.median_ns * _LAUNCHES.c.launch_count)


def _energy_j() -> Function[Any]:
    return func.sum(MeasurementRow.joules_per_launch * _LAUNCHES.c.launch_count)


def _uuid(run_id: str | None) -> UUID | None:
    """None, which no run is called, for what is no id at all: it comes from an address."""
    try:
        return None if run_id is None else UUID(run_id)
    except ValueError:
        return None


def _keys(run_ids: Collection[str]) -> list[UUID]:
    return [UUID(run_id) for run_id in run_ids]
