"""Commands of alerts: run, list, check, test and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.options import ACTOR, EXIT_WRONG, AsJson
from roofwatch.terminal import make_table, print_error, print_note, print_result

if TYPE_CHECKING:
    from rich.table import Table

    from roofwatch.db.alerts.values import Alert, Delivery

app = typer.Typer()
alert_app = typer.Typer(help="Notify people of regressions, levels and silent runners.", no_args_is_help=True)
app.add_typer(alert_app, name="alert")

RulesFile = Annotated[Path | None, typer.Option("--rules", help="File of rules. Default: the setting alert_rules.")]
OneProject = Annotated[str | None, typer.Option("--project", "-p", help="Only this project. Default: all.")]


@alert_app.command("run")
def run(*, project: OneProject = None, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """Evaluate the rules and send waiting messages, once, as the service does.

    Exit status 1: a message could not be sent; it will be tried again.
    """
    from datetime import UTC, datetime

    from roofwatch.alerting import read_alerts
    from roofwatch.arguments import open_configured_store
    from roofwatch.ci.alerts.delivery import deliver_waiting
    from roofwatch.ci.alerts.evaluation import raise_alerts
    from roofwatch.db.alerts.values import DeliveryState
    from roofwatch.settings import load_settings

    configured = read_alerts(rules, load_settings())
    for fault in configured.faults:
        print_error(fault)
    with open_configured_store() as engine:
        steps = raise_alerts(engine, configured, datetime.now(UTC), None if project is None else [project])
        deliveries = deliver_waiting(engine, configured.channels, lambda: datetime.now(UTC))
    changed = [step.alert for step in steps]
    shown = _tables(changed, deliveries) or ["nothing changed, and no message is waiting"]
    print_result({"changed": changed, "deliveries": deliveries}, *shown, as_json=as_json)
    if any(one.state is not DeliveryState.SENT for one in deliveries):
        raise typer.Exit(EXIT_WRONG)


@alert_app.command("list")
def list_(
    *,
    project: OneProject = None,
    everything: Annotated[bool, typer.Option("--all", help="Include resolved alerts and sent messages.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show alerts that are not resolved, and messages that are not sent."""
    from sqlalchemy.orm import Session

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.alerts.alerts import list_alerts, list_deliveries
    from roofwatch.db.alerts.values import AlertState, DeliveryState

    states = None if everything else {AlertState.FIRING, AlertState.ACKNOWLEDGED}
    unsent = None if everything else {state for state in DeliveryState if state is not DeliveryState.SENT}
    with open_configured_store() as engine, Session(engine) as session:
        alerts = list_alerts(session, project, states)
        deliveries = list_deliveries(session, project, states=unsent)
    listed = [{"alert_id": str(one.alert_id), "alert": one} for one in alerts]
    shown = _tables(alerts, deliveries) or ["no alert is firing, and no message is waiting"]
    print_result({"alerts": listed, "deliveries": deliveries}, *shown, as_json=as_json)


@alert_app.command("check")
def check(*, project: OneProject = None, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """Check the rules and their channels, and show what each rule reports now. Nothing is sent or stored.

    Exit status 1: a channel or CODEOWNERS cannot be used. 2: the rules cannot be read.
    """
    from datetime import UTC, datetime

    from sqlalchemy.orm import Session

    from roofwatch.alerting import read_alerts
    from roofwatch.arguments import open_configured_store
    from roofwatch.ci.alerts.evaluation import evaluate
    from roofwatch.db.queries.runs import list_projects
    from roofwatch.settings import load_settings

    configured = read_alerts(rules, load_settings())
    with open_configured_store() as engine, Session(engine) as session:
        projects = [name for name in list_projects(session) if project in (None, name)]
        conditions = {name: evaluate(session, name, configured, datetime.now(UTC)).conditions for name in projects}
    rows = []
    for rule in configured.rules.rules:
        for name in filter(rule.covers_project, conditions):
            found = [one for one in conditions[name] if one.rule == rule.name]
            titles = [f"{'(past) ' if one.is_past else ''}{one.message.title}" for one in found]
            rows.append((rule.name, rule.kind, name, "; ".join(titles) or "nothing"))
    shown = [make_table(("rule", "kind", "project", "reports now"), rows)] if rows else []
    document = {"rules": configured.rules, "faults": configured.faults, "conditions": conditions}
    print_result(document, *shown, as_json=as_json)
    for fault in configured.faults:
        print_error(fault)
    if configured.faults:
        raise typer.Exit(EXIT_WRONG)


@alert_app.command("test")
def try_channel(
    channel: Annotated[str, typer.Argument(help="A channel of the rules.")], *, rules: RulesFile = None
) -> None:
    """Send a test message through a channel."""
    from roofwatch.alerting import read_alerts, trial_delivery
    from roofwatch.ci.alerts.delivery import SendError
    from roofwatch.ci.messages import AlertError
    from roofwatch.settings import load_settings

    channels = read_alerts(rules, load_settings()).channels
    sender = channels.get(channel, f"unknown; the rules have {', '.join(channels) or 'none'}")
    if isinstance(sender, str):
        raise AlertError(f"channel {channel!r}: {sender}")
    try:
        sender.send(trial_delivery(channel))
    except SendError as error:
        raise AlertError(f"channel {channel!r}: {error}") from None
    print_note(f"sent through {channel}: check that it arrived")


@alert_app.command("acknowledge")
def acknowledge_(
    alert_id: Annotated[UUID, typer.Argument(help="ID, as shown by list.")],
    *,
    person: Annotated[str, typer.Option(help="Who works on it.")],
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")],
) -> None:
    """Acknowledge an alert and its regression: it is not escalated."""
    from datetime import UTC, datetime

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.alerts.alerts import acknowledge

    with open_configured_store() as engine:
        alert = acknowledge(engine, alert_id, person=person, reason=reason, actor=ACTOR, now=datetime.now(UTC))
    print_note(f"acknowledged: {alert.message.title}")


def _tables(alerts: Sequence[Alert], deliveries: Sequence[Delivery]) -> list[Table | str]:
    """One table each, if there are any."""
    shown: list[Table | str] = []
    if alerts:
        rows = []
        for alert in alerts:
            state = f"{alert.state} by {alert.acknowledged_by}" if alert.state == "acknowledged" else alert.state
            since = f"{alert.fired_at:%Y-%m-%d %H:%M}"
            rows.append((alert.alert_id, alert.project, alert.rule, alert.severity, state, since, alert.message.title))
        shown.append(make_table(("alert", "project", "rule", "severity", "state", "since", "what"), rows))
    if deliveries:
        sent = [
            (
                *(one.alert.project, one.message.title, one.event, one.channel, one.state, one.attempt_count),
                *(f"{one.sent_at or one.next_attempt_at:%Y-%m-%d %H:%M}", one.error),
            )
            for one in deliveries
        ]
        columns = ("project", "what", "event", "channel", "state", "attempts", "next or last", "why")
        shown.append(make_table(columns, sent))
    return shown
