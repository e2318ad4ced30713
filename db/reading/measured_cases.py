"""What one run measured, a case and implementation at a time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.storing.measurements import bound_of
from db.tables.records import (
    AccuracyRow,
    CaseRow,
    CaseVersionRow,
    MeasurementRow,
    RunRow,
    SeriesRow,
    TensorErrorRow,
)
from db.values import MeasuredCase


def list_cases_of_run(session: Session, run_id: UUID) -> tuple[MeasuredCase, ...]:
    """Those of the run with this id, which must be there."""
    return list_measured_cases(session, session.get_one(RunRow, run_id))


def list_measured_cases(session: Session, run: RunRow) -> tuple[MeasuredCase, ...]:
    """In the order of the record."""
    measured = {row.series_id: row for row in _measured(session, run)}
    checks = _check_outcomes(session, run)
    errors = _worst_errors(session, run)
    cases = []
    for series_id in run.series_ids:
        row = measured[series_id]
        checked = row.case_row_id, row.implementation
        cases.append(
            MeasuredCase(
                case_id=row.name,
                kernel=row.kernel,
                family=row.family,
                shape=row.shape,
                dtype=row.dtype,
                direction=row.direction,
                flop_count=row.flop_count,
                memory_bytes=row.memory_bytes,
                implementation=row.implementation,
                outcome=Outcome(row.outcome),
                message=row.message,
                median_ns=row.median_ns,
                low_ns=row.low_ns,
                high_ns=row.high_ns,
                sample_count=row.sample_count or 0,
                bound=bound_of(is_memory_bound=row.is_memory_bound),
                utilisation=row.utilisation,
                rmse_ratio=errors.get(checked),
                accuracy_outcome=checks.get(checked),
            )
        )
    return tuple(cases)


def _measured(session: Session, run: RunRow) -> Any:
    table = MeasurementRow
    query = (
        select(
            table.series_id,
            CaseRow.id.label("case_row_id"),
            CaseRow.name,
            CaseRow.kernel,
            CaseRow.shape,
            CaseRow.dtype,
            CaseRow.direction,
            CaseVersionRow.family,
            CaseVersionRow.flop_count,
            CaseVersionRow.memory_bytes,
            SeriesRow.implementation,
            table.outcome,
            table.message,
            table.median_ns,
            table.q1_ns.label("low_ns"),
            table.q3_ns.label("high_ns"),
            table.sample_count,
            table.is_memory_bound,
            table.utilisation,
        )
        .join(SeriesRow, SeriesRow.id == table.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(table.measured_on == run.measured_on, table.run_number == run.number)
    )
    return session.execute(query)


def _check_outcomes(session: Session, run: RunRow) -> dict[tuple[int, str], Outcome]:
    query = select(AccuracyRow.case_id, AccuracyRow.implementation, AccuracyRow.outcome).where(
        AccuracyRow.measured_on == run.measured_on, AccuracyRow.run_number == run.number
    )
    return {(row.case_id, row.implementation): Outcome(row.outcome) for row in session.execute(query)}


def _worst_errors(session: Session, run: RunRow) -> dict[tuple[int, str], float]:
    table = TensorErrorRow
    query = (
        select(table.case_id, table.implementation, func.max(table.rmse_ratio).label("rmse_ratio"))
        .where(table.measured_on == run.measured_on, table.run_number == run.number)
        .group_by(table.case_id, table.implementation)
    )
    return {(row.case_id, row.implementation): row.rmse_ratio for row in session.execute(query)}
