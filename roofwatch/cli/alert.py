"""Commands of alerts: run, list, check, test and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.options import EXIT_WRONG, AsJson

if TYPE_CHECKING:
    from roofwatch.db.alerts.values import Alert, Delivery

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
alert_app = typer.Typer(help="Notify people of regressions, levels and silent runners.", no_args_is_help=True)
app.add_typer(alert_app, name="alert")

RulesFile = Annotated[Path | None, typer.Option("--rules", help="File of rules. Default: the setting alert_rules.")]
OneProject = Annotated[
    str | None, typer.Option("--project", "-p", help="Only this project. Default: all.", show_default=False)
]


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
    from roofwatch.terminal import print_error, print_json, print_note

    configured = read_alerts(rules, load_settings())
    for fault in configured.faults:
        print_error(fault)
    with open_configured_store() as engine:
        steps = raise_alerts(engine, configured.plan, datetime.now(UTC), None if project is None else [project])
        deliveries = deliver_waiting(engine, configured.channels, lambda: datetime.now(UTC))
    if as_json:
        print_json({"changed": [step.alert for step in steps], "deliveries": deliveries})
    elif steps or deliveries:
        _print_alerts([step.alert for step in steps])
        _print_deliveries(deliveries)
    else:
        print_note("nothing changed, and no message is waiting")
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
    from roofwatch.terminal import print_json, print_note

    states = None if everything else {AlertState.FIRING, AlertState.ACKNOWLEDGED}
    unsent = None if everything else {state for state in DeliveryState if state is not DeliveryState.SENT}
    with open_configured_store() as engine, Session(engine) as session:
        alerts = list_alerts(session, project, states)
        deliveries = list_deliveries(session, project, states=unsent)
    if as_json:
        print_json(
            {"alerts": [{"alert_id": str(one.alert_id), "alert": one} for one in alerts], "deliveries": deliveries}
        )
        return
    _print_alerts(alerts)
    _print_deliveries(deliveries)
    if not alerts and not deliveries:
        print_note("no alert is firing, and no message is waiting")


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
    from roofwatch.terminal import print_error, print_json

    configured = read_alerts(rules, load_settings())
    plan = configured.plan
    with open_configured_store() as engine, Session(engine) as session:
        projects = [name for name in list_projects(session) if project in (None, name)]
        conditions = {name: evaluate(session, name, plan, datetime.now(UTC)).conditions for name in projects}
    if as_json:
        print_json({"rules": plan.rules, "faults": configured.faults, "conditions": conditions})
    else:
        rows = []
        for rule in plan.rules.rules:
            for name in filter(rule.covers_project, conditions):
                found = [one for one in conditions[name] if one.rule == rule.name]
                titles = [f"{'(past) ' if one.is_past else ''}{one.message.title}" for one in found]
                rows.append((rule.name, rule.kind, name, "; ".join(titles) or "nothing"))
        _print_table(("rule", "kind", "project", "reports now"), rows)
    for fault in configured.faults:
        print_error(fault)
    if configured.faults:
        raise typer.Exit(EXIT_WRONG)


@alert_app.command("test")
def try_channel(
    channel: Annotated[str, typer.Argument(help="A channel of the rules.", show_default=False)],
    *,
    rules: RulesFile = None,
) -> None:
    """Send a test message through a channel."""
    from roofwatch.alerting import read_alerts, trial_delivery
    from roofwatch.ci.alerts.delivery import SendError
    from roofwatch.ci.messages import AlertError
    from roofwatch.settings import load_settings
    from roofwatch.terminal import print_note

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
    alert_id: Annotated[UUID, typer.Argument(help="ID, as shown by list.", show_default=False)],
    *,
    person: Annotated[str, typer.Option(help="Who works on it.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.", show_default=False)],
) -> None:
    """Acknowledge an alert and its regression: it is not escalated."""
    from datetime import UTC, datetime

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.alerts.alerts import acknowledge
    from roofwatch.store.admin import ACTOR
    from roofwatch.terminal import print_note

    with open_configured_store() as engine:
        alert = acknowledge(engine, alert_id, person=person, reason=reason, actor=ACTOR, now=datetime.now(UTC))
    print_note(f"acknowledged: {alert.message.title}")


def _print_alerts(alerts: Sequence[Alert]) -> None:
    rows = []
    for one in alerts:
        state = f"{one.state} by {one.acknowledged_by}" if one.state == "acknowledged" else str(one.state)
        since = f"{one.fired_at:%Y-%m-%d %H:%M}"
        rows.append((str(one.alert_id), one.project, one.rule, one.severity, state, since, one.message.title))
    _print_table(("alert", "project", "rule", "severity", "state", "since", "what"), rows)


def _print_deliveries(deliveries: Sequence[Delivery]) -> None:
    rows = []
    for one in deliveries:
        at = f"{one.sent_at or one.next_attempt_at:%Y-%m-%d %H:%M}"
        sent = (one.event, one.channel, one.state, str(one.attempt_count), at)
        rows.append((one.alert.project, one.message.title, *sent, one.error or ""))
    _print_table(("project", "what", "event", "channel", "state", "attempts", "next or last", "why"), rows)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows, if there are any."""
    from roofwatch.tables import make_table
    from roofwatch.terminal import print_table, printable

    table = make_table(*columns)
    for row in rows:
        table.add_row(*map(printable, row))
    if rows:
        print_table(table)
