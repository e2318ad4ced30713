"""The questions that the dashboard asks a database or a server."""

from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.db import artefacts, bisections
from roofwatch.db.auth.access import list_entries
from roofwatch.db.auth.values import AuditEntry, TriagedRegression
from roofwatch.db.queries import (
    comparing,
    evidence,
    fleet,
    pairs,
    project,
    records,
    runners,
    series,
    series_keys,
    trend,
)
from roofwatch.db.queries.question import Question, Word
from roofwatch.db.regressions import judgements
from roofwatch.db.regressions.triage import TRIAGE_ACTION
from roofwatch.db.values import Pair, SeriesKey


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
    found = list_entries(session, project, subject=str(regression_id))
    return [entry for entry in found if entry.action == TRIAGE_ACTION]


def _list_calibrations(session: Session, project: Word) -> list[Pair]:
    return pairs.list_pairs(session, project, of_one_commit=True)


read_filter_options = Question(project.read_filter_options)
list_commits = Question(project.list_commits)
search = Question(project.search)
list_series_keys = Question(_list_series_keys)
read_case_history = Question(series.read_case_history)
read_trend = Question(trend.read_trend)
list_window_ends = Question(trend.list_window_ends)
read_runs_of_commits = Question(comparing.read_runs_of_commits)
read_case_of_both = Question(comparing.read_case_of_both)
read_runs = Question(comparing.read_runs)
read_case_of_runs = Question(comparing.read_case_of_runs)
read_kernel_of_run = Question(comparing.read_kernel_of_run)
load_record = Question(records.load_record)
list_artefacts = Question(artefacts.list_artefacts)
list_step_shares = Question(evidence.list_step_shares)
list_functions = Question(evidence.list_functions)
list_triaged = Question(_list_triaged)
list_decisions = Question(_list_decisions)
read_newest_bisection = Question(bisections.read_newest_bisection)
list_runner_coverage = Question(runners.list_runner_coverage)
read_recent_runs = Question(runners.read_recent_runs)
list_calibrations = Question(_list_calibrations)
list_fleet_runs = Question(fleet.list_fleet_runs)
read_run_energies = Question(fleet.read_run_energies)
list_kernel_costs = Question(fleet.list_kernel_costs)
list_case_costs = Question(fleet.list_case_costs)

QUESTIONS: dict[str, Question[..., Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Question)
}
