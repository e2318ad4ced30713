"""One case and implementation to check, of many that are checked side by side."""

from __future__ import annotations

from dataclasses import dataclass

from collector.protocol import CheckAccuracy
from collector.selection import Subject


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
