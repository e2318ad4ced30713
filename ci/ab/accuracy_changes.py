"""Which results of a pull request got less accurate, or more, within their tolerance. Pure.

A check draws the same inputs every time, so code that did not change shows the same error, to the last digit, and a
move needs no test against noise. What is left to decide is whether it is worth telling: another order of the same
additions moves an error by a tenth or two, and a precision that was lost doubles it at least. Between the two lies the
factor that a history is judged by too (docs/analysis.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.error_floor import error_floor
from roofwatch.ci.reason import Reason
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy


@dataclass(frozen=True)
class ErrorMove:
    """How far one result lies from the reference, base against head; right on both sides."""

    case_id: str
    implementation: str
    tensor: str
    base: float
    """RMS of the error / RMS of the reference."""
    head: float
    reason: Reason
    """`less_accurate` or `more_accurate`."""

    @property
    def log_factor(self) -> float:
        """ln(head / base); infinite where either is exact."""
        if not self.base or not self.head:
            return math.inf if self.head else -math.inf
        return math.log(self.head / self.base)


def find_error_moves(base: RunRecord, head: RunRecord, *, relative_change: float) -> tuple[ErrorMove, ...]:
    """The results whose error moved, what got less accurate first, then by the factor.

    Compared is what was right on both sides, tensor by tensor, and was checked by the same means: on one runner class,
    or in Triton's interpreter on both.

    Args:
        base: What to compare against.
        head: What is new.
        relative_change: Growth of an error that is worth telling, as a fraction; a fall by the same factor is too.
    """
    known = {(one.case_id, one.implementation, one.executor): one for one in base.accuracies}
    is_one_device = base.environment.runner_class == head.environment.runner_class
    moves = [
        move
        for after in head.accuracies
        if (before := known.get((after.case_id, after.implementation, after.executor))) is not None
        and before.outcome is after.outcome is Outcome.OK
        and (is_one_device or after.executor == "interpreter")
        for move in _moves_of(before, after, math.log1p(relative_change))
    ]
    return tuple(sorted(moves, key=lambda move: (-move.log_factor, move.case_id, move.implementation, move.tensor)))


def _moves_of(base: Accuracy, head: Accuracy, limit: float) -> Sequence[ErrorMove]:
    errors = {tensor.tensor: tensor.rmse_ratio for tensor in base.tensors}
    floor = error_floor(head.case_id)
    found = []
    for tensor in head.tensors:
        before, after = errors.get(tensor.tensor), tensor.rmse_ratio
        if before is None or before == after or max(before, after) <= floor:
            continue
        reason = Reason.LESS_ACCURATE if after > before else Reason.MORE_ACCURATE
        move = ErrorMove(head.case_id, head.implementation, tensor.tensor, before, after, reason)
        if abs(move.log_factor) >= limit:
            found.append(move)
    return found
