"""Checks of a record on their way into the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from sqlalchemy import Connection, text

from collector.record import RunRecord
from db.storing.staging import Stage, stage_rows

_ACCURACIES = Stage(
    "staged_accuracy",
    {
        "position": "int4",
        "case_position": "int4",
        "implementation": "text",
        "executor": "text",
        "outcome": "text",
        "message": "text",
    },
)
_TENSORS = Stage(
    "staged_tensor_error",
    {
        "case_position": "int4",
        "implementation": "text",
        "position": "int4",
        "tensor": "text",
        "max_abs_error": "float8",
        "rmse_ratio": "float8",
        "baseline_rmse_ratio": "float8",
        "passed": "bool",
    },
)
_OF_CASES = "JOIN unnest(CAST(:case_ids AS int[])) WITH ORDINALITY of_case (id, number) ON number = case_position + 1"
_STORE = text(
    f"""
    INSERT INTO accuracy
        (run_number, case_id, implementation, measured_on, position, executor, outcome, message)
    SELECT :run_number, of_case.id, implementation, :measured_on, position, executor, outcome, message
    FROM staged_accuracy {_OF_CASES}
    """
)
_STORE_TENSORS = text(
    f"""
    INSERT INTO tensor_error (run_number, case_id, implementation, position, measured_on, tensor, max_abs_error,
        rmse_ratio, baseline_rmse_ratio, passed)
    SELECT :run_number, of_case.id, implementation, position, :measured_on, tensor, max_abs_error,
        rmse_ratio, baseline_rmse_ratio, passed
    FROM staged_tensor_error {_OF_CASES}
    """
)


def store_accuracies(
    connection: Connection, record: RunRecord, run_number: int, measured_on: date, case_ids: Sequence[int]
) -> None:
    """Store the checks of a record, `case_ids` being those of its cases, in their order."""
    if not record.accuracies:
        return
    of_case = {case.case_id: position for position, case in enumerate(record.cases)}
    parameters = {"run_number": run_number, "measured_on": measured_on, "case_ids": list(case_ids)}
    checks = (
        (position, of_case[one.case_id], one.implementation, one.executor, one.outcome.value, one.message)
        for position, one in enumerate(record.accuracies)
    )
    stage_rows(connection, _ACCURACIES, checks)
    connection.execute(_STORE, parameters)
    tensors = (
        (
            of_case[one.case_id],
            one.implementation,
            position,
            tensor.tensor,
            tensor.max_abs_error,
            tensor.rmse_ratio,
            tensor.baseline_rmse_ratio,
            tensor.passed,
        )
        for one in record.accuracies
        for position, tensor in enumerate(one.tensors)
    )
    stage_rows(connection, _TENSORS, tensors)
    connection.execute(_STORE_TENSORS, parameters)
