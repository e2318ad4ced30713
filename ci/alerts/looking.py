"""Look at the projects of a store, and have their alerts go on: what fires now, what is told of it.

What is told is written into the outbox in the transaction that changes the alert, and sent by
`roofwatch.ci.alerts.delivery`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.causes import Surroundings, regression_firings, silence_firings, why_not
from roofwatch.ci.alerts.levels import RunLevels, level_firings, runs_needed
from roofwatch.ci.alerts.rules import AlertRules, RegressionRule, SilenceRule
from roofwatch.ci.alerts.steps import next_steps
from roofwatch.ci.bisect.request import range_of, series_to_bisect
from roofwatch.ci.report.codeowners import CodeOwners
from roofwatch.ci.report.owners import Ownership
from roofwatch.db.alerts.standing import lock_alerts, write_steps
from roofwatch.db.alerts.values import AlertEvent, AlertStep, Firing
from roofwatch.db.auth.values import Triage
from roofwatch.db.bisections.store import request_bisection
from roofwatch.db.queries.measured_cases import list_cases_of_run
from roofwatch.db.queries.runner_history import (
    RunnerRun,
    list_case_errors,
    read_runner_history,
    read_source_files,
    read_tags,
)
from roofwatch.db.queries.runs import list_projects
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_regressions
from roofwatch.db.regressions.triage import read_triage
from roofwatch.db.values import Regression

_History = Mapping[str, Sequence[RunnerRun]]


@dataclass(frozen=True)
class AlertPlan:
    """What alerts are raised by, and written with."""

    rules: AlertRules
    codeowners: CodeOwners | None = None
    dashboard_url: str | None = None


@dataclass(frozen=True)
class Looked:
    """What the rules have to tell of a project."""

    firings: tuple[Firing, ...]
    endings: Mapping[str, str]
    """By cause, why nobody is called for it."""


def raise_alerts(
    engine: Engine, plan: AlertPlan, now: datetime, projects: Sequence[str] | None = None
) -> list[AlertStep]:
    """Have the alerts of projects go on; what changed.

    Args:
        engine: Of the store.
        plan: What is worth telling.
        now: The time.
        projects: Their names; None for all.
    """
    if projects is None:
        with Session(engine) as session:
            projects = list_projects(session)
    changed: list[AlertStep] = []
    for project in projects:
        with Session(engine) as session, session.begin():
            # locked before looking: what was seen earlier is not written over what was seen later
            known = lock_alerts(session, project)
            looked = look(session, project, plan, now)
            steps = next_steps(*(project, known, looked.firings), rules=plan.rules, endings=looked.endings, now=now)
            write_steps(session, steps, now)
            _ask_for_bisections(session, project, plan.rules, steps)
            changed += steps
    return changed


def look(session: Session, project: str, plan: AlertPlan, now: datetime) -> Looked:
    """What the rules have to tell of a project now. Nothing is written."""
    rules = [rule for rule in plan.rules.rules if rule.covers_project(project)]
    if not rules:
        return Looked((), {})
    history = read_runner_history(session, project)
    judged = _judged(session, project)
    surroundings = _surroundings(session, project, plan, history, now)
    levels = _Levels(session, history)
    firings: list[Firing] = []
    for rule in rules:
        if isinstance(rule, RegressionRule):
            firings += regression_firings(rule, judged, surroundings)
        elif isinstance(rule, SilenceRule):
            times = {runner: [run.started_at for run in runs] for runner, runs in history.items()}
            firings += silence_firings(rule, times, surroundings)
        else:
            firings += level_firings(rule, levels.newest(runs_needed(rule)), surroundings)
    endings = {str(triage.regression_id): why for one, triage in judged if (why := why_not(one, triage)) is not None}
    return Looked(tuple(firings), endings)


def _ask_for_bisections(session: Session, project: str, rules: AlertRules, steps: Sequence[AlertStep]) -> None:
    """Have the commit searched for that did what somebody is told of, where its rule wants that."""
    bisecting = {rule.name for rule in rules.rules if isinstance(rule, RegressionRule) and rule.bisects}
    asking = {
        step.alert.regression_id: step.alert.rule
        for step in steps
        if step.alert.rule in bisecting and any(telling.event is AlertEvent.FIRED for telling in step.tellings)
    }
    if not asking:
        return
    for regression, triage in _judged(session, project):
        rule, point = asking.get(triage.regression_id), series_to_bisect(regression)
        if rule is None or point is None:
            continue
        series = next(iter(read_series(session, project, keys={point.series})), None)
        asked = range_of(regression, series)
        if asked is not None:
            request_bisection(session, asked, requested_by=f"rule: {rule}", regression_id=triage.regression_id)


def _judged(session: Session, project: str) -> list[tuple[Regression, Triage]]:
    decided = read_triage(session, project)
    return [(one, decided[one.key]) for one in list_regressions(session, project) if one.key in decided]


def _surroundings(session: Session, project: str, plan: AlertPlan, history: _History, now: datetime) -> Surroundings:
    newest = [runs[-1].run_id for runs in history.values()]
    tags: dict[str, frozenset[str]] = {}
    files: dict[str, str] = {}
    for run_id in newest:
        tags |= read_tags(session, run_id)
        files |= read_source_files(session, run_id)
    ownership = Ownership(plan.rules.owners, plan.codeowners, files)
    return Surroundings(project, now, ownership, tags, plan.dashboard_url)


class _Levels:
    """The newest runs of each runner, each read once however many rules look at it."""

    def __init__(self, session: Session, history: _History) -> None:
        self._session, self._history = session, history
        self._read: dict[object, RunLevels] = {}

    def newest(self, count: int) -> dict[str, list[RunLevels]]:
        return {runner: [self._of(run) for run in runs[-count:]] for runner, runs in self._history.items()}

    def _of(self, run: RunnerRun) -> RunLevels:
        if run.run_id not in self._read:
            self._read[run.run_id] = RunLevels(
                list_cases_of_run(self._session, run.run_id), list_case_errors(self._session, run.run_id)
            )
        return self._read[run.run_id]
