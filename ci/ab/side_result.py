"""What one record of a pair says of one case and implementation, side by side with the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy

_NOT_FAILURES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
Key = tuple[str, str]
"""Case id, implementation."""


@dataclass(frozen=True)
class SideResult:
    """What one record says of one case and implementation."""

    measured: Outcome | None
    """None where the record has no measurement of it."""
    accuracy: Outcome | None
    message: str | None
    median_ns: float | None
    utilisation: float | None
    bound: str | None
    rmse_ratio: float | None
    """Of the worst tensor."""
    worst_tensor: str | None

    @property
    def failure(self) -> Outcome | None:
        """How it failed, a wrong result first; None if it works, or is not supported."""
        return next(
            (how for how in (self.accuracy, self.measured) if how is not None and how not in _NOT_FAILURES), None
        )


class Side:
    """One record, by case and implementation."""

    def __init__(self, record: RunRecord) -> None:
        self.measurements = {(m.case_id, m.implementation): m for m in record.measurements}
        self.accuracies = {(a.case_id, a.implementation): a for a in record.accuracies}
        self.keys = self.measurements.keys() | self.accuracies.keys()

    def result(self, key: Key) -> SideResult | None:
        """None where the record does not know it."""
        if key not in self.keys:
            return None
        return _side_result(self.measurements.get(key), self.accuracies.get(key))


def _side_result(measurement: Measurement | None, accuracy: Accuracy | None) -> SideResult:
    worst = None if accuracy is None else accuracy.worst
    messages = [part.message for part in (accuracy, measurement) if part is not None and part.message]
    return SideResult(
        measured=None if measurement is None else measurement.outcome,
        accuracy=None if accuracy is None else accuracy.outcome,
        message=messages[0] if messages else None,
        median_ns=None if measurement is None else measurement.median_ns,
        utilisation=None if measurement is None else measurement.utilisation,
        bound=None if measurement is None else measurement.bound,
        rmse_ratio=None if worst is None else worst.rmse_ratio,
        worst_tensor=None if worst is None else worst.tensor,
    )
