"""How an alert goes on: told once, cooled down, escalated, resolved, and back again."""

from datetime import timedelta

from roofwatch.ci.alerts.rules import AlertRules, parse_rules
from roofwatch.ci.alerts.steps import next_steps
from roofwatch.db.alerts.values import Alert, AlertState, AlertStep, Firing, Message, Severity
from tests.builders import NOON, PROJECT

HOUR = timedelta(hours=1)
RULES = parse_rules(
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


def firing(cause: str = "one", **fields: object) -> Firing:
    message = Message(title=f"{cause} is slower")
    return Firing(rule="slower", cause=cause, severity=Severity.WARNING, message=message, **fields)  # type: ignore[arg-type]  # fields of a firing


class Course:
    """The alerts of a project over hours."""

    def __init__(self, rules: AlertRules = RULES) -> None:
        self.rules = rules
        self.alerts: dict[tuple[str, str], Alert] = {}

    def at(self, hours: float, *firings: Firing, ending: str | None = None) -> list[str]:
        """What is told, as `event channel cause`."""
        endings = {} if ending is None else {"one": ending}
        now = NOON + hours * HOUR
        steps = next_steps(PROJECT, list(self.alerts.values()), firings, rules=self.rules, endings=endings, now=now)
        for step in steps:
            self.alerts[step.alert.rule, step.alert.cause] = step.alert
        return [self._words(step, position) for step in steps for position in range(len(step.tellings))]

    @staticmethod
    def _words(step: AlertStep, position: int) -> str:
        telling = step.tellings[position]
        return f"{telling.event} {telling.channel} {step.alert.cause}"

    @property
    def one(self) -> Alert:
        return self.alerts["slower", "one"]


def test_an_alert_is_told_once_however_often_it_is_seen() -> None:
    course = Course()

    assert course.at(0, firing()) == ["fired chat one"]
    assert course.at(1, firing()) == []


def test_each_cause_is_an_alert_of_its_own() -> None:
    assert Course().at(0, firing("one"), firing("two")) == ["fired chat one", "fired chat two"]


def test_what_nobody_acknowledges_in_time_is_escalated_once() -> None:
    course = Course()
    course.at(0, firing())

    assert course.at(3.9, firing()) == []
    assert course.at(4, firing()) == ["escalated lead one"]
    assert course.at(9, firing()) == []


def test_what_is_acknowledged_is_not_escalated() -> None:
    course = Course()
    course.at(0, firing())

    assert course.at(5, firing(is_acknowledged=True)) == []
    assert course.one.state is AlertState.ACKNOWLEDGED


def test_that_it_is_over_is_told_to_all_who_were_told_with_the_reason() -> None:
    course = Course()
    course.at(0, firing())
    course.at(4, firing())

    assert course.at(5, ending="back where it was at abc") == ["resolved chat one", "resolved lead one"]
    assert course.one.state is AlertState.RESOLVED
    assert course.one.message.facts[0].text == "back where it was at abc"
    assert course.at(6) == []


def test_one_that_comes_and_goes_is_told_again_only_after_the_cool_down() -> None:
    course = Course()
    course.at(0, firing())
    course.at(1)

    assert course.at(2, firing()) == []
    assert course.at(3) == [], "nobody knows that it fired again, so nobody is told that it is over"
    assert course.at(10, firing()) == []
    assert course.at(24, firing()) == ["fired chat one"]
    assert course.one.episode == 3


def test_what_lies_too_far_back_begins_nothing_and_ends_nothing() -> None:
    course = Course()

    assert course.at(0, firing(is_past=True)) == []
    course.at(1, firing())
    assert course.at(2, firing(is_past=True)) == []
    assert course.one.state is AlertState.FIRING


def test_an_alert_whose_rule_is_gone_ends_in_silence() -> None:
    course = Course()
    course.at(0, firing())
    course.rules = AlertRules()

    assert course.at(1) == []
    assert course.one.state is AlertState.RESOLVED
