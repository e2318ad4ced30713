"""One thing to compile, and what stands for its facts where it could not be."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.selection import Subject
from roofwatch.collector.workers.protocol import CompileStatic, Failure


@dataclass(frozen=True)
class Compilation:
    """A case and an implementation, and what to compile them for."""

    subject: Subject
    targets: tuple[str, ...]

    @property
    def group(self) -> str:
        """Cases of a kernel have code in common, which is then compiled once."""
        return self.subject.case_id.partition("/")[0]

    @property
    def job(self) -> CompileStatic:
        return CompileStatic(
            case_id=self.subject.case_id, implementation=self.subject.implementation, targets=self.targets
        )


def failed_facts(subject: Subject, target: str, failure: Failure) -> StaticFacts:
    """What stands for the facts of a case that could not be compiled at all."""
    return StaticFacts(
        case_id=subject.case_id,
        implementation=subject.implementation,
        function=subject.implementation,
        target=target,
        outcome=failure.outcome,
        message=failure.message,
    )
