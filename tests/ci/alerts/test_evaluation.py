"""What the rules report of a store, and how an alert goes on: notified once, cooled down, escalated, resolved."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.evaluation import AlertPlan, evaluate, next_steps
from roofwatch.ci.alerts.ownership import parse_codeowners
from roofwatch.ci.alerts.rules import AlertRules, parse_rules
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.alerts.values import Alert, AlertCondition, AlertState, Message, Severity
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
OBJECTIVE = RULES % "utilisation" + "objective = 0.4\n"
PLAN = AlertPlan(parse_rules(OBJECTIVE), parse_codeowners("/kernels/ @example/kernels"))


def seen(engine: Engine, plan: AlertPlan = PLAN, project: str = PROJECT) -> list[AlertCondition]:
    with Session(engine) as session:
        return list(evaluate(session, project, plan, NOON + timedelta(days=1)).conditions)


@pytest.fixture
def history(store: Engine) -> Engine:
    """Three commits at a utilisation of one half."""
    for number in range(3):
        ingest_record(store, make_record(number))
    return store


def test_the_newest_run_of_the_default_branch_counts_and_its_source_file_says_whose_it_is(history: Engine) -> None:
    line = SourceLine(kernel="rms_norm", implementation="eager", function="f", file="kernels/rms_norm.py", line=3)
    low = make_measurement(utilisation=0.1)
    ingest_record(history, make_record(3, measurements=[low], source_lines=(line,)))

    (one,) = seen(history)

    assert one.message.title.startswith("rms_norm: below its objective of 40.0% utilisation in 1 case on ")
    assert one.message.owners == ("@example/kernels",)


@pytest.mark.parametrize("fields", [{"branch": "topic"}, {"is_dirty": True}])
def test_another_branch_or_an_uncommitted_change_calls_nobody(history: Engine, fields: dict[str, object]) -> None:
    commit = make_commit(3, **fields)
    ingest_record(history, make_record(3, commit=commit, measurements=[make_measurement(utilisation=0.1)]))

    assert seen(history) == []


def test_what_is_in_quarantine_calls_nobody(history: Engine) -> None:
    low = make_record(3, measurements=[make_measurement(utilisation=0.1)])
    ingest_record(history, low, is_quarantined=True)

    assert seen(history) == []
    assert quarantine_name(PROJECT) != PROJECT


def test_an_error_that_has_grown_and_a_tag_are_read_from_the_records(store: Engine) -> None:
    rule = RULES.replace("runs = 1", 'runs = 1\ntags = ["quick"]') % "accuracy" + "grown_by = 0.5\n"
    case = make_case(tags=("quick",))
    for number, ratio in enumerate([1e-7, 1e-7, 1.1e-7, 3e-7]):
        ingest_record(store, make_record(number, cases=[case], accuracies=[make_accuracy(rmse_ratio=ratio)]))

    (one,) = seen(store, AlertPlan(parse_rules(rule)))

    assert "the error has grown by more than 50%" in one.message.title
    assert seen(store, AlertPlan(parse_rules(rule.replace("quick", "decode")))) == []


# --- from conditions to alerts

HOUR = timedelta(hours=1)
ESCALATING = parse_rules(
    """
    [channels]
    chat = { kind = "apprise", url_env = "CHAT" }
    lead = { kind = "email", url_env = "LEAD" }
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


class Course:
    """The alerts of a project over hours."""

    def __init__(self, rules: AlertRules = ESCALATING) -> None:
        self.rules = rules
        self.alerts: dict[tuple[str, str], Alert] = {}

    def at(self, hours: float, *conditions: AlertCondition, ending: str | None = None) -> list[str]:
        """What is told, as `event channel cause`."""
        endings = {} if ending is None else {"one": ending}
        now = NOON + hours * HOUR
        steps = next_steps(PROJECT, list(self.alerts.values()), conditions, rules=self.rules, endings=endings, now=now)
        for step in steps:
            self.alerts[step.alert.rule, step.alert.cause] = step.alert
        return [f"{one.event} {one.channel} {step.alert.cause}" for step in steps for one in step.notifications]

    @property
    def one(self) -> Alert:
        return self.alerts["slower", "one"]


def test_an_alert_is_told_once_however_often_it_is_seen() -> None:
    course = Course()

    assert course.at(0, condition()) == ["fired chat one"]
    assert course.at(1, condition()) == []


def test_each_cause_is_an_alert_of_its_own() -> None:
    assert Course().at(0, condition("one"), condition("two")) == ["fired chat one", "fired chat two"]


def test_what_nobody_acknowledges_in_time_is_escalated_once() -> None:
    course = Course()
    course.at(0, condition())

    assert course.at(3.9, condition()) == []
    assert course.at(4, condition()) == ["escalated lead one"]
    assert course.at(9, condition()) == []


def test_what_is_acknowledged_is_not_escalated() -> None:
    course = Course()
    course.at(0, condition())

    assert course.at(5, condition(is_acknowledged=True)) == []
    assert course.one.state is AlertState.ACKNOWLEDGED


def test_that_it_is_over_is_told_to_all_who_were_told_with_the_reason() -> None:
    course = Course()
    course.at(0, condition())
    course.at(4, condition())

    assert course.at(5, ending="back where it was at abc") == ["resolved chat one", "resolved lead one"]
    assert course.one.state is AlertState.RESOLVED
    assert course.one.message.facts[0].text == "back where it was at abc"
    assert course.at(6) == []


def test_one_that_comes_and_goes_is_told_again_only_after_the_cool_down() -> None:
    course = Course()
    course.at(0, condition())
    course.at(1)

    assert course.at(2, condition()) == []
    assert course.at(3) == [], "nobody knows that it fired again, so nobody is told that it is over"
    assert course.at(10, condition()) == []
    assert course.at(24, condition()) == ["fired chat one"]
    assert course.one.episode == 3


def test_what_lies_too_far_back_begins_nothing_and_ends_nothing() -> None:
    course = Course()

    assert course.at(0, condition(is_past=True)) == []
    course.at(1, condition())
    assert course.at(2, condition(is_past=True)) == []
    assert course.one.state is AlertState.FIRING


def test_an_alert_whose_rule_is_gone_ends_in_silence() -> None:
    course = Course()
    course.at(0, condition())
    course.rules = AlertRules()

    assert course.at(1) == []
    assert course.one.state is AlertState.RESOLVED
