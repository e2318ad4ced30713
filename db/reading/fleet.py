"""Questions about a fleet: which runs there were on which machines, and what they spent on what."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Float, ScalarSelect, Select, cast, func, or_, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session, aliased, defer

from collector.machine import Ceiling, Environment
from db.reading.fleet_values import CaseCost, FleetRun, KernelCost
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
    session: Session, project: str, *, limit: int, or_run: str | None = None, or_commit: str | None = None
) -> list[FleetRun]:
    """The runs that started last, newest first, of any kind.

    Args:
        session: Of the store.
        project: Its name.
        limit: So many.
        or_run: Id of a run that is wanted however old it is; one that the project does not have is left out.
        or_commit: Sha of a commit whose runs are wanted likewise.
    """
    wanted = or_(_newest_runs(project, limit), RunRow.run_id == _uuid(or_run), CommitRow.sha == or_commit)
    query = (
        select(RunRow, CommitRow, EnvironmentRow, _ceilings_of_run())
        .options(defer(RunRow.telemetry), defer(RunRow.unread_fields))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(ProjectRow.name == project, wanted)
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
        )
        for run, commit, environment, ceilings in session.execute(query)
    ]


def read_run_energies(session: Session, run_ids: Collection[str]) -> dict[str, float]:
    """Energy in J that the device took from the first reading of a run to its last, by run; without the runs of which
    it was not read.
    """
    readings = func.json_array_elements_text(RunRow.telemetry["energy_j"]).table_valued("value")
    energy_j = select(func.max(cast(readings.c.value, Float))).scalar_subquery()
    query = select(RunRow.run_id, energy_j).where(RunRow.run_id.in_(_keys(run_ids)), RunRow.telemetry.is_not(None))
    return {str(run_id): joules for run_id, joules in session.execute(query) if joules is not None}


def list_kernel_costs(session: Session, run_ids: Collection[str]) -> list[KernelCost]:
    """What runs spent on each kernel."""
    degraded = MeasurementRow.series_id == func.any(RunRow.degraded_series_ids)
    by = (RunRow.run_id, CaseRow.kernel, CaseVersionRow.family)
    query = _timed(
        [*by, func.count(), func.count().filter(degraded), _timed_ns(), _energy_j()],
        run_ids,
    ).group_by(*by)
    return [
        KernelCost(str(run_id), kernel, family, count, degraded_count, timed_ns or 0.0, energy_j)
        for run_id, kernel, family, count, degraded_count, timed_ns, energy_j in session.execute(query)
    ]


def list_case_costs(session: Session, run_ids: Collection[str], *, limit: int) -> list[CaseCost]:
    """The cases and implementations that runs spent most on, the dearest first."""
    by = (CaseRow.name, SeriesRow.implementation)
    run_count = func.count(MeasurementRow.run_number.distinct())
    query = (
        _timed([*by, run_count, func.max(MeasurementRow.median_ns), _timed_ns(), _energy_j()], run_ids)
        .where(MeasurementRow.median_ns.is_not(None))
        .group_by(*by)
        .order_by(_timed_ns().desc(), *by)
        .limit(limit)
    )
    return [CaseCost(*row) for row in session.execute(query)]


def _newest_runs(project: str, limit: int) -> ColumnElement[bool]:
    run, commit, own = aliased(RunRow), aliased(CommitRow), aliased(ProjectRow)
    return RunRow.run_id.in_(
        select(run.run_id)
        .join(commit, commit.id == run.commit_id)
        .join(own, own.id == commit.project_id)
        .where(own.name == project)
        .order_by(run.started_at.desc(), run.run_id)
        .limit(limit)
    )


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


def _timed_ns() -> ColumnElement[float]:
    return cast(func.sum(MeasurementRow.median_ns * _LAUNCHES.c.launch_count), Float)


def _energy_j() -> ColumnElement[float | None]:
    return cast(func.sum(MeasurementRow.joules_per_launch * _LAUNCHES.c.launch_count), Float)


def _uuid(run_id: str | None) -> UUID | None:
    """None, which no run is called, for what is no id at all: it comes from an address."""
    try:
        return None if run_id is None else UUID(run_id)
    except ValueError:
        return None


def _keys(run_ids: Collection[str]) -> list[UUID]:
    return [UUID(run_id) for run_id in run_ids]
