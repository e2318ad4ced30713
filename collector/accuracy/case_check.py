"""One case and implementation to check, of many that are checked side by side."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.selection import Subject
from roofwatch.collector.workers.protocol import CheckAccuracy, Reply
from roofwatch.collector.workers.timeout import check_limit, explained


@dataclass(frozen=True)
class CaseCheck:
    """A task for any worker of a suite."""

    subject: Subject
    rank_count: int = 1
    """Processes that do it together."""

    @property
    def job(self) -> CheckAccuracy:
        return CheckAccuracy(case_id=self.subject.case_id, implementation=self.subject.implementation)

    @property
    def group(self) -> str:
        """A case's implementations have its inputs, its reference and its baseline in common."""
        return self.subject.case_id


def accuracy_of(subject: Subject, reply: Reply, *, timeout_s: float, runs_here: bool) -> Accuracy:
    """What came of a check, or why nothing did.

    Args:
        subject: What was checked.
        reply: The worker's.
        timeout_s: That it had.
        runs_here: On the run's device, not in Triton's interpreter.
    """
    if reply.accuracy is not None:
        return reply.accuracy
    failure = explained(reply.failure, check_limit(timeout_s))
    assert failure is not None
    return Accuracy(
        **subject.named,
        executor="device" if runs_here else "interpreter",
        outcome=failure.outcome,
        message=failure.message,
    )
