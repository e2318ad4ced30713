"""Evaluate the rules on the projects of a store, update their alerts, and send the messages in the
outbox.

There is one alert for each cause, however many rules report it. A channel gets it once per episode
and cool-down. If a process dies after it claimed a message, it is unknown whether that arrived: it
is sent again with the same key.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

from codeowners import CodeOwners
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.conditions import (
    Ownership,
    ProjectState,
    regression_conditions,
    silence_conditions,
    why_not_alerting,
)
from roofwatch.ci.alerts.metric_conditions import metric_conditions
from roofwatch.ci.alerts.rules import AlertRules, MetricRule, RegressionRule, Rule, SilenceRule
from roofwatch.ci.bisect.pairs import range_of, series_to_bisect
from roofwatch.ci.messages import AlertError
from roofwatch.db.bisections import request_bisection
from roofwatch.db.projects import lock_project
from roofwatch.db.queries.project import find_commit, list_projects, read_filter_options
from roofwatch.db.queries.runners import read_runner_history
from roofwatch.db.queries.runs import list_cases_of_run, list_imported_values
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.alerts import claim_next, list_alerts, write_outcome, write_steps
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.alert import (
    Alert,
    AlertCondition,
    AlertEvent,
    AlertState,
    AlertStep,
    Delivery,
    DeliveryState,
    Fact,
)
from roofwatch.model.stored_results import FilterOptions
from roofwatch.model.triage import TriageState

REPLAY_DAYS = 30
"""How far back `replay` goes."""
_NEVER = datetime.min.replace(tzinfo=UTC)
MAX_ATTEMPTS = 12
"""About twenty hours: long enough for a channel that is down overnight."""
_FIRST_WAIT = timedelta(minutes=1)
"""Doubled after each attempt."""
_LONGEST_WAIT = timedelta(hours=6)
_log = logging.getLogger("roofwatch.alerts")


class SendError(AlertError):
    """A message could not be sent; if `is_uncertain`, it may have arrived."""

    def __init__(
        self, message: str, *, is_uncertain: bool, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        self.retry_after = retry_after or timedelta()
        """Shortest time to wait."""


Send = Callable[[Delivery], None]
"""A channel that is ready for use: sends a message, or raises `SendError`."""


@dataclass(frozen=True)
class AlertSetup:
    """The rules of alerts, what messages need, and where they go."""

    rules: AlertRules
    codeowners: CodeOwners | None = None
    dashboard_url: str | None = None
    channels: Mapping[str, Send | str] = field(default_factory=dict)
    """By name; for a channel that cannot be used, the reason."""
    faults: tuple[str, ...] = ()
    """What cannot be used, and why."""


def conditions_at(rule: Rule, state: ProjectState, now: datetime) -> list[AlertCondition]:
    """Return what a rule reports at a time; later results and regressions are ignored."""
    if isinstance(rule, SilenceRule):
        return silence_conditions(rule, state, now)
    if isinstance(rule, MetricRule) and rule.against != "change":
        return metric_conditions(rule, state, now)
    return regression_conditions(rule, state, now)


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
            lock_project(
                session, project
            )  # before reading, so an older evaluation cannot overwrite a newer one
            state = read_state(session, project, setup)
            conditions = [
                one for rule in setup.rules.of(project) for one in conditions_at(rule, state, now)
            ]
            endings = {one.regression_id: why_not_alerting(one) for one in state.regressions}
            known = list_alerts(session, project)
            steps = next_steps(
                project, known, conditions, rules=setup.rules, endings=endings, now=now
            )
            write_steps(session, project, steps)
            _request_bisections(session, state, setup.rules, steps)
            changed += steps
    return changed


def read_state(session: Session, project: str, setup: AlertSetup) -> ProjectState:
    """Read what the rules need to know of a project; results are read on demand, while the session
    is open.
    """
    rules = setup.rules.of(project)
    runs = read_runner_history(session, project) if rules else {}
    options = read_filter_options(session, project) if rules else FilterOptions((), {}, ())
    names = {
        name
        for rule in rules
        if isinstance(rule, MetricRule) and (name := rule.against_commit) is not None
    }
    return ProjectState(
        project=project,
        regressions=list_triaged(session, project) if rules else (),
        runs=runs,
        results=cache(partial(list_cases_of_run, session)),
        imported=cache(partial(list_imported_values, session)),
        cases={one.case_id: one for one in options.cases if one.family},
        commits={name: find_commit(session, project, name) for name in names},
        ownership=Ownership(setup.rules.owners, setup.codeowners, options.source_files),
        dashboard_url=setup.dashboard_url,
    )


def replay(rule: Rule, state: ProjectState, now: datetime) -> list[tuple[datetime, str]]:
    """Return what would have fired in the last 30 days, evaluated once a day without cool-down:
    times and titles.
    """
    told = []
    before: set[str] | None = None
    for at in (now - timedelta(days=days) for days in range(REPLAY_DAYS, -1, -1)):
        found = {
            one.cause: one for one in conditions_at(rule, _as_of(state, at), at) if not one.is_past
        }
        told += [
            (at, one.message.title)
            for cause, one in found.items()
            if before is not None and cause not in before
        ]
        before = set(found)
    return told


def _as_of(state: ProjectState, at: datetime) -> ProjectState:
    """Return the regressions as they were: without later ones, later recoveries and what closed
    them.
    """
    regressions = []
    for one in state.regressions:
        regression, triage = one.regression, one.triage
        if regression.recovered_at is not None and regression.recovered_at.committed_at > at:
            regression = replace(regression, recovered_at=None)
            triage = (
                replace(triage, state=TriageState.NEW)
                if triage.state is TriageState.FIXED
                else triage
            )
        if regression.commit.committed_at <= at:
            regressions.append(replace(one, regression=regression, triage=triage))
    return replace(state, regressions=regressions)


def _request_bisections(
    session: Session, state: ProjectState, rules: AlertRules, steps: Sequence[AlertStep]
) -> None:
    """Request a bisection of each regression that a rule with `bisects` reports for the
    first time.
    """
    bisecting = {
        rule.name for rule in rules.rules if isinstance(rule, RegressionRule) and rule.bisects
    }
    regressions = {one.triage.regression_id: one.regression for one in state.regressions}
    for step in steps:
        named = bisecting.intersection(step.alert.rules)
        is_new = named and any(one.event is AlertEvent.FIRED for one in step.deliveries)
        regression_id = step.alert.regression_id
        if (
            not is_new
            or regression_id is None
            or (point := series_to_bisect(regressions[regression_id])) is None
        ):
            continue
        commits = range_of(
            state.project, point, read_series(session, state.project, [point.series])
        )
        request_bisection(
            session, commits, requested_by=f"rule: {min(named)}", regression_id=regression_id
        )


# --- from conditions to alerts


def next_steps(
    project: str,
    known: Sequence[Alert],
    conditions: Sequence[AlertCondition],
    *,
    rules: AlertRules,
    endings: Mapping[str, str | None],
    now: datetime,
) -> list[AlertStep]:
    """Return which of the `known` alerts of a project change, and new ones, with their messages.
    Pure.

    `endings` says by the cause of each regression why it raises no alert; None if it does.
    """
    by_name = {rule.name: rule for rule in rules.of(project)}
    alerts = {alert.cause: alert for alert in known}
    holding: dict[str, list[AlertCondition]] = defaultdict(list)
    for condition in sorted(conditions, key=lambda one: -one.severity.rank):
        holding[condition.cause].append(condition)
    steps = []
    for cause, found in holding.items():
        before, worst = alerts.get(cause), found[0]
        if before is not None and before.state is not AlertState.RESOLVED:
            alert, is_worse = before, worst.severity.rank > before.severity.rank
        elif not all(one.is_past for one in found):
            alert, is_worse = _new_episode(project, before, worst, now), False
        else:
            continue
        names = tuple(dict.fromkeys(one.rule for one in found))
        alert = replace(alert, rules=names, severity=worst.severity, message=worst.message)
        steps.append(
            _notify(alert, [(one, by_name[one.rule]) for one in found], now, is_worse=is_worse)
        )
    for cause, alert in alerts.items():
        if cause not in holding and alert.state is not AlertState.RESOLVED:
            ending = _ending(alert, endings)
            resolved = replace(
                alert,
                state=AlertState.RESOLVED,
                resolved_at=now,
                message=replace(
                    alert.message, facts=(Fact("Resolved", ending), *alert.message.facts)
                ),
            )
            told = [channel for channel in _to_resolve(alert, by_name) if channel in rules.channels]
            steps.append(_step(resolved, dict.fromkeys(told, AlertEvent.RESOLVED), now))
    return [one for one in steps if one.deliveries or one.alert != alerts.get(one.alert.cause)]


def _new_episode(project: str, before: Alert | None, found: AlertCondition, now: datetime) -> Alert:
    alert = Alert(
        project,
        found.cause,
        (found.rule,),
        found.severity,
        AlertState.FIRING,
        1,
        found.message,
        now,
    )
    episode, told_at = (1, {}) if before is None else (before.episode + 1, before.told_at)
    return replace(alert, regression_id=found.regression_id, episode=episode, told_at=told_at)


def _notify(
    alert: Alert, found: Sequence[tuple[AlertCondition, Rule]], now: datetime, *, is_worse: bool
) -> AlertStep:
    if alert.state is AlertState.FIRING and any(
        condition.is_acknowledged for condition, _ in found
    ):
        alert = alert.acknowledged(now, "triage", "its regression is acknowledged")
    is_open, told_at, escalated_to = (
        alert.state is AlertState.FIRING,
        dict(alert.told_at),
        set(alert.escalated_to),
    )
    due: dict[str, AlertEvent] = {}
    for condition, rule in found:
        remind_after = timedelta(days=rule.remind_after_days)
        told = [
            at
            for channel in rule.channels
            if (at := told_at.get(channel, _NEVER)) >= alert.fired_at
        ]
        for channel in rule.channels:
            last = told_at.get(channel, _NEVER)
            if last < alert.fired_at:
                if not condition.is_past and now >= last + timedelta(hours=rule.cool_down_hours):
                    due[channel] = AlertEvent.FIRED
            elif is_open and last < now and (is_worse or timedelta() < remind_after <= now - last):
                due[channel] = AlertEvent.REMINDED
        patience = rule.escalate_after_hours
        if (
            is_open
            and patience is not None
            and told
            and now >= min(told) + timedelta(hours=patience)
        ):
            due |= {
                channel: AlertEvent.ESCALATED
                for channel in rule.escalate_to
                if channel not in escalated_to
            }
            escalated_to |= set(rule.escalate_to)
        told_at |= dict.fromkeys(due, now)
    return _step(
        replace(alert, told_at=told_at, escalated_to=tuple(sorted(escalated_to))), due, now
    )


def _step(alert: Alert, due: Mapping[str, AlertEvent], now: datetime) -> AlertStep:
    return AlertStep(
        alert, tuple(Delivery(alert, event, channel, now, now) for channel, event in due.items())
    )


def _ending(alert: Alert, endings: Mapping[str, str | None]) -> str:
    if alert.cause in endings:
        return endings[alert.cause] or "no rule covers it any more"
    return (
        "the newer results no longer show it"
        if alert.regression_id
        else "back within limits, or no rule covers it"
    )


def _to_resolve(alert: Alert, rules: Mapping[str, Rule]) -> list[str]:
    """Return the channels that were told in this episode, without those of rules without
    `notify_resolved` alone.
    """
    silent, others = set[str](), set[str]()
    for rule in (rules[name] for name in alert.rules if name in rules):
        (others if rule.notify_resolved else silent).update(rule.channels, rule.escalate_to)
    return [
        one
        for one, at in alert.told_at.items()
        if at >= alert.fired_at and one not in silent - others
    ]


# --- sending


def deliver_waiting(
    engine: Engine, channels: Mapping[str, Send | str], now: Callable[[], datetime]
) -> list[Delivery]:
    """Send every message that is due; return those that were tried, with the result."""
    done: list[Delivery] = []
    while (claimed := claim_next(engine, now())) is not None:
        done.append(
            _attempt(
                claimed, channels.get(claimed.channel, "the rules no longer have this channel"), now
            )
        )
        write_outcome(engine, done[-1])
    return done


def _attempt(delivery: Delivery, channel: Send | str, now: Callable[[], datetime]) -> Delivery:
    try:
        _send(delivery, channel)
    except SendError as error:
        wait: timedelta = min(_FIRST_WAIT * 2.0 ** (delivery.attempt_count - 1), _LONGEST_WAIT)
        failed = replace(
            delivery,
            state=DeliveryState.WAITING
            if delivery.attempt_count < MAX_ATTEMPTS
            else DeliveryState.FAILED,
            next_attempt_at=now() + max(wait, error.retry_after),
            is_uncertain=delivery.is_uncertain or error.is_uncertain,
            error=str(error),
        )
        is_over = failed.state is DeliveryState.FAILED
        then = (
            "given up"
            if is_over
            else f"next attempt at {failed.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        _log.warning(
            "alert message %s through %r: %s; %s", delivery.key, delivery.channel, error, then
        )
        return failed
    return replace(delivery, state=DeliveryState.SENT, sent_at=now(), error=None)


def _send(delivery: Delivery, channel: Send | str) -> None:
    if delivery.attempt_count > MAX_ATTEMPTS:
        raise SendError("every process that tried to send it died", is_uncertain=True)
    if isinstance(channel, str):
        raise SendError(channel, is_uncertain=False)
    try:
        channel(delivery)
    except SendError:
        raise
    except Exception as error:  # noqa: BLE001  one broken message must not block all others
        # its text may have an address
        raise SendError(f"unexpected {type(error).__name__}", is_uncertain=True) from None
