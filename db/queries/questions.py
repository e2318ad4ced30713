"""The questions that the dashboard asks: of a database session, or of a server that gets the
parameters as JSON.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from sqlalchemy.orm import Session

from roofwatch.db import agenda, bisections, project_access
from roofwatch.db.access import AuditEntry, list_entries
from roofwatch.db.ingest import artefacts
from roofwatch.db.queries import (
    comparing,
    evidence,
    fleet,
    pairs,
    project,
    records,
    roof,
    runners,
    runs,
    series,
    series_keys,
    trend,
)
from roofwatch.db.regressions import judgements
from roofwatch.db.regressions.decisions import DECISION_ACTIONS
from roofwatch.db.schema.subjects import (
    ProjectName,
    RegressionId,
    RegressionIds,
    RunIds,
    SubjectMark,
    Subjects,
)
from roofwatch.model.history import Pair, SeriesKey
from roofwatch.model.triage import TriagedRegression

P = ParamSpec("P")
A = TypeVar("A")

_IDENTIFIERS = (UUID, tuple[UUID, ...])
"""Types of parameters that always name something whose access is checked."""


@dataclass(frozen=True)
class Question(Generic[P, A]):
    """A query whose parameters and answer are validated by its annotations.

    The marks of its parameters say what it is about, and the client must be allowed to see all of
    it: see `roofwatch.db.schema.subjects`.
    """

    ask: Callable[Concatenate[Session, P], A]

    @property
    def name(self) -> str:
        return self.ask.__name__.removeprefix("_")

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """A model of the parameters, without the session.

        Raises:
            TypeError: no parameter is marked, or one that names a run or regression is not.
        """
        _, *parameters = inspect.signature(self.ask).parameters.values()
        fields: dict[str, Any] = {}
        for parameter in parameters:
            default = parameter.default
            # pydantic's word for a field that must be given
            if default is inspect.Parameter.empty:
                default = ...
            fields[parameter.name] = (self._hints[parameter.name], default)
        config = ConfigDict(extra="forbid", frozen=True)
        model = create_model(self.name, __config__=config, **fields)
        _require_marks(model)
        return model

    @cached_property
    def answer(self) -> TypeAdapter[A]:
        return TypeAdapter(self._hints["return"])

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.ask, include_extras=True)

    def to_json(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        return to_json(self._arguments(*args, **kwargs))

    def subjects(self, *args: P.args, **kwargs: P.kwargs) -> Subjects:
        """What the question with these arguments is about."""
        return _subjects_of(self.parameters, self._arguments(*args, **kwargs))

    def _arguments(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, object]:
        _, *arguments = inspect.signature(self.ask).bind(None, *args, **kwargs).arguments.items()
        return dict(arguments)


def subjects_of(parameters: BaseModel) -> Subjects:
    """What a question with these parameters is about."""
    return _subjects_of(type(parameters), vars(parameters))


def _subjects_of(model: type[BaseModel], arguments: Mapping[str, object]) -> Subjects:
    subjects = Subjects()
    for name, field in model.model_fields.items():
        # an argument that is left out has its default, which names nothing
        if name not in arguments:
            continue
        for mark in _marks_of(field):
            subjects |= mark.subjects(arguments[name])
    return subjects


def _marks_of(field: FieldInfo) -> list[SubjectMark]:
    return [mark for mark in field.metadata if isinstance(mark, SubjectMark)]


def _require_marks(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        if field.annotation in _IDENTIFIERS and not _marks_of(field):
            raise TypeError(f"{model.__name__}: {name} is not marked with what it is about")
    if not any(map(_marks_of, model.model_fields.values())):
        raise TypeError(f"{model.__name__}: no parameter says what it is about")


QUESTIONS: dict[str, Question[..., Any]] = {}
"""All questions that a server answers, by name."""


def _answered(query: Callable[Concatenate[Session, P], A]) -> Question[P, A]:
    """Let clients ask a query."""
    question = Question(query)
    QUESTIONS[question.name] = question
    return question


def answer_to_json(answer: object) -> bytes:
    """Write an answer as JSON, with NaN and infinities as strings."""
    return to_json(answer, inf_nan_mode="strings")


def _list_series_keys(
    session: Session,
    project: ProjectName,
    *,
    include_dirty: bool,
    include_branches: bool,
) -> list[SeriesKey]:
    return series_keys.list_series_keys(
        session,
        project,
        include_dirty=include_dirty,
        include_branches=include_branches,
    )


def _list_triaged(session: Session, project: ProjectName) -> list[TriagedRegression]:
    return judgements.list_triaged(session, project)


def _list_decisions(
    session: Session,
    project: ProjectName,
    regression_id: RegressionId,
) -> list[AuditEntry]:
    """List triage decisions; the rest of the audit trail is for administrators."""
    entries = list_entries(session, project, subject=str(regression_id))
    return [entry for entry in entries if entry.action in DECISION_ACTIONS]


def _list_calibrations(session: Session, project: ProjectName) -> list[Pair]:
    return pairs.list_pairs(session, project, of_one_commit=True)


def _list_projects_of(
    session: Session,
    run_ids: RunIds,
    regression_ids: RegressionIds,
) -> list[str]:
    """List the projects that have some runs and bisections."""
    projects = set(runs.projects_of_runs(session, run_ids).values())
    return sorted(projects | runs.projects_of_bisections(session, regression_ids))


read_filter_options = _answered(project.read_filter_options)
list_commits = _answered(project.list_commits)
list_releases = _answered(project.list_releases)
search = _answered(project.search)
list_series_keys = _answered(_list_series_keys)
read_case_history = _answered(series.read_case_history)
list_counted_runs = _answered(series.list_counted_runs)
read_trend = _answered(trend.read_trend)
list_roof_cells = _answered(roof.list_roof_cells)
read_runs_by_runner = _answered(comparing.read_runs_by_runner)
read_runs_on = _answered(comparing.read_runs_on)
read_case_of_both = _answered(comparing.read_case_of_both)
read_runs = _answered(comparing.read_runs)
read_case_of_runs = _answered(comparing.read_case_of_runs)
read_kernel_of_run = _answered(comparing.read_kernel_of_run)
load_record = _answered(records.load_record)
read_imported_values = _answered(runs.read_imported_values)
list_artefacts = _answered(artefacts.list_artefacts)
list_step_shares = _answered(evidence.list_step_shares)
list_functions = _answered(evidence.list_functions)
list_triaged = _answered(_list_triaged)
list_decisions = _answered(_list_decisions)
read_newest_bisection = _answered(bisections.read_newest_bisection)
list_runner_coverage = _answered(runners.list_runner_coverage)
read_recent_runs = _answered(runners.read_recent_runs)
list_jobs = _answered(agenda.list_jobs)
list_calibrations = _answered(_list_calibrations)
list_fleet_runs = _answered(fleet.list_fleet_runs)
read_run_energies = _answered(fleet.read_run_energies)
list_kernel_costs = _answered(fleet.list_kernel_costs)
list_case_costs = _answered(fleet.list_case_costs)
list_readable = _answered(project_access.list_readable)
list_projects_of = _answered(_list_projects_of)
