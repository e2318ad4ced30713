"""Commands of alerts: run, list, check, test and acknowledge."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.commands.options import ACTOR, AsJson
from roofwatch.console.terminal import EXIT_WRONG, make_table, print_error, print_note, print_result

if TYPE_CHECKING:
    from roofwatch.model.alert import AlertCondition

app = typer.Typer()
alert_app = typer.Typer(
    help="Notify people of regressions, levels and silent runners.", no_args_is_help=True
)
app.add_typer(alert_app, name="alert")

RulesFile = Annotated[
    Path | None, typer.Option("--rules", help="File of rules. Default: the setting alert_rules.")
]
OneProject = Annotated[
    str | None, typer.Option("--project", "-p", help="Only this project. Default: all.")
]


@alert_app.command("run")
def run(*, project: OneProject = None, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """Evaluate the rules and send waiting messages, once, as the service does.

    Exit status 1: a message could not be sent; it will be tried again.
    """
    from roofwatch.ci.alerts.evaluation import deliver_waiting, raise_alerts
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import load_settings
    from roofwatch.model.alert import DeliveryState
    from roofwatch.regressions.alerting import read_alerts
    from roofwatch.tables.stored import alert_tables

    # faults are said before anything is sent: the rest still works
    configured = read_alerts(rules, load_settings())
    for fault in configured.faults:
        print_error(fault)
    with open_configured_store() as engine:
        steps = raise_alerts(
            engine=engine,
            setup=configured,
            now=datetime.now(UTC),
            projects=None if project is None else [project],
        )
        deliveries = deliver_waiting(engine, configured.channels, lambda: datetime.now(UTC))
    changed = [step.alert for step in steps]
    tables = alert_tables(changed, deliveries) or ["nothing changed, and no message is waiting"]
    print_result({"changed": changed, "deliveries": deliveries}, *tables, as_json=as_json)
    # the next call tries again, so this is no error of the rules
    if any(delivery.state is not DeliveryState.SENT for delivery in deliveries):
        raise typer.Exit(EXIT_WRONG)


@alert_app.command("list")
def list_(
    *,
    project: OneProject = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include resolved alerts and sent messages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show alerts that are not resolved, and messages that are not sent."""
    from sqlalchemy.orm import Session

    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.regressions.alerts import list_alerts, list_deliveries
    from roofwatch.model.alert import AlertState, DeliveryState
    from roofwatch.tables.stored import alert_tables

    if everything:
        states = None
    else:
        states = {AlertState.FIRING, AlertState.ACKNOWLEDGED}
    if everything:
        unsent = None
    else:
        unsent = {state for state in DeliveryState if state is not DeliveryState.SENT}
    with open_configured_store() as engine, Session(engine) as session:
        alerts = list_alerts(session, project, states)
        deliveries = list_deliveries(session, project, states=unsent)
    listed = [{"alert_id": str(alert.alert_id), "alert": alert} for alert in alerts]
    tables = alert_tables(alerts, deliveries) or ["no alert is firing, and no message is waiting"]
    print_result({"alerts": listed, "deliveries": deliveries}, *tables, as_json=as_json)


@alert_app.command("check")
def check(*, project: OneProject = None, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """Check rules and channels. Show what each rule covers, reports now, and would have told in the
    last 30 days.

    Exit status 1: a channel or CODEOWNERS cannot be used, or a rule matches nothing. 2: the rules
    cannot be read.
    """
    from sqlalchemy.orm import Session

    from roofwatch.ci.alerts.coverage import (
        coverage,
        coverage_text,
        is_idle,
        why_never_firing,
    )
    from roofwatch.ci.alerts.evaluation import REPLAY_DAYS, read_state, replay
    from roofwatch.ci.alerts.kinds import conditions_at
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import load_settings
    from roofwatch.db.queries.project import list_projects
    from roofwatch.regressions.alerting import read_alerts

    configured = read_alerts(rules, load_settings())
    now = datetime.now(UTC)
    with open_configured_store() as engine, Session(engine) as session:
        projects = [name for name in list_projects(session) if project in (None, name)]
        states = [read_state(session, name, configured) for name in projects]
        faults = [*configured.faults]
        rows = []
        checks = []
        for rule in configured.rules.rules:
            covered_states = [
                state for state in states if rule in configured.rules.of(state.project)
            ]
            faults += why_never_firing(rule, covered_states)
            extents = [coverage(rule, state) for state in covered_states]
            # a rule that covers nothing was probably mistyped
            if states and all(map(is_idle, extents)):
                matches = [
                    f"{coverage_text(extent)}, in {state.project}"
                    for state, extent in zip(covered_states, extents, strict=True)
                ]
                words = "; ".join(matches) or f"matches none of the projects {projects}"
                faults.append(f"rule {rule.name!r}: {words}")
            for state, extent in zip(covered_states, extents, strict=True):
                conditions = conditions_at(rule, state, now)
                replayed = replay(rule, state, now)
                titles = [_condition_title(condition) for condition in conditions]
                past_titles = [f"{time:%m-%d} {title}" for time, title in replayed]
                rows.append(
                    (
                        rule.name,
                        state.project,
                        coverage_text(extent),
                        "; ".join(titles) or "nothing",
                        "; ".join(past_titles) or "nothing",
                    )
                )
                checks.append(
                    {
                        "rule": rule.name,
                        "project": state.project,
                        "covers": extent,
                        "conditions": conditions,
                        "would_have_told": replayed,
                    }
                )
    columns = ("rule", "project", "covers", "reports now", f"would have told in {REPLAY_DAYS} days")
    tables = [make_table(columns, rows)] if rows else []
    print_result(
        {"rules": configured.rules, "faults": faults, "checks": checks}, *tables, as_json=as_json
    )
    for fault in faults:
        print_error(fault)
    if faults:
        raise typer.Exit(EXIT_WRONG)


def _condition_title(condition: "AlertCondition") -> str:
    title = condition.message.title
    return f"(past) {title}" if condition.is_past else title


@alert_app.command("test")
def try_channel(
    channel: Annotated[str, typer.Argument(help="A channel of the rules.")],
    *,
    rules: RulesFile = None,
) -> None:
    """Send a test message through a channel."""
    from roofwatch.ci.alerts.evaluation import SendError
    from roofwatch.ci.messages import AlertError
    from roofwatch.configuration.settings import load_settings
    from roofwatch.regressions.alerting import read_alerts, trial_delivery

    channels = read_alerts(rules, load_settings()).channels
    send = channels.get(channel, f"unknown; the rules have {', '.join(channels) or 'none'}")
    # a channel that cannot be opened is the reason why
    if isinstance(send, str):
        raise AlertError(f"channel {channel!r}: {send}")
    try:
        send(trial_delivery(channel))
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
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.regressions.alerts import acknowledge

    with open_configured_store() as engine:
        alert = acknowledge(
            engine,
            alert_id,
            person=person,
            reason=reason,
            actor=ACTOR,
            now=datetime.now(UTC),
        )
    print_note(f"acknowledged: {alert.message.title}")
