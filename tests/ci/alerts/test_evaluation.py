"""Evaluation of rules on a store, and the life of an alert."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.evaluation import AlertSetup, evaluate, next_steps
from roofwatch.ci.alerts.rules import AlertRules, parse_codeowners, parse_rules
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.alerts.values import Alert, AlertCondition, AlertState, Message, Notification, Severity
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import quarantine_name
from tests.builders import (
    NOON,
    PROJECT,
    make_accuracy,
    make_case,
    make_commit,
    make_measurement,
    make_record,
)

RULES = """
[channels]
chat = { kind = "apprise", url_env = "CHAT" }
[[rules]]
name = "rule"
channels = ["chat"]
runs = 1
kind = "%s"
"""
OBJECTIVE = RULES % "level" + 'metric = "utilisation"\nat_least = 0.4\n'
PLAN = AlertSetup(parse_rules(OBJECTIVE), parse_codeowners("/kernels/ @example/kernels"))


def seen(engine: Engine, setup: AlertSetup = PLAN, project: str = PROJECT) -> list[AlertCondition]:
    with Session(engine) as session:
        return list(evaluate(session, project, setup, NOON + timedelta(days=1)).conditions)


@pytest.fixture
def history(store: Engine) -> Engine:
    """Three commits at a utilisation of one half."""
    for number in range(3):
        ingest_record(store, make_record(number))
    return store


def test_the_newest_run_of_the_default_branch_counts_and_its_source_file_gives_the_owner(history: Engine) -> None:
    line = SourceLine(kernel="rms_norm", implementation="eager", function="f", file="kernels/rms_norm.py", line=3)
    low = make_measurement(utilisation=0.1)
    ingest_record(history, make_record(3, measurements=[low], source_lines=(line,)))

    (one,) = seen(history)

    assert one.message.title.startswith("rms_norm: utilisation of the roof below 40.0% in 1 case on ")
    assert one.message.owners == ("@example/kernels",)


@pytest.mark.parametrize("fields", [{"branch": "topic"}, {"is_dirty": True}])
def test_other_branches_and_uncommitted_changes_raise_no_alert(history: Engine, fields: dict[str, object]) -> None:
    commit = make_commit(3, **fields)
    ingest_record(history, make_record(3, commit=commit, measurements=[make_measurement(utilisation=0.1)]))

    assert seen(history) == []


def test_quarantined_records_raise_no_alert(history: Engine) -> None:
    low = make_record(3, measurements=[make_measurement(utilisation=0.1)])
    ingest_record(history, low, is_quarantined=True)

    assert seen(history) == []
    assert quarantine_name(PROJECT) != PROJECT


def test_errors_and_tags_are_read_from_the_records(store: Engine) -> None:
    rule = RULES.replace("runs = 1", 'runs = 1\ntags = ["quick"]') % "level" + 'metric = "rmse_ratio"\ngrown_by = 0.5\n'
    case = make_case(tags=("quick",))
    for number, ratio in enumerate([1e-7, 1e-7, 1.1e-7, 3e-7]):
        checked = make_accuracy(rmse_ratio=ratio)
        ingest_record(store, make_record(number, cases=[case], measurements=[make_measurement()], accuracies=[checked]))

    (one,) = seen(store, AlertSetup(parse_rules(rule)))

    assert "grew by more than 50%" in one.message.title
    assert seen(store, AlertSetup(parse_rules(rule.replace("quick", "decode")))) == []


# --- from conditions to alerts

HOUR = timedelta(hours=1)
ESCALATING = parse_rules(
    """
    [channels]
    chat = { kind = "apprise", url_env = "CHAT" }
    lead = { kind = "apprise", url_env = "LEAD" }
    [[rules]]
    name = "slower"
    kind = "regression"
    channels = ["chat"]
    cool_down_hours = 24
    escalate_after_hours = 4
    escalate_to = ["lead"]
    """
)


def condition(cause: str = "one", **fields: object) -> AlertCondition:
    message = Message(title=f"{cause} is slower")
    return AlertCondition("slower", cause, Severity.WARNING, message, **fields)  # type: ignore[arg-type]  # its fields


ONE, TWO, FIRED = condition(), condition("two"), ["fired chat one"]
Timeline = list[tuple[float, list[AlertCondition], list[str]]]


@pytest.mark.parametrize(
    "timeline",
    [
        # an alert is notified once, and each cause is an alert
        [(0, [ONE], FIRED), (1, [ONE, TWO], ["fired chat two"]), (2, [ONE, TWO], [])],
        # it is escalated once if nobody acknowledges it, and its end is notified to all
        [(0, [ONE], FIRED), (3.9, [ONE], []), (4, [ONE], ["escalated lead one"]), (9, [ONE], [])],
        [(0, [ONE], FIRED), (4, [ONE], ["escalated lead one"]), (5, [], ["resolved chat one", "resolved lead one"])],
        [(0, [ONE], FIRED), (5, [condition(is_acknowledged=True)], []), (6, [], ["resolved chat one"]), (7, [], [])],
        # one that comes and goes is notified again only after the cool-down, and so is its end
        [
            (0, [ONE], FIRED),
            (1, [], ["resolved chat one"]),
            (2, [ONE], []),
            (3, [], []),
            (10, [ONE], []),
            (24, [ONE], FIRED),
        ],
        # what lies too far back begins nothing and ends nothing
        [(0, [condition(is_past=True)], []), (1, [ONE], FIRED), (2, [condition(is_past=True)], [])],
    ],
)
def test_an_alert_follows_its_condition(timeline: Timeline) -> None:
    alerts: dict[str, Alert] = {}
    for hours, conditions, expected in timeline:
        assert [f"{one.event} {one.channel} {cause}" for cause, one in step(alerts, hours, conditions)] == expected


def test_a_resolution_has_its_reason_and_a_removed_rule_resolves_silently() -> None:
    alerts: dict[str, Alert] = {}
    step(alerts, 0, [ONE, TWO])

    step(alerts, 1, [TWO], endings={"one": "back where it was at abc"})
    notified = step(alerts, 2, [], rules=AlertRules())

    assert alerts["one"].message.facts[0].text == "back where it was at abc"
    assert (alerts["two"].state, notified) == (AlertState.RESOLVED, [])


def step(
    alerts: dict[str, Alert],
    hours: float,
    conditions: list[AlertCondition],
    rules: AlertRules = ESCALATING,
    endings: dict[str, str] | None = None,
) -> list[tuple[str, Notification]]:
    """The notifications after some hours, with their causes."""
    known, now = list(alerts.values()), NOON + hours * HOUR
    steps = next_steps(PROJECT, known, conditions, rules=rules, endings=endings or {}, now=now)
    alerts |= {one.alert.cause: one.alert for one in steps}
    return [(one.alert.cause, notification) for one in steps for notification in one.notifications]
