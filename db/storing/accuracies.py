"""Checks of a record on their way into the store."""

from __future__ import annotations

from collections.abc import Mapping

from collector.record import RunRecord
from db.storing.run_key import RunKey
from db.storing.staging import Load, Target

_OF_CASE = {"run_number": "int4", "measured_on": "date", "case_id": "int4", "implementation": "text"}
_CHECKS = Target("accuracy", _OF_CASE | {"position": "int4", "executor": "text", "outcome": "text", "message": "text"})
_TENSORS = Target(
    "tensor_error",
    _OF_CASE
    | {
        "position": "int4",
        "tensor": "text",
        "max_abs_error": "float8",
        "rmse_ratio": "float8",
        "baseline_rmse_ratio": "float8",
        "passed": "bool",
    },
)


def load_checks(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Load:
    """The checks of a record, `case_ids` being those of its cases, by their names."""
    rows = (
        (*key, case_ids[one.case_id], one.implementation, position, one.executor, one.outcome, one.message)
        for position, one in enumerate(record.accuracies)
    )
    return Load(_CHECKS, rows)


def load_tensors(record: RunRecord, key: RunKey, case_ids: Mapping[str, int]) -> Load:
    """What the checks found of each tensor."""
    rows = (
        (
            *key,
            case_ids[one.case_id],
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
    return Load(_TENSORS, rows)
