"""Select cases and implementations of a suite."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.workers.protocol import (
    ImplementationInfo,
    KernelInfo,
    Reply,
    SuiteInfo,
    check_limit,
    explained,
)


@dataclass(frozen=True, order=True)
class Subject:
    """A case and an implementation of it: what is checked, compiled and timed."""

    case_id: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.case_id} {self.implementation}"

    @property
    def named(self) -> dict[str, str]:
        """As fields of what came back."""
        return {"case_id": self.case_id, "implementation": self.implementation}


@dataclass(frozen=True)
class Selected:
    """One subject, and what its suite says of it."""

    case: CaseRecord
    implementation: ImplementationInfo
    rank_count: int

    @property
    def subject(self) -> Subject:
        return Subject(self.case.case_id, self.implementation.name)


@dataclass(frozen=True)
class Selection:
    """What is meant.

    Args:
        kernels: Shell patterns of kernel names.
        implementations: Shell patterns of implementation names.
        tags: Cases that have all of them; None takes, of a kernel whose cases are tagged, those tagged `usual_tag`,
            and of any other kernel all.
        usual_tag: `quick` on a GPU and `small` on a CPU if None.
        cases: Shell patterns of case ids, whatever the tags; None takes those of the tags.
    """

    kernels: tuple[str, ...]
    implementations: tuple[str, ...]
    tags: tuple[str, ...] | None
    usual_tag: str | None
    cases: tuple[str, ...] | None = None

    def of(self, info: SuiteInfo) -> tuple[Selected, ...]:
        """In the order of the suite.

        Raises:
            SuiteError: nothing matches.
        """
        found = tuple(
            Selected(case, implementation, kernel.rank_count(case))
            for kernel in info.kernels
            if matches(kernel.name, self.kernels)
            for case in self._cases(kernel, info.device)
            for implementation in kernel.implementations
            if case.direction in implementation.directions and matches(implementation.name, self.implementations)
        )
        if not found:
            raise SuiteError("".join(self._why_nothing(info)))
        return found

    def _cases(self, kernel: KernelInfo, device: str) -> tuple[CaseRecord, ...]:
        if self.cases is not None:
            return tuple(case for case in kernel.cases if matches(case.case_id, self.cases))
        if self.tags is not None:
            wanted = set(self.tags)
            return tuple(case for case in kernel.cases if wanted <= set(case.tags))
        usual = self.usual_tag or ("small" if device == "cpu" else "quick")
        return tuple(case for case in kernel.cases if usual in case.tags or not case.tags) or kernel.cases

    def _why_nothing(self, info: SuiteInfo) -> Iterator[str]:
        yield f"nothing to measure: no kernel matches {' '.join(self.kernels)} with an implementation that "
        yield f"matches {' '.join(self.implementations)}"
        if self.cases:
            yield f" and a case that matches {' '.join(self.cases)}"
        elif self.tags:
            yield f" and a case tagged {' '.join(self.tags)}"
        yield f"; the suite has {', '.join(kernel.name for kernel in info.kernels)}"
        if self.tags:
            known = sorted({tag for kernel in info.kernels for case in kernel.cases for tag in case.tags})
            yield f", its cases the tags {' '.join(known)}"


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name matches one of some shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


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
