"""The life of an alert: from the conditions of one evaluation to new states and messages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from roofwatch.ci.alerts.events import one_message_per_event, within_limit
from roofwatch.ci.alerts.kinds import Rule
from roofwatch.ci.alerts.rules_file import AlertRules
from roofwatch.model.alert import (
    Alert,
    AlertCondition,
    AlertEvent,
    AlertState,
    AlertStep,
    Delivery,
    Fact,
)
from roofwatch.model.grouping import group_by

# older than every message, so that it needs no special case
_NEVER = datetime.min.replace(tzinfo=UTC)


def next_steps(
    project: str,
    stored: Sequence[Alert],
    conditions: Sequence[AlertCondition],
    *,
    rules: AlertRules,
    endings: Mapping[str, str | None],
    now: datetime,
    sent_counts: Mapping[str, int] | None = None,
) -> list[AlertStep]:
    """Return which of the `stored` alerts of a project change, and new ones, with their messages.
    Pure.

    Alerts of one event are one message per channel. Beyond the limit of an hour, the rest is one
    summary.

    `endings` says by cause why a regression raises no alert (None if it does), and what a metric is
    now. `sent_counts` has the messages of the last hour by channel.
    """
    by_name = {rule.name: rule for rule in rules.of(project)}
    alerts = {alert.cause: alert for alert in stored}
    # the worst first: its severity and message become the alert's
    worst_first = sorted(conditions, key=lambda condition: -condition.severity.rank)
    by_cause = group_by(worst_first, lambda condition: condition.cause)
    steps: list[AlertStep] = []
    for cause, same_cause in by_cause.items():
        alert = alerts.get(cause)
        worst = same_cause[0]
        is_worse = False
        if alert is not None and alert.state is not AlertState.RESOLVED:
            is_worse = worst.severity.rank > alert.severity.rank
        elif all(condition.is_past for condition in same_cause):
            continue  # too old for a new alert
        else:
            alert = _new_episode(
                project=project,
                previous=alert,
                condition=worst,
                now=now,
            )
        reported = [(condition, by_name[condition.rule]) for condition in same_cause]
        steps.append(
            _notify(
                _updated(alert, same_cause),
                reported,
                now,
                is_worse=is_worse,
            )
        )
    for cause, alert in alerts.items():
        if cause not in by_cause and alert.state is not AlertState.RESOLVED:
            channels = _channels_to_resolve(alert, by_name)
            # a channel may have left the rules since
            due = {name: AlertEvent.RESOLVED for name in channels if name in rules.channels}
            resolved = _resolved(alert, _ending(alert, endings), now)
            steps.append(_step(resolved, due, now))

    def is_news(step: AlertStep) -> bool:
        stored = alerts.get(step.alert.cause)
        return bool(step.deliveries) or step.alert != stored

    grouped_steps = one_message_per_event(list(filter(is_news, steps)))
    return within_limit(
        steps=grouped_steps,
        limit=rules.messages_per_hour,
        sent_counts=sent_counts or {},
        now=now,
    )


def _new_episode(
    project: str,
    previous: Alert | None,
    condition: AlertCondition,
    now: datetime,
) -> Alert:
    """Begin an episode of an alert, the first or the next."""
    episode = 1
    told_at: Mapping[str, datetime] = {}
    if previous is not None:
        episode = previous.episode + 1
        # the cool-down goes on
        told_at = previous.told_at
    return Alert(
        project=project,
        cause=condition.cause,
        rules=(condition.rule,),
        severity=condition.severity,
        state=AlertState.FIRING,
        episode=episode,
        message=condition.message,
        fired_at=now,
        regression_id=condition.regression_id,
        told_at=told_at,
    )


def _resolved(
    alert: Alert,
    ending: str,
    now: datetime,
) -> Alert:
    """End an alert, with the reason and the newest value."""
    facts = (Fact("Resolved", ending), *alert.message.facts)
    return replace(
        alert,
        state=AlertState.RESOLVED,
        resolved_at=now,
        message=replace(alert.message, facts=facts),
    )


def _updated(alert: Alert, conditions: Sequence[AlertCondition]) -> Alert:
    """Take over what the conditions of its cause say; the worst comes first."""
    worst = conditions[0]
    rule_names = dict.fromkeys(condition.rule for condition in conditions)
    return replace(
        alert,
        rules=tuple(rule_names),
        severity=worst.severity,
        message=worst.message,
        event=worst.event,
    )


def _notify(
    alert: Alert,
    reported: Sequence[tuple[AlertCondition, Rule]],
    now: datetime,
    *,
    is_worse: bool,
) -> AlertStep:
    is_acknowledged = any(condition.is_acknowledged for condition, _ in reported)
    if alert.state is AlertState.FIRING and is_acknowledged:
        alert = alert.acknowledged(now, "triage", "its regression is acknowledged")
    told_at = dict(alert.told_at)
    escalated_to = set(alert.escalated_to)
    due: dict[str, AlertEvent] = {}
    for condition, rule in reported:
        # before this rule's own messages are added
        is_escalated = _is_escalated(
            alert,
            rule,
            told_at,
            now,
        )
        for channel in rule.channels:
            last_at = told_at.get(channel, _NEVER)
            is_told = last_at >= alert.fired_at
            is_cooled_down = now >= last_at + timedelta(hours=rule.cool_down_hours)
            if not is_told and is_cooled_down and not condition.is_past:
                due[channel] = AlertEvent.FIRED
            # what was told at this very time needs no reminder
            is_silent = is_told and last_at < now
            if is_silent and _needs_reminder(
                alert,
                rule,
                now - last_at,
                is_worse=is_worse,
            ):
                due[channel] = AlertEvent.REMINDED
        if is_escalated:
            further = [channel for channel in rule.escalate_to if channel not in escalated_to]
            due |= dict.fromkeys(further, AlertEvent.ESCALATED)
            escalated_to.update(further)
        told_at |= dict.fromkeys(due, now)
    alert = replace(
        alert,
        told_at=told_at,
        escalated_to=tuple(sorted(escalated_to)),
    )
    return _step(alert, due, now)


def _needs_reminder(
    alert: Alert,
    rule: Rule,
    waited: timedelta,
    *,
    is_worse: bool,
) -> bool:
    """Whether to repeat the message: it is worse now, or nobody acknowledged it in time."""
    if alert.state is not AlertState.FIRING:
        return False
    remind_after = timedelta(days=rule.remind_after_days)  # 0: never
    return is_worse or timedelta() < remind_after <= waited


def _is_escalated(
    alert: Alert,
    rule: Rule,
    told_at: Mapping[str, datetime],
    now: datetime,
) -> bool:
    """Whether nobody acknowledged the alert in time after a channel of the rule had it."""
    if alert.state is not AlertState.FIRING or rule.escalate_after_hours is None:
        return False
    times = [told_at.get(channel, _NEVER) for channel in rule.channels]
    times_of_episode = [time for time in times if time >= alert.fired_at]
    if not times_of_episode:
        return False
    return now >= min(times_of_episode) + timedelta(hours=rule.escalate_after_hours)


def _step(
    alert: Alert,
    due: Mapping[str, AlertEvent],
    now: datetime,
) -> AlertStep:
    """Combine an alert with the messages that are due."""
    deliveries = [
        Delivery(
            alert=alert,
            event=event,
            channel=channel,
            created_at=now,
            next_attempt_at=now,
        )
        for channel, event in due.items()
    ]
    return AlertStep(alert, tuple(deliveries))


def _ending(alert: Alert, endings: Mapping[str, str | None]) -> str:
    """Why an alert ended, as its last message says."""
    if alert.cause in endings:
        return endings[alert.cause] or "no rule covers it any more"
    if alert.regression_id:
        return "the newer results no longer show it"
    return "back within limits, or no rule covers it"


def _channels_to_resolve(alert: Alert, rules: Mapping[str, Rule]) -> list[str]:
    """Return the channels that were told in this episode, without those of rules without
    `notify_resolved` alone.
    """
    told_channels = [channel for channel, time in alert.told_at.items() if time >= alert.fired_at]
    notified: set[str] = set()
    silent: set[str] = set()
    for name in alert.rules:
        rule = rules.get(name)
        # a rule may have been removed since
        if rule is None:
            continue
        if rule.notify_resolved:
            notified.update(rule.channels, rule.escalate_to)
        else:
            silent.update(rule.channels, rule.escalate_to)
    muted = silent - notified
    return [channel for channel in told_channels if channel not in muted]
