"""Errors of results as bare columns, as `time_columns` has times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sqlalchemy import func, literal, select
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.branch import read_branch
from roofwatch.db.queries.columns import ErrorColumns
from roofwatch.db.schema.measurements import AccuracyRow, TensorErrorRow
from roofwatch.db.schema.runs import CaseRow, EnvironmentRow, RunRow
from roofwatch.db.values import SeriesKey


def read_error_columns(session: Session, project: str, row_ids: Sequence[int]) -> Iterator[ErrorColumns]:
    """The errors of some cases, a tensor at a time; of checks that passed."""
    branch = read_branch(session, project, include_pairs=True)
    places = np.array([run.place for run in branch.runs], dtype=np.int64)
    by = (CaseRow.name, TensorErrorRow.implementation, EnvironmentRow.runner_class, TensorErrorRow.tensor)
    query = (
        select(
            *by,
            func.string_agg(func.int4send(AccuracyRow.run_number), literal(b"", BYTEA), type_=BYTEA).label("numbers"),
            func.string_agg(func.float8send(TensorErrorRow.rmse_ratio), literal(b"", BYTEA), type_=BYTEA).label(
                "ratios"
            ),
        )
        .select_from(AccuracyRow)
        .join(branch.wanted, branch.wanted.c.run_number == AccuracyRow.run_number)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .join(RunRow, RunRow.number == AccuracyRow.run_number)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .join(
            TensorErrorRow,
            (TensorErrorRow.measured_on == AccuracyRow.measured_on)
            & (TensorErrorRow.run_number == AccuracyRow.run_number)
            & (TensorErrorRow.case_id == AccuracyRow.case_id)
            & (TensorErrorRow.implementation == AccuracyRow.implementation),
        )
        .where(AccuracyRow.case_id.in_(row_ids), AccuracyRow.outcome == Outcome.OK.value)
        .group_by(*by)
    )
    for name, implementation, runner_class, tensor, numbers_sent, ratios_sent in session.execute(query):
        numbers, order = branch.in_order(np.frombuffer(numbers_sent, dtype=">i4"))
        yield ErrorColumns(
            SeriesKey(project, name, implementation, "rmse_ratio", runner_class=runner_class, tensor=tensor),
            places[numbers],
            np.frombuffer(ratios_sent, dtype=">f8").astype(np.float64)[order],
        )
