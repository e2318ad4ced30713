"""What a question is about: access is decided by the marks of its parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Field

from roofwatch.model.series_filter import Word


@dataclass(frozen=True)
class Subjects:
    """The projects, runs and regressions that a question is about."""

    projects: frozenset[str] = frozenset()
    run_ids: frozenset[UUID] = frozenset()
    regression_ids: frozenset[UUID] = frozenset()

    def __or__(self, more: "Subjects") -> Self:
        return type(self)(
            self.projects | more.projects,
            self.run_ids | more.run_ids,
            self.regression_ids | more.regression_ids,
        )


@dataclass(frozen=True)
class SubjectMark:
    """Marks a parameter that says what a question is about."""

    subjects: Callable[[Any], Subjects]
    """What a value of the parameter is about."""


ProjectName = Annotated[Word, SubjectMark(lambda name: Subjects(projects=frozenset([name])))]
ProjectNames = Annotated[
    tuple[Word, ...],
    Field(max_length=10_000),
    SubjectMark(lambda names: Subjects(projects=frozenset(names))),
]
RunId = Annotated[UUID, SubjectMark(lambda run_id: Subjects(run_ids=frozenset([run_id])))]
RunIds = Annotated[
    tuple[UUID, ...],
    Field(max_length=10_000),
    SubjectMark(lambda run_ids: Subjects(run_ids=frozenset(run_ids))),
]
RegressionId = Annotated[
    UUID,
    SubjectMark(lambda regression_id: Subjects(regression_ids=frozenset([regression_id]))),
]
RegressionIds = Annotated[
    tuple[UUID, ...],
    Field(max_length=10_000),
    SubjectMark(lambda regression_ids: Subjects(regression_ids=frozenset(regression_ids))),
]
