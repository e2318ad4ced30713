"""Alerts as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from roofwatch.ci.alerts.rules import AlertRules
from roofwatch.db.alerts.values import Alert, AlertCondition, AlertState, Delivery
from roofwatch.terminal import printable


def alerts_table(alerts: Sequence[Alert]) -> Table:
    table = Table("alert", "project", "rule", "severity", "state", "since", "what")
    for alert in alerts:
        state = alert.state.value
        if alert.state is AlertState.ACKNOWLEDGED:
            state += f" by {alert.acknowledged_by}"
        table.add_row(
            str(alert.alert_id),
            printable(alert.project),
            printable(alert.rule),
            alert.severity.value,
            printable(state),
            f"{alert.fired_at:%Y-%m-%d %H:%M}",
            printable(alert.message.title),
        )
    return table


def deliveries_table(deliveries: Sequence[Delivery]) -> Table:
    table = Table("project", "what", "event", "channel", "state", "attempts", "next or last", "why")
    for one in deliveries:
        table.add_row(
            printable(one.alert.project),
            printable(one.message.title),
            one.event.value,
            printable(one.channel),
            one.state.value,
            str(one.attempt_count),
            f"{one.sent_at or one.next_attempt_at:%Y-%m-%d %H:%M}",
            printable(one.error or ""),
        )
    return table


def conditions_table(by_project: Mapping[str, Sequence[AlertCondition]], rules: AlertRules) -> Table:
    """What each rule says now, of each project that it speaks of."""
    table = Table("rule", "kind", "project", "says now")
    for rule in rules.rules:
        for project, conditions in by_project.items():
            if rule.covers_project(project):
                said = [firing for firing in conditions if firing.rule == rule.name]
                words = [f"{'(past) ' if firing.is_past else ''}{firing.message.title}" for firing in said]
                table.add_row(
                    printable(rule.name), rule.kind, printable(project), printable("; ".join(words) or "nothing")
                )
    return table
