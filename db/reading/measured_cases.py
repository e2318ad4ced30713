"""What one run measured, a case and implementation at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ScalarSelect, Select, func, select
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.reading.documents import Document, document_of
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
    query = select(RunRow.series_ids, *documents_of_cases()).where(RunRow.run_id == run_id)
    series_ids, *documents = session.execute(query).one()
    return measured_cases(series_ids, documents)


def documents_of_cases() -> list[ScalarSelect[Any]]:
    """What `measured_cases` makes its values of, as columns of a statement about runs."""
    queries = {"measured": _measured(), "checks": _check_outcomes(), "errors": _worst_errors()}
    return [document_of(query, RunRow, name=name) for name, query in queries.items()]


def measured_cases(series_ids: Sequence[int], documents: Sequence[Document | None]) -> tuple[MeasuredCase, ...]:
    """In the order of the record.

    Args:
        series_ids: Of the run.
        documents: The columns of `documents_of_cases`.
    """
    measured, checks, errors = (document or [] for document in documents)
    rows = {row["series_id"]: row for row in measured}
    outcomes = {_subject(row): Outcome(row["outcome"]) for row in checks}
    # what is no number comes as text
    worst = {_subject(row): float(row["rmse_ratio"]) for row in errors if row["rmse_ratio"] is not None}
    return tuple(
        _measured_case(rows[series_id], outcomes.get(_subject(rows[series_id])), worst.get(_subject(rows[series_id])))
        for series_id in series_ids
    )


def _subject(row: Mapping[str, Any]) -> tuple[int, str]:
    return row["case_row_id"], row["implementation"]


def _measured_case(row: Mapping[str, Any], accuracy_outcome: Outcome | None, rmse_ratio: float | None) -> MeasuredCase:
    return MeasuredCase(
        case_id=row["case_id"],
        kernel=row["kernel"],
        family=row["family"],
        shape=row["shape"],
        dtype=row["dtype"],
        direction=row["direction"],
        flop_count=row["flop_count"],
        memory_bytes=row["memory_bytes"],
        implementation=row["implementation"],
        outcome=Outcome(MeasurementRow.outcome.type.words[row["outcome"]]),
        message=row["message"],
        median_ns=row["median_ns"],
        low_ns=row["low_ns"],
        high_ns=row["high_ns"],
        sample_count=row["sample_count"] or 0,
        bound=bound_of(is_memory_bound=row["is_memory_bound"]),
        utilisation=row["utilisation"],
        rmse_ratio=rmse_ratio,
        accuracy_outcome=accuracy_outcome,
    )


def _measured() -> Select[Any]:
    table = MeasurementRow
    return (
        select(
            table.series_id,
            CaseRow.id.label("case_row_id"),
            CaseRow.name.label("case_id"),
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
        .where(table.measured_on == RunRow.measured_on, table.run_number == RunRow.number)
    )


def _check_outcomes() -> Select[int, str, str]:
    return select(AccuracyRow.case_id.label("case_row_id"), AccuracyRow.implementation, AccuracyRow.outcome).where(
        AccuracyRow.measured_on == RunRow.measured_on, AccuracyRow.run_number == RunRow.number
    )


def _worst_errors() -> Select[int, str, float]:
    table = TensorErrorRow
    return (
        select(table.case_id.label("case_row_id"), table.implementation, func.max(table.rmse_ratio).label("rmse_ratio"))
        .where(table.measured_on == RunRow.measured_on, table.run_number == RunRow.number)
        .group_by(table.case_id, table.implementation)
    )
