"""Alerts of one event in one message, and a limit of messages per hour with a summary. Pure.

A slower machine slows down every kernel, and each kernel has its alert. People get one message
per channel, with the worst inside.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from roofwatch.ci.messages import count_of
from roofwatch.model.alert import (
    Alert,
    AlertEvent,
    AlertStep,
    Delivery,
    Fact,
    Message,
    ReportedValue,
)

WORST_COUNT = 10
"""Changes and titles in a message about several alerts."""
_Group = tuple[str, AlertEvent, str]
"""Channel, what happened to the alert, and the event."""


def one_message_per_event(steps: Sequence[AlertStep]) -> list[AlertStep]:
    """Keep one delivery per channel for the alerts of one event; it belongs to the worst alert."""
    groups: dict[_Group, list[Delivery]] = defaultdict(list)
    for step in steps:
        for delivery in step.deliveries:
            groups[_group_of(delivery)].append(delivery)
    merged = {group: _merged(deliveries) for group, deliveries in groups.items()}
    result = []
    for step in steps:
        own_deliveries = []
        for delivery in step.deliveries:
            whole = merged[_group_of(delivery)]
            # this message names the others of the event
            if whole.alert.alert_id == delivery.alert.alert_id:
                own_deliveries.append(whole)
        result.append(replace(step, deliveries=tuple(own_deliveries)))
    return result


def within_limit(
    steps: Sequence[AlertStep],
    limit: int,
    sent_counts: Mapping[str, int],
    now: datetime,
) -> list[AlertStep]:
    """Let at most `limit` messages an hour pass to a channel; the last of them sums up the rest.

    What comes when the limit is reached waits: the alert counts as not told.
    """
    waiting: dict[str, list[Delivery]] = defaultdict(list)
    for step in steps:
        for delivery in step.deliveries:
            waiting[delivery.channel].append(delivery)
    passed: dict[str, Delivery] = {}
    deferred: set[str] = set()
    for channel, deliveries in waiting.items():
        allowed = limit - sent_counts.get(channel, 0)
        # the worst come first, in case that not all pass
        deliveries.sort(key=lambda delivery: -delivery.alert.severity.rank)
        if len(deliveries) <= allowed:
            chosen = deliveries
        elif allowed > 0:
            # one message is kept back for the sum of the rest
            summary = _summary(deliveries[allowed - 1 :], limit)
            chosen = [*deliveries[: allowed - 1], summary]
        else:
            chosen = []
            deferred |= {_key(delivery) for delivery in deliveries}
        passed |= {_key(delivery): delivery for delivery in chosen}
    return [_limited(step, passed, deferred, now) for step in steps]


def _limited(
    step: AlertStep,
    passed: Mapping[str, Delivery],
    deferred: set[str],
    now: datetime,
) -> AlertStep:
    alert = step.alert
    told_at = dict(alert.told_at)
    for delivery in step.deliveries:
        # so that the next hour sends it
        if _key(delivery) in deferred and told_at.get(delivery.channel) == now:
            del told_at[delivery.channel]
    deliveries = [
        passed[_key(delivery)] for delivery in step.deliveries if _key(delivery) in passed
    ]
    return AlertStep(replace(alert, told_at=told_at), tuple(deliveries))


def _key(delivery: Delivery) -> str:
    return str(delivery.key)


def _group_of(delivery: Delivery) -> _Group:
    alert = delivery.alert
    event = alert.event or alert.cause
    return delivery.channel, delivery.event, event


def _merged(deliveries: Sequence[Delivery]) -> Delivery:
    ordered = sorted(deliveries, key=_weight)
    first = ordered[0]
    if len(ordered) == 1:
        return first
    return replace(first, alert=_merged_alert([delivery.alert for delivery in ordered]))


def _weight(delivery: Delivery) -> tuple[int, bool, float]:
    """Sort the most severe first, a regression before what it did to metrics, then the largest."""
    alert = delivery.alert
    sizes = [abs(change.relative_change or 0.0) for change in alert.message.changes]
    return -alert.severity.rank, alert.regression_id is None, -max(sizes, default=0.0)


def _merged_alert(alerts: Sequence[Alert]) -> Alert:
    first = alerts[0]
    kernels = _once(kernel for alert in alerts for kernel in alert.message.kernels)
    title = first.message.title
    if len(kernels) > len(first.message.kernels):
        title = f"{count_of(len(kernels), 'kernel')} together, the worst: {title}"
    message = replace(
        first.message,
        title=title,
        facts=(*first.message.facts, *_others(alerts[1:])),
        owners=_once(owner for alert in alerts for owner in alert.message.owners),
        kernels=kernels,
        devices=_once(device for alert in alerts for device in alert.message.devices),
        changes=_worst_changes([alert.message for alert in alerts]),
    )
    rules = _once(rule for alert in alerts for rule in alert.rules)
    return replace(first, message=message, rules=rules)


def _worst_changes(messages: Sequence[Message]) -> tuple[ReportedValue, ...]:
    """Return the largest changes; a case that several metrics tell about counts once."""
    changes: dict[tuple[str, str, str], ReportedValue] = {}
    for message in messages:
        for change in message.changes:
            subject = (change.case_id, change.implementation, change.runner_class)
            changes.setdefault(subject, change)
    ordered = sorted(changes.values(), key=lambda change: -abs(change.relative_change or 0.0))
    return tuple(ordered[:WORST_COUNT])


def _others(alerts: Sequence[Alert]) -> list[Fact]:
    """Count what else the event did, without repeating each metric of a kernel."""
    kernels = _once(kernel for alert in alerts for kernel in alert.message.kernels)
    more = len(kernels) - WORST_COUNT
    names = ", ".join(kernels[:WORST_COUNT])
    if more > 0:
        names += f" and {more} more"
    if not names:
        return []
    return [Fact("Also", names)]


def _summary(deliveries: Sequence[Delivery], limit: int) -> Delivery:
    """Write one message for what is beyond the limit."""
    if len(deliveries) == 1:
        return deliveries[0]
    first = deliveries[0]
    titles = [delivery.alert.message.title for delivery in deliveries]
    facts = [Fact("Alert", title) for title in titles[:WORST_COUNT]]
    # a message stays short; the list has all
    if len(titles) > WORST_COUNT:
        facts.append(Fact("More", f"{len(titles) - WORST_COUNT} others: roofwatch alert list"))
    message = replace(
        _merged_alert([delivery.alert for delivery in deliveries]).message,
        title=f"{len(titles)} alerts in one message: the limit is {limit} messages an hour",
        facts=tuple(facts),
    )
    return replace(first, alert=replace(first.alert, message=message))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
