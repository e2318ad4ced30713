"""How alerts go on from what fires now: begun, told, escalated, resolved. Pure.

One alert for each rule and cause. It is told once in an episode, and not again within its rule's cool-down, however
often it comes and goes; one that still fires when the cool-down is over is told then. If nobody acknowledges it in
time, others are told, once. That it is over is told to those that were told that it fires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from roofwatch.ci.alerts.rules import AlertRules, Rule
from roofwatch.db.alerts.values import Alert, AlertEvent, AlertState, AlertStep, Fact, Firing, Telling

_GONE = "the rule says so no longer"


def next_steps(
    project: str,
    known: Sequence[Alert],
    firings: Sequence[Firing],
    *,
    rules: AlertRules,
    endings: Mapping[str, str],
    now: datetime,
) -> list[AlertStep]:
    """The alerts that change, and what is told of that.

    Args:
        project: Its name.
        known: All of its alerts.
        firings: What all rules have to tell now.
        rules: Theirs.
        endings: By cause, why one that fires no longer has ended, where that is known.
        now: The time.
    """
    by_name = {rule.name: rule for rule in rules.rules if rule.covers_project(project)}
    alerts = {(alert.rule, alert.cause): alert for alert in known}
    firing_now = {(firing.rule, firing.cause) for firing in firings}
    steps = [_fire(project, alerts.get((one.rule, one.cause)), one, by_name[one.rule], now) for one in firings]
    for key, alert in alerts.items():
        if key not in firing_now and alert.state is not AlertState.RESOLVED:
            steps.append(_resolve(alert, by_name.get(alert.rule), endings.get(alert.cause, _GONE), now))
    return [step for step in steps if step is not None and (step.tellings or step.alert != alerts.get(_key(step)))]


def _key(step: AlertStep) -> tuple[str, str]:
    return step.alert.rule, step.alert.cause


def _fire(project: str, before: Alert | None, firing: Firing, rule: Rule, now: datetime) -> AlertStep | None:
    if before is None or before.state is AlertState.RESOLVED:
        if firing.is_past:
            return None
        alert = _begun(project, before, firing, now)
    else:
        alert = replace(before, severity=firing.severity, message=firing.message)
    if firing.is_acknowledged and alert.state is AlertState.FIRING:
        alert = _taken_up(alert, now)
    tellings: list[Telling] = []
    if not alert.is_told and not _cools_down(alert, rule, now):
        tellings += [Telling(channel, AlertEvent.FIRED) for channel in dict.fromkeys(rule.channels)]
        alert = replace(alert, told_at=now)
    if _is_overdue(alert, rule, now):
        tellings += [Telling(channel, AlertEvent.ESCALATED) for channel in dict.fromkeys(rule.escalate_to)]
        alert = replace(alert, escalated_at=now)
    return AlertStep(alert, tuple(tellings))


def _begun(project: str, before: Alert | None, firing: Firing, now: datetime) -> Alert:
    return Alert(
        project=project,
        rule=firing.rule,
        cause=firing.cause,
        severity=firing.severity,
        state=AlertState.FIRING,
        episode=1 if before is None else before.episode + 1,
        message=firing.message,
        fired_at=now,
        regression_id=firing.regression_id,
        told_at=None if before is None else before.told_at,
    )


def _taken_up(alert: Alert, now: datetime) -> Alert:
    return replace(
        alert,
        state=AlertState.ACKNOWLEDGED,
        acknowledged_at=now,
        acknowledged_by="triage",
        acknowledged_reason="its regression is acknowledged",
    )


def _cools_down(alert: Alert, rule: Rule, now: datetime) -> bool:
    return alert.told_at is not None and now < alert.told_at + rule.cool_down


def _is_overdue(alert: Alert, rule: Rule, now: datetime) -> bool:
    return (
        rule.escalate_after_hours is not None
        and alert.is_told
        and alert.state is AlertState.FIRING
        and alert.escalated_at is None
        and alert.told_at is not None
        and now >= alert.told_at + timedelta(hours=rule.escalate_after_hours)
    )


def _resolve(alert: Alert, rule: Rule | None, ending: str, now: datetime) -> AlertStep:
    message = replace(alert.message, facts=(Fact("Over", ending), *alert.message.facts))
    resolved = replace(alert, state=AlertState.RESOLVED, resolved_at=now, message=message)
    if rule is None or not rule.tells_resolved or not alert.is_told:
        return AlertStep(resolved)
    told = [*rule.channels, *(rule.escalate_to if alert.escalated_at is not None else ())]
    return AlertStep(resolved, tuple(Telling(channel, AlertEvent.RESOLVED) for channel in dict.fromkeys(told)))
