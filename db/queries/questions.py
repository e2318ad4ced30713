"""The questions that the dashboard asks a database or a server."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.db import artefacts, bisections
from roofwatch.db.auth.access import list_entries
from roofwatch.db.auth.values import AuditEntry, TriagedRegression
from roofwatch.db.queries import comparing, filter_options, fleet, pairs, records, runners, runs, series, steps, trend
from roofwatch.db.queries.question import Question, ResourceScope, Word
from roofwatch.db.queries.results import FilterOptions
from roofwatch.db.queries.search import search as find
from roofwatch.db.queries.series_keys import list_series_keys as query_series_keys
from roofwatch.db.regressions import judgements
from roofwatch.db.regressions.triage import TRIAGE_ACTION
from roofwatch.db.values import Pair, SeriesKey


def _of_project(asked: Any) -> ResourceScope:
    return ResourceScope(projects=[] if asked.project is None else [asked.project])


def _of_trend(asked: Any) -> ResourceScope:
    return ResourceScope(projects={asked.trend.project, *(key.project for key in asked.trend.keys)})


def _of_run(asked: Any) -> ResourceScope:
    return ResourceScope(run_ids=[asked.run_id])


def _of_runs(asked: Any) -> ResourceScope:
    return ResourceScope(run_ids=asked.run_ids)


def _of_both_runs(asked: Any) -> ResourceScope:
    return ResourceScope(run_ids=[asked.base_id, asked.head_id])


def _of_regression(asked: Any) -> ResourceScope:
    return ResourceScope(regression_ids=[asked.regression_id])


def _read_filter_options(
    session: Session, project: Word | None = None, *, among: frozenset[str] | None = None
) -> FilterOptions:
    """Read the filter options of a project, else of the first; name only projects of `among`."""
    if among is None:
        return filter_options.read_filter_options(session, project)
    found = filter_options.read_filter_options(session, min(among, default="") if project is None else project)
    return replace(found, projects=tuple(name for name in found.projects if name in among))


def _list_series_keys(
    session: Session, project: Word, *, include_dirty: bool, include_branches: bool
) -> list[SeriesKey]:
    return query_series_keys(session, project, include_dirty=include_dirty, include_branches=include_branches)


def _list_triaged(session: Session, project: Word) -> list[TriagedRegression]:
    return judgements.list_triaged(session, project)


def _list_decisions(session: Session, project: Word, regression_id: UUID) -> list[AuditEntry]:
    """List triage decisions; the rest of the audit trail is for administrators."""
    found = list_entries(session, project, subject=str(regression_id))
    return [entry for entry in found if entry.action == TRIAGE_ACTION]


def _list_calibrations(session: Session, project: Word) -> list[Pair]:
    return pairs.list_pairs(session, project, of_one_commit=True)


read_filter_options = Question(_read_filter_options, _of_project, known_projects="among")
list_commits = Question(runs.list_commits, _of_project)
search = Question(find, _of_project)
list_series_keys = Question(_list_series_keys, _of_project)
read_case_history = Question(series.read_case_history, _of_project)
read_trend = Question(trend.read_trend, _of_trend)
list_window_ends = Question(trend.list_window_ends, _of_trend)
read_runs_of_commits = Question(comparing.read_runs_of_commits, _of_project)
read_case_of_both = Question(comparing.read_case_of_both, _of_project)
read_runs = Question(comparing.read_runs, _of_both_runs)
read_case_of_runs = Question(comparing.read_case_of_runs, _of_both_runs)
read_kernel_of_run = Question(comparing.read_kernel_of_run, _of_run)
load_record = Question(records.load_record, _of_run)
list_artefacts = Question(artefacts.list_artefacts, _of_run)
list_step_shares = Question(steps.list_step_shares, _of_project)
list_functions = Question(steps.list_functions, _of_project)
list_triaged = Question(_list_triaged, _of_project)
list_decisions = Question(_list_decisions, _of_project)
read_newest_bisection = Question(bisections.read_newest_bisection, _of_regression)
list_runner_coverage = Question(runners.list_runner_coverage, _of_project)
read_recent_runs = Question(runners.read_recent_runs, _of_project)
list_calibrations = Question(_list_calibrations, _of_project)
list_fleet_runs = Question(fleet.list_fleet_runs, _of_project)
read_run_energies = Question(fleet.read_run_energies, _of_runs)
list_kernel_costs = Question(fleet.list_kernel_costs, _of_runs)
list_case_costs = Question(fleet.list_case_costs, _of_runs)

QUESTIONS: dict[str, Question[..., Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Question)
}
