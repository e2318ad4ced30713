"""Evaluate the rules on the projects of a store, and update their alerts: fired, escalated, resolved.

There is one alert for each rule and cause. Channels are notified once per episode, and at most once per cool-down.
Notifications go to the outbox in the transaction that changes the alert; `roofwatch.ci.alerts.delivery` sends them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.conditions import (
    MessageContext,
    level_conditions,
    regression_conditions,
    runs_needed,
    silence_conditions,
    why_not_alerting,
)
from roofwatch.ci.alerts.delivery import Sender
from roofwatch.ci.alerts.rules import AlertRules, CodeOwners, Ownership, RegressionRule, Rule, SilenceRule
from roofwatch.ci.bisect.pairs import range_of, series_to_bisect
from roofwatch.db.alerts.alerts import lock_alerts, write_steps
from roofwatch.db.alerts.values import Alert, AlertCondition, AlertEvent, AlertState, AlertStep, Fact, Notification
from roofwatch.db.bisections import request_bisection
from roofwatch.db.queries.runners import RunnerRun, read_runner_history, read_source_files, read_tags
from roofwatch.db.queries.runs import list_cases_of_run, list_projects
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_triaged


@dataclass(frozen=True)
class AlertSetup:
    """The rules of alerts, what messages need, and where they go."""

    rules: AlertRules
    codeowners: CodeOwners | None = None
    dashboard_url: str | None = None
    channels: Mapping[str, Sender | str] = field(default_factory=dict)
    """By name; for a channel that cannot be used, the reason."""
    faults: tuple[str, ...] = ()
    """What cannot be used, and why."""


@dataclass(frozen=True)
class Evaluation:
    """What the rules report of a project."""

    conditions: tuple[AlertCondition, ...]
    endings: Mapping[str, str]
    """By cause, why it raises no alert."""


def raise_alerts(
    engine: Engine, setup: AlertSetup, now: datetime, projects: Sequence[str] | None = None
) -> list[AlertStep]:
    """Update the alerts of some projects, or of all, and return what changed."""
    if projects is None:
        with Session(engine) as session:
            projects = list_projects(session)
    changed: list[AlertStep] = []
    for project in projects:
        with Session(engine) as session, session.begin():
            known = lock_alerts(session, project)  # before reading, so an older evaluation cannot overwrite a newer one
            found = evaluate(session, project, setup, now)
            steps = next_steps(project, known, found.conditions, rules=setup.rules, endings=found.endings, now=now)
            write_steps(session, steps, now)
            _request_bisections(session, project, setup.rules, steps)
            changed += steps
    return changed


def evaluate(session: Session, project: str, setup: AlertSetup, now: datetime) -> Evaluation:
    """Evaluate the rules on a project now; nothing is written."""
    rules = [rule for rule in setup.rules.rules if rule.covers_project(project)]
    if not rules:
        return Evaluation((), {})
    history = read_runner_history(session, project)
    regressions = list_triaged(session, project)
    context = _message_context(session, project, setup, history, now)

    cases_of_run = cache(partial(list_cases_of_run, session))
    conditions: list[AlertCondition] = []
    for rule in rules:
        if isinstance(rule, RegressionRule):
            conditions += regression_conditions(rule, regressions, context)
        elif isinstance(rule, SilenceRule):
            times = {runner: [run.started_at for run in runs] for runner, runs in history.items()}
            conditions += silence_conditions(rule, times, context)
        else:
            count = runs_needed(rule)
            newest = {runner: [cases_of_run(run.run_id) for run in runs[-count:]] for runner, runs in history.items()}
            conditions += level_conditions(rule, newest, context)
    reasons = {one.regression_id: why_not_alerting(one) for one in regressions}
    return Evaluation(tuple(conditions), {cause: why for cause, why in reasons.items() if why is not None})


def _request_bisections(session: Session, project: str, rules: AlertRules, steps: Sequence[AlertStep]) -> None:
    """Request a bisection of each regression that a rule with `bisects` reports for the first time."""
    bisecting = {rule.name for rule in rules.rules if isinstance(rule, RegressionRule) and rule.bisects}
    wanted = {
        step.alert.regression_id: step.alert.rule
        for step in steps
        if step.alert.rule in bisecting and any(one.event is AlertEvent.FIRED for one in step.notifications)
    }
    for one in list_triaged(session, project) if wanted else ():
        regression_id = one.triage.regression_id
        rule, point = wanted.get(regression_id), series_to_bisect(one.regression)
        if rule is None or point is None:
            continue
        commits = range_of(project, point, read_series(session, project, [point.series]))
        request_bisection(session, commits, requested_by=f"rule: {rule}", regression_id=regression_id)


def _message_context(
    session: Session, project: str, setup: AlertSetup, history: Mapping[str, Sequence[RunnerRun]], now: datetime
) -> MessageContext:
    tags: dict[str, frozenset[str]] = {}
    files: dict[str, str] = {}
    for runs in history.values():
        tags |= read_tags(session, runs[-1].run_id)
        files |= read_source_files(session, runs[-1].run_id)
    ownership = Ownership(setup.rules.owners, setup.codeowners, files)
    return MessageContext(project, now, ownership, tags, setup.dashboard_url)


# --- from conditions to alerts


def next_steps(
    project: str,
    known: Sequence[Alert],
    conditions: Sequence[AlertCondition],
    *,
    rules: AlertRules,
    endings: Mapping[str, str],
    now: datetime,
) -> list[AlertStep]:
    """Return the alerts of a project that change, with their notifications. Pure.

    Args:
        project: Its name.
        known: All of its alerts.
        conditions: What its rules report now.
        rules: All rules.
        endings: By cause, why an alert ended, if known.
        now: The time.
    """
    by_name = {rule.name: rule for rule in rules.rules if rule.covers_project(project)}
    alerts = {(alert.rule, alert.cause): alert for alert in known}
    holding = {(condition.rule, condition.cause): condition for condition in conditions}
    steps = []
    for key, condition in holding.items():
        before = alerts.get(key)
        if before is not None and before.state is not AlertState.RESOLVED:
            alert = replace(before, severity=condition.severity, message=condition.message)
        elif not condition.is_past:
            alert = _new_episode(project, before, condition, now)
        else:
            continue
        steps.append(_notify(alert, condition, by_name[condition.rule], now))
    for key, alert in alerts.items():
        if key not in holding and alert.state is not AlertState.RESOLVED:
            ending = endings.get(alert.cause, "the rule no longer reports it")
            steps.append(_resolve(alert, by_name.get(alert.rule), ending, now))
    return [one for one in steps if one.notifications or one.alert != alerts.get((one.alert.rule, one.alert.cause))]


def _new_episode(project: str, before: Alert | None, condition: AlertCondition, now: datetime) -> Alert:
    return Alert(
        project=project,
        rule=condition.rule,
        cause=condition.cause,
        severity=condition.severity,
        state=AlertState.FIRING,
        episode=1 if before is None else before.episode + 1,
        message=condition.message,
        fired_at=now,
        regression_id=condition.regression_id,
        notified_at=None if before is None else before.notified_at,
    )


def _notify(alert: Alert, condition: AlertCondition, rule: Rule, now: datetime) -> AlertStep:
    """Add the notifications that are due for a firing alert."""
    if condition.is_acknowledged and alert.state is AlertState.FIRING:
        alert = replace(
            alert,
            state=AlertState.ACKNOWLEDGED,
            acknowledged_at=now,
            acknowledged_by="triage",
            acknowledged_reason="its regression is acknowledged",
        )
    notifications: list[Notification] = []
    if not alert.is_notified and (alert.notified_at is None or now >= alert.notified_at + rule.cool_down):
        notifications += [Notification(channel, AlertEvent.FIRED) for channel in rule.channels]
        alert = replace(alert, notified_at=now)
    if _must_escalate(alert, rule, now):
        notifications += [Notification(channel, AlertEvent.ESCALATED) for channel in rule.escalate_to]
        alert = replace(alert, escalated_at=now)
    return AlertStep(alert, tuple(dict.fromkeys(notifications)))


def _must_escalate(alert: Alert, rule: Rule, now: datetime) -> bool:
    is_waiting = alert.state is AlertState.FIRING and alert.is_notified and alert.escalated_at is None
    if rule.escalate_after_hours is None or alert.notified_at is None or not is_waiting:
        return False
    return now >= alert.notified_at + timedelta(hours=rule.escalate_after_hours)


def _resolve(alert: Alert, rule: Rule | None, ending: str, now: datetime) -> AlertStep:
    message = replace(alert.message, facts=(Fact("Resolved", ending), *alert.message.facts))
    resolved = replace(alert, state=AlertState.RESOLVED, resolved_at=now, message=message)
    if rule is None or not rule.notify_resolved or not alert.is_notified:
        return AlertStep(resolved)
    channels = dict.fromkeys([*rule.channels, *(rule.escalate_to if alert.escalated_at is not None else ())])
    return AlertStep(resolved, tuple(Notification(channel, AlertEvent.RESOLVED) for channel in channels))
