"""Alerts of one event in one message, and a limit of messages per hour with a summary. Pure.

A slower machine slows down every kernel, and each kernel has its alert. People get one message
per channel, with the worst inside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from roofwatch.ci.messages import count_of, listed
from roofwatch.model.alert import (
    Alert,
    AlertEvent,
    AlertStep,
    Delivery,
    Fact,
    Message,
    ReportedValue,
)
from roofwatch.model.grouping import group_by

WORST_COUNT = 10
"""Changes and titles in a message about several alerts."""
_Group = tuple[str, AlertEvent, str]
"""Channel, what happened to the alert, and the event."""


def one_message_per_event(steps: Sequence[AlertStep]) -> list[AlertStep]:
    """Keep one delivery per channel for the alerts of one event; it belongs to the worst alert."""
    groups = group_by(_deliveries_of(steps), _group_of)
    merged = {group: _merged(deliveries) for group, deliveries in groups.items()}
    merged_steps = []
    for step in steps:
        remaining = []
        for delivery in step.deliveries:
            merged_delivery = merged[_group_of(delivery)]
            # only the worst alert is sent, and its message names the others
            if merged_delivery.alert.alert_id == delivery.alert.alert_id:
                remaining.append(merged_delivery)
        merged_steps.append(replace(step, deliveries=tuple(remaining)))
    return merged_steps


def _deliveries_of(steps: Iterable[AlertStep]) -> Iterator[Delivery]:
    """All messages of some steps, in their order."""
    for step in steps:
        yield from step.deliveries


def within_limit(
    steps: Sequence[AlertStep],
    limit: int,
    sent_counts: Mapping[str, int],
    now: datetime,
) -> list[AlertStep]:
    """Let at most `limit` messages an hour pass to a channel; the last of them sums up the rest.

    What comes when the limit is reached waits: the alert counts as not told.

    Args:
        steps: What the alerts want to send.
        limit: Messages an hour to one channel.
        sent_counts: Messages of this hour so far, by channel.
        now: As the alerts were told.
    """
    waiting = group_by(_deliveries_of(steps), lambda delivery: delivery.channel)
    passed: dict[str, Delivery] = {}
    for channel, deliveries in waiting.items():
        allowed_count = limit - sent_counts.get(channel, 0)
        for delivery in _within_count(deliveries, allowed_count, limit):
            passed[_key(delivery)] = delivery
    # a channel that got nothing has its turn in the next hour
    told_channels = {delivery.channel for delivery in passed.values()}
    return [
        _limited(
            step,
            passed,
            told_channels,
            now,
        )
        for step in steps
    ]


def _within_count(
    deliveries: Sequence[Delivery],
    allowed_count: int,
    limit: int,
) -> Sequence[Delivery]:
    """The deliveries to one channel, the worst first; what is too much is summed up in the last."""
    ordered = sorted(deliveries, key=lambda delivery: -delivery.alert.severity.rank)
    if len(ordered) <= allowed_count:
        return ordered
    if allowed_count <= 0:
        return []
    # one message is kept back for the sum of the rest
    alone_count = allowed_count - 1
    summary = _summary(ordered[alone_count:], limit)
    return [*ordered[:alone_count], summary]


def _limited(
    step: AlertStep,
    passed: Mapping[str, Delivery],
    told_channels: set[str],
    now: datetime,
) -> AlertStep:
    """Keep what passed of a step; an alert counts as not told where its channel got nothing."""
    told_at = dict(step.alert.told_at)
    deliveries: list[Delivery] = []
    for delivery in step.deliveries:
        if _key(delivery) in passed:
            deliveries.append(passed[_key(delivery)])
        # so that the next hour sends it
        if delivery.channel not in told_channels and told_at.get(delivery.channel) == now:
            del told_at[delivery.channel]
    return AlertStep(replace(step.alert, told_at=told_at), tuple(deliveries))


def _key(delivery: Delivery) -> str:
    return str(delivery.key)


def _group_of(delivery: Delivery) -> _Group:
    """What messages have in common that become one."""
    alert = delivery.alert
    event = alert.event or alert.cause
    return delivery.channel, delivery.event, event


def _merged(deliveries: Sequence[Delivery]) -> Delivery:
    """One delivery for all, of the worst alert."""
    ordered = sorted(deliveries, key=_weight)
    worst = ordered[0]
    # its message needs no others
    if len(ordered) == 1:
        return worst
    alerts = [delivery.alert for delivery in ordered]
    return replace(worst, alert=_merged_alert(alerts))


def _weight(delivery: Delivery) -> tuple[int, bool, float]:
    """Sort the most severe first, a regression before what it did to metrics, then the largest."""
    alert = delivery.alert
    largest_size = max(map(_size, alert.message.changes), default=0.0)
    return (
        -alert.severity.rank,
        alert.regression_id is None,
        -largest_size,
    )


def _size(change: ReportedValue) -> float:
    """A failure, which has no ratio, counts as the smallest."""
    return abs(change.relative_change or 0.0)


def _merged_alert(alerts: Sequence[Alert]) -> Alert:
    """Write the message of several alerts of one event; the worst comes first."""
    worst = alerts[0]
    kernels = _once(kernel for alert in alerts for kernel in alert.message.kernels)
    title = worst.message.title
    if len(kernels) > len(worst.message.kernels):
        kernel_count = count_of(len(kernels), "kernel")
        title = f"{kernel_count} together, the worst: {title}"
    message = replace(
        worst.message,
        title=title,
        facts=(*worst.message.facts, *_others(alerts[1:])),
        owners=_once(owner for alert in alerts for owner in alert.message.owners),
        kernels=kernels,
        devices=_once(device for alert in alerts for device in alert.message.devices),
        changes=_worst_changes([alert.message for alert in alerts]),
    )
    rules = _once(rule for alert in alerts for rule in alert.rules)
    return replace(
        worst,
        message=message,
        rules=rules,
    )


def _worst_changes(messages: Sequence[Message]) -> tuple[ReportedValue, ...]:
    """Return the largest changes; a case that several metrics tell about counts once."""
    changes: dict[tuple[str, str, str], ReportedValue] = {}
    for message in messages:
        for change in message.changes:
            subject = (change.case_id, change.implementation, change.runner_class)
            changes.setdefault(subject, change)
    # stable: of equal sizes, those of the worse alert come first
    ordered = sorted(
        changes.values(),
        key=_size,
        reverse=True,
    )
    return tuple(ordered[:WORST_COUNT])


def _others(alerts: Sequence[Alert]) -> list[Fact]:
    """Count what else the event did, without repeating each metric of a kernel."""
    kernels = _once(kernel for alert in alerts for kernel in alert.message.kernels)
    # alerts about a runner name no kernel
    if not kernels:
        return []
    return [Fact("Also", listed(kernels, WORST_COUNT))]


def _summary(deliveries: Sequence[Delivery], limit: int) -> Delivery:
    """Write one message for what is beyond the limit."""
    worst = deliveries[0]
    if len(deliveries) == 1:
        return worst
    alerts = [delivery.alert for delivery in deliveries]
    # a channel shows only some lines
    shown_alerts = alerts[:WORST_COUNT]
    facts = [Fact("Alert", alert.message.title) for alert in shown_alerts]
    other_count = len(alerts) - WORST_COUNT
    # a message stays short; the list has all
    if other_count > 0:
        facts.append(Fact("More", f"{other_count} others: roofwatch alert list"))
    message = replace(
        _merged_alert(alerts).message,
        title=f"{len(alerts)} alerts in one message: the limit is {limit} messages an hour",
        facts=tuple(facts),
    )
    return replace(worst, alert=replace(worst.alert, message=message))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
