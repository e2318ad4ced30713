"""Runs, and everything that one run found."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, Integer, Select, and_, any_, func, literal, or_, select
from sqlalchemy.orm import Session, load_only

from roofwatch.db.projects import is_quarantine, quarantine_name, record_name
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
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.db.schema.run_filter import compiled_by
from roofwatch.db.schema.runs import (
    CaseRow,
    CaseVersionRow,
    CommitRow,
    EnvironmentRow,
    ProjectRow,
    RunRow,
)
from roofwatch.db.schema.subjects import RunId
from roofwatch.db.schema.table import to_value
from roofwatch.model.history import BOUNDS, OUTCOMES
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.provenance import LoadedFile
from roofwatch.model.record import PairMember, Side
from roofwatch.model.stored_results import (
    ImportedPair,
    MeasuredCase,
    RunDetail,
    RunSummary,
    StaticRow,
)

NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.run_id)
_SUMMARY_COLUMNS = (
    RunRow.run_id,
    RunRow.started_at,
    RunRow.finished_at,
    RunRow.harness_version,
    RunRow.is_dirty,
    RunRow.pair_id,
    RunRow.outcome_counts,
    RunRow.is_unreachable,
)
_PLACE = (RunRow.number, RunRow.series_ids)
"""What the results of a run are found by."""
_DESCRIPTION_COLUMNS = (
    CaseRow.name,
    CaseRow.kernel,
    CaseVersionRow.family,
    CaseRow.shape,
    CaseRow.dtype,
    CaseRow.direction,
    CaseVersionRow.flop_count,
    CaseVersionRow.memory_bytes,
    SeriesRow.implementation,
    SeriesRow.timer,
    SeriesRow.cache,
)
"""What the runs of a series have in common: the first fields of `MeasuredCase`."""
_MEASURED_COLUMNS = (
    MeasurementRow.message,
    MeasurementRow.median_ns,
    MeasurementRow.q1_ns,
    MeasurementRow.q3_ns,
    func.coalesce(MeasurementRow.sample_count, 0),
    MeasurementRow.utilisation,
    MeasurementRow.host_ns,
    MeasurementRow.peak_allocated_bytes,
    MeasurementRow.ratio_to_reference,
)
"""The fields of `MeasuredCase` after the outcome and the bound, without its check."""
_STATIC_COLUMNS = (
    CaseRow.name,
    *(getattr(StaticFactRow, field.name) for field in fields(StaticRow)[1:]),
)
"""In the order of the fields of `StaticRow`."""


def list_runs(
    session: Session,
    project: str,
    limit: int | None = 50,
    *,
    after: tuple[datetime, UUID] | None = None,
    is_quarantined: bool = False,
) -> list[RunSummary]:
    """List runs of any kind, newest first, of a project or its quarantine.

    A page begins after the start time and id of the last run of the previous page.
    """
    name = project
    if is_quarantined:
        name = quarantine_name(project)
    query = select_runs().where(ProjectRow.name == name).order_by(*NEWEST_FIRST).limit(limit)
    if after is not None:
        started_at, run_id = after
        # runs of one time are in the order of their IDs, so no page repeats or skips one
        is_same_time = RunRow.started_at == started_at
        is_later = or_(
            RunRow.started_at < started_at,
            and_(is_same_time, RunRow.run_id > run_id),
        )
        query = query.where(is_later)
    return [summarise(*row) for row in session.execute(query)]


def read_run_detail(session: Session, run_id: UUID) -> RunDetail | None:
    """Read everything that one run found; None if there is no such run."""
    return next(iter(read_run_details(session, RunRow.run_id == run_id)), None)


def read_run_details(session: Session, condition: ColumnElement[bool]) -> list[RunDetail]:
    """Read everything that some runs found, newest first. Few of them should meet the condition."""
    rows = session.execute(
        select_runs(*_PLACE, RunRow.document, RunRow.pair_side, RunRow.environment_id)
        .where(condition)
        .order_by(*NEWEST_FIRST)
    ).all()
    runs = [row[0] for row in rows]
    cases = _cases(session, runs)
    static_rows = _static_rows(session, runs)
    is_used = EnvironmentRow.id.in_([run.environment_id for run in runs])
    used = session.scalars(select(EnvironmentRow).where(is_used))
    environments = {row.id: row.to_environment() for row in used}
    return [
        RunDetail(
            summary=summarise(*row),
            ceilings=_measured_ceilings(run),
            cases=cases[run.number],
            static_rows=tuple(static_rows[run.number]),
            environment=environments[run.environment_id],
            pairing=_pairing(run),
            source_digests=run.document.get("source_digests", {}),
            foreign_code=_foreign_code(run),
        )
        for run, row in zip(runs, rows, strict=True)
    ]


def _foreign_code(run: RunRow) -> LoadedFile | None:
    """The first file that was not of the commit: what was measured is then other code."""
    for document in run.document.get("provenance", ()):
        file = LoadedFile.model_validate(document)
        if file.origin.is_foreign:
            return file
    return None


def _pairing(run: RunRow) -> PairMember | None:
    if run.pair_id is None or run.pair_side is None:
        return None
    return PairMember(pair_id=run.pair_id, side=Side(run.pair_side))


def list_cases_of_run(session: Session, run_id: UUID) -> tuple[MeasuredCase, ...]:
    """List the measurements of a stored run in the order of its record."""
    run = session.scalars(
        select(RunRow).where(RunRow.run_id == run_id).options(load_only(*_PLACE))
    ).one()
    return _cases(session, [run])[run.number]


def list_imported_values(session: Session, run_id: UUID) -> list[tuple[str, str, str, float]]:
    """List the values that a run imported: case id, implementation, metric and value."""
    query = (
        select(CaseRow.name, ImportedRow.implementation, ImportedRow.key, ImportedRow.value)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .join(RunRow, RunRow.number == ImportedRow.run_number)
        .where(RunRow.run_id == run_id, ImportedRow.value.is_not(None))
    )
    return [
        (case_id, implementation, key, value or 0.0)
        for case_id, implementation, key, value in session.execute(query)
    ]


_ImportedKey = tuple[str, str, str]
"""Case id, implementation and key of the tool."""


class _ImportedSide(NamedTuple):
    outcome: Outcome | None
    value: float | None


def read_imported_values(session: Session, base_id: RunId, head_id: RunId) -> list[ImportedPair]:
    """Read the values of other tools that two runs have, by series."""
    row = ImportedRow
    query = (
        select(
            RunRow.run_id,
            CaseRow.name,
            row.implementation,
            row.key,
            row.outcome,
            row.value,
        )
        .join(CaseRow, CaseRow.id == row.case_id)
        .join(RunRow, RunRow.number == row.run_number)
        .where(RunRow.run_id.in_((base_id, head_id)))
        .order_by(CaseRow.name, row.implementation, row.key)
    )
    sides: dict[_ImportedKey, dict[str, _ImportedSide]] = {}
    for run_id, case_id, implementation, key, outcome, value in session.execute(query):
        series_sides = sides.setdefault((case_id, implementation, key), {})
        series_sides[str(run_id)] = _ImportedSide(OUTCOMES[outcome], value)
    # a run may lack a series of the other
    missing = _ImportedSide(None, None)
    pairs: list[ImportedPair] = []
    for (case_id, implementation, key), series_sides in sides.items():
        base = series_sides.get(str(base_id), missing)
        head = series_sides.get(str(head_id), missing)
        pair = ImportedPair(
            case_id=case_id,
            implementation=implementation,
            metric=key,
            base_outcome=base.outcome,
            base=base.value,
            head_outcome=head.outcome,
            head=head.value,
        )
        pairs.append(pair)
    return pairs


def projects_of_runs(session: Session, run_ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the project of each stored run; a quarantined run has the project that its record
    names.
    """
    query = (
        select(RunRow.run_id, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(RunRow.run_id.in_(run_ids))
    )
    return {run_id: record_name(name) for run_id, name in session.execute(query)}


def projects_of_bisections(session: Session, regression_ids: Collection[UUID]) -> set[str]:
    """Return the projects that have bisections of some regressions."""
    query = (
        select(ProjectRow.name)
        .join(BisectionRow, BisectionRow.project_id == ProjectRow.id)
        .where(BisectionRow.regression_id.in_(regression_ids))
    )
    return set(session.scalars(query))


def _cases(session: Session, runs: Sequence[RunRow]) -> dict[int, tuple[MeasuredCase, ...]]:
    """Read the measurements of runs by run number. All runs of a series share its description."""
    numbers = [run.number for run in runs]
    descriptions = _descriptions(session, runs)
    profiled = _profiled(session, numbers)
    checks = _checks(session, numbers)
    row = MeasurementRow
    query = select(
        row.run_number,
        row.series_id,
        row.outcome,
        row.is_memory_bound,
        *_MEASURED_COLUMNS,
    )
    cases = {}
    # Core rows: a comparison has thousands
    rows = session.connection().execute(query.where(row.run_number.in_(numbers))).all()
    for run_number, series_id, outcome, is_memory_bound, *measured in rows:
        case_row_id, implementation, description = descriptions[series_id]
        key = run_number, case_row_id, implementation
        checked = checks.get(key, (None, None))
        columns = [
            *description,
            OUTCOMES[outcome],
            BOUNDS[is_memory_bound],
            *measured,
            *checked,
            key in profiled,
        ]
        cases[run_number, series_id] = MeasuredCase(*columns)
    by_run: dict[int, tuple[MeasuredCase, ...]] = {}
    for run in runs:
        by_run[run.number] = tuple(cases[run.number, series_id] for series_id in run.series_ids)
    return by_run


def _descriptions(
    session: Session, runs: Sequence[RunRow]
) -> dict[int, tuple[int, str, list[Any]]]:
    """Read the case row id, implementation and `_DESCRIPTION_COLUMNS` of all series of some runs,
    by series id.
    """
    # runs of one project share most of their series
    series_ids: set[int] = set()
    for run in runs:
        series_ids.update(run.series_ids)
    query = (
        select(SeriesRow.id, CaseRow.id, SeriesRow.implementation, *_DESCRIPTION_COLUMNS)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(SeriesRow.id == any_(literal(list(series_ids), ARRAY(Integer))))
    )
    rows = session.connection().execute(query).all()
    return {
        series_id: (case_id, implementation, values)
        for series_id, case_id, implementation, *values in rows
    }


def _checks(
    session: Session, numbers: Collection[int]
) -> dict[tuple[int, int, str], Sequence[Any]]:
    """Read the outcome and the largest error of each check, by run number, case row id and
    implementation.
    """
    check, error = AccuracyRow, TensorErrorRow
    # a failed check has no tensors; errors with other values of the inputs are series of their own
    query = (
        select(
            check.run_number,
            check.case_id,
            check.implementation,
            check.outcome,
            func.max(error.rmse_ratio),
        )
        .outerjoin(error, error.is_of(check) & error.regime.is_(None))
        .where(check.run_number.in_(numbers))
        .group_by(check.run_number, check.case_id, check.implementation)
    )
    return {
        (run_number, case_id, implementation): (OUTCOMES[outcome], rmse_ratio)
        for run_number, case_id, implementation, outcome, rmse_ratio in session.execute(query)
    }


def _profiled(session: Session, numbers: Collection[int]) -> set[tuple[int, int, str]]:
    """List what was profiled, by run number, case row id and implementation."""
    row = CaseDocumentRow
    query = select(row.run_number, row.case_id, row.implementation)
    return set(session.execute(query.where(row.run_number.in_(numbers), row.kind == "profiles")))


def _measured_ceilings(run: RunRow) -> tuple[Ceiling, ...]:
    """Return measured ceilings; those of the datasheet do not belong in a roofline of
    measurements.
    """
    ceilings = map(Ceiling.model_validate, run.document.get("ceilings", ()))
    return tuple(ceiling for ceiling in ceilings if ceiling.source == "measured")


def _static_rows(session: Session, runs: Sequence[RunRow]) -> defaultdict[int, list[StaticRow]]:
    """Read compiler facts by run number; a run that compiled nothing has those of its commit."""
    query = (
        select(RunRow.number, *_STATIC_COLUMNS)
        .select_from(RunRow)
        .join(CompilationRow, CompilationRow.run_number == compiled_by())
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(RunRow.number.in_([run.number for run in runs]))
        .order_by(CompilationRow.position)
    )
    rows: defaultdict[int, list[StaticRow]] = defaultdict(list)
    for stored in session.execute(query):
        run_number, case_id, implementation, function, target, outcome, *facts = stored
        static_row = StaticRow(
            case_id,
            implementation,
            function,
            target,
            Outcome(outcome),
            *facts,
        )
        rows[run_number].append(static_row)
    return rows


def select_runs(*more: Any) -> Select[RunRow, CommitRow, str, str, str]:
    """Select runs for `summarise`, and some more of their columns."""
    return (
        select(
            RunRow,
            CommitRow,
            ProjectRow.name,
            EnvironmentRow.runner_class,
            EnvironmentRow.device_name,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .options(load_only(*_SUMMARY_COLUMNS, *more))
    )


def summarise(
    run: RunRow,
    commit: CommitRow,
    name: str,
    runner_class: str,
    device_name: str,
) -> RunSummary:
    """Summarise a row of `select_runs`."""
    return to_value(
        RunSummary,
        run,
        run_id=str(run.run_id),
        project=record_name(name),
        is_quarantined=is_quarantine(name),
        commit=commit.to_ref(),
        runner_class=runner_class,
        device_name=device_name,
        is_pair_side=run.pair_id is not None,
    )
