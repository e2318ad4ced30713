"""The questions that the dashboard asks: of a database session, or of a server that gets the
parameters as JSON.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic_core import to_json
from sqlalchemy.orm import Session

from roofwatch.db import agenda, bisections
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
from roofwatch.db.schema.run_filter import Word
from roofwatch.model.history import Pair, SeriesKey
from roofwatch.model.triage import TriagedRegression

P = ParamSpec("P")
A = TypeVar("A")

SUBJECTS = frozenset(
    {"project", "trend", "run_id", "base_id", "head_id", "run_ids", "regression_id"}
)


@dataclass(frozen=True)
class Subjects:
    """The projects, runs and regressions that a question is about."""

    projects: frozenset[str]
    run_ids: frozenset[UUID]
    regression_ids: frozenset[UUID]

    @classmethod
    def of(cls, asked: BaseModel) -> Self:
        """Collect them from parameters by name.

        Raises:
            TypeError: there is no such parameter.
        """
        given = {
            name: getattr(asked, name) for name in SUBJECTS.intersection(type(asked).model_fields)
        }
        if not given:
            raise TypeError(f"{type(asked).__name__}: no parameter says what it is about")
        keys = [given["trend"], *given["trend"].keys] if "trend" in given else []
        run_ids = {given[name] for name in ("run_id", "base_id", "head_id") if name in given}
        return cls(
            projects=frozenset(
                {given[name] for name in ("project",) if name in given}
                | {key.project for key in keys}
            ),
            run_ids=frozenset(run_ids.union(given.get("run_ids", ()))),
            regression_ids=frozenset({given["regression_id"]} if "regression_id" in given else ()),
        )


@dataclass(frozen=True)
class Question(Generic[P, A]):
    """A query whose parameters and answer are validated by its annotations.

    The names of its parameters say what it is about, and the client must be allowed to see all of
    it: see `Subjects`.
    """

    ask: Callable[Concatenate[Session, P], A]

    @property
    def name(self) -> str:
        return self.ask.__name__.removeprefix("_")

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """A model of the parameters, without the session."""
        _, *parameters = inspect.signature(self.ask).parameters.values()
        fields: dict[str, Any] = {
            one.name: (
                self._hints[one.name],
                ... if one.default is inspect.Parameter.empty else one.default,
            )
            for one in parameters
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid", frozen=True), **fields)

    @cached_property
    def answer(self) -> TypeAdapter[A]:
        return TypeAdapter(self._hints["return"])

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.ask, include_extras=True)

    def to_json(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        _, *arguments = inspect.signature(self.ask).bind(None, *args, **kwargs).arguments.items()
        return to_json(dict(arguments))


def answer_to_json(answer: object) -> bytes:
    """Write an answer as JSON, with NaN and infinities as strings."""
    return to_json(answer, inf_nan_mode="strings")


def _list_series_keys(
    session: Session, project: Word, *, include_dirty: bool, include_branches: bool
) -> list[SeriesKey]:
    return series_keys.list_series_keys(
        session, project, include_dirty=include_dirty, include_branches=include_branches
    )


def _list_triaged(session: Session, project: Word) -> list[TriagedRegression]:
    return judgements.list_triaged(session, project)


def _list_decisions(session: Session, project: Word, regression_id: UUID) -> list[AuditEntry]:
    """List triage decisions; the rest of the audit trail is for administrators."""
    entries = list_entries(session, project, subject=str(regression_id))
    return [entry for entry in entries if entry.action in DECISION_ACTIONS]


def _list_calibrations(session: Session, project: Word) -> list[Pair]:
    return pairs.list_pairs(session, project, of_one_commit=True)


read_filter_options = Question(project.read_filter_options)
list_commits = Question(project.list_commits)
list_releases = Question(project.list_releases)
search = Question(project.search)
list_series_keys = Question(_list_series_keys)
read_case_history = Question(series.read_case_history)
read_trend = Question(trend.read_trend)
list_roof_cells = Question(roof.list_roof_cells)
read_runs_by_runner = Question(comparing.read_runs_by_runner)
read_runs_on = Question(comparing.read_runs_on)
read_case_of_both = Question(comparing.read_case_of_both)
read_runs = Question(comparing.read_runs)
read_case_of_runs = Question(comparing.read_case_of_runs)
read_kernel_of_run = Question(comparing.read_kernel_of_run)
load_record = Question(records.load_record)
read_imported_values = Question(runs.read_imported_values)
list_artefacts = Question(artefacts.list_artefacts)
list_step_shares = Question(evidence.list_step_shares)
list_functions = Question(evidence.list_functions)
list_triaged = Question(_list_triaged)
list_decisions = Question(_list_decisions)
read_newest_bisection = Question(bisections.read_newest_bisection)
list_runner_coverage = Question(runners.list_runner_coverage)
read_recent_runs = Question(runners.read_recent_runs)
list_jobs = Question(agenda.list_jobs)
list_calibrations = Question(_list_calibrations)
list_fleet_runs = Question(fleet.list_fleet_runs)
read_run_energies = Question(fleet.read_run_energies)
list_kernel_costs = Question(fleet.list_kernel_costs)
list_case_costs = Question(fleet.list_case_costs)

QUESTIONS: dict[str, Question[..., Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Question)
}
