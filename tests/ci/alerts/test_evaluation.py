"""Evaluation of rules on a store, and the life of an alert."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.evaluation import (
    AlertSetup,
    raise_alerts,
    read_state,
    replay,
)
from roofwatch.ci.alerts.kinds import conditions_at
from roofwatch.ci.alerts.lifecycle import next_steps
from roofwatch.ci.alerts.ownership import parse_codeowners
from roofwatch.ci.alerts.rules_file import AlertRules, parse_rules
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import quarantine_name
from roofwatch.db.regressions.alerts import acknowledge, list_alerts, list_deliveries
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.alert import Alert, AlertCondition, AlertState, Delivery, Message, Severity
from roofwatch.model.metrics import Better
from roofwatch.model.source_line import SourceLine
from tests.builders import (
    NOON,
    PROJECT,
    make_accuracy,
    make_case,
    make_change_point,
    make_commit,
    make_imported,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
)
from tests.databases import ingest_all

RULES = """
[channels]
chat = { kind = "apprise", url_env = "CHAT" }
[[rules]]
name = "rule"
channels = ["chat"]
runs = 1
kind = "%s"
"""
DAY_LATER = NOON + timedelta(days=1)
OBJECTIVE = RULES % "throughput" + 'metric = "utilisation"\nat_least = "40%"\n'
PLAN = AlertSetup(parse_rules(OBJECTIVE), parse_codeowners("/kernels/ @example/kernels"))


def seen(engine: Engine, setup: AlertSetup = PLAN) -> list[AlertCondition]:
    with Session(engine) as session:
        state = read_state(session, PROJECT, setup)
        return [one for rule in setup.rules.rules for one in conditions_at(rule, state, DAY_LATER)]


@pytest.fixture
def history(store: Engine) -> Engine:
    """Three commits at a utilisation of one half."""
    for number in range(3):
        ingest_record(store, make_record(number))
    return store


def ingest_low_run(history: Engine) -> None:
    """Store a newest run with a low utilisation, and the source file of its kernel."""
    line = SourceLine(
        kernel="rms_norm", implementation="torch", function="f", file="kernels/rms_norm.py", line=3
    )
    low = make_measurement(utilisation=0.1)
    ingest_record(history, make_record(3, measurements=[low], source_lines=(line,)))


def test_the_newest_run_of_the_default_branch_counts(history: Engine) -> None:
    ingest_low_run(history)

    (condition,) = seen(history)

    assert condition.message.title.startswith(
        "rms_norm: utilisation of the roof below 40.0%: 10.0%, in 1 case on "
    )


def test_the_source_file_of_the_newest_run_gives_the_owner(history: Engine) -> None:
    ingest_low_run(history)

    (condition,) = seen(history)

    assert condition.message.owners == ("@example/kernels",)


@pytest.mark.parametrize("fields", [{"branch": "topic"}, {"is_dirty": True}])
def test_only_commits_of_the_default_branch_raise_an_alert(
    history: Engine, fields: dict[str, object]
) -> None:
    commit = make_commit(3, **fields)
    ingest_record(
        history, make_record(3, commit=commit, measurements=[make_measurement(utilisation=0.1)])
    )

    assert seen(history) == []


def test_quarantined_records_raise_no_alert(history: Engine) -> None:
    low = make_record(3, measurements=[make_measurement(utilisation=0.1)])
    ingest_record(history, low, is_quarantined=True)

    assert seen(history) == []
    assert quarantine_name(PROJECT) != PROJECT


RULE_OF_ERRORS = (
    RULES.replace("runs = 1", 'runs = 1\ntags = ["quick"]') % "level"
    + 'metric = "rmse_ratio"\ngrows_by = "50%"\n'
)


def ingest_growing_errors(store: Engine) -> None:
    case = make_case(tags=("quick",))
    for number, ratio in enumerate([1e-7, 1e-7, 1.1e-7, 3e-7]):
        record = make_record(
            number,
            cases=[case],
            measurements=[make_measurement()],
            accuracies=[make_accuracy(rmse_ratio=ratio)],
        )
        ingest_record(store, record)


def test_errors_are_read_from_the_records(store: Engine) -> None:
    ingest_growing_errors(store)

    (condition,) = seen(store, AlertSetup(parse_rules(RULE_OF_ERRORS)))

    assert "error (RMSE / RMS) grew 200.0%" in condition.message.title


def test_tags_are_read_from_the_records(store: Engine) -> None:
    ingest_growing_errors(store)
    rule_of_other_tag = RULE_OF_ERRORS.replace("quick", "decode")

    assert len(seen(store, AlertSetup(parse_rules(RULE_OF_ERRORS)))) == 1
    assert seen(store, AlertSetup(parse_rules(rule_of_other_tag))) == []


def test_a_rule_judges_an_imported_metric(store: Engine) -> None:
    key = "throughput (tokens/s, higher)"
    rules = parse_rules(RULES % "throughput" + f'metric = "{key}"\ndrops_by = "5%"\n')
    for number, value in enumerate([600.0, 600.0, 500.0]):
        imported = make_imported(
            metric="throughput",
            statistic="value",
            unit="tokens/s",
            better=Better.HIGHER,
            value=value,
            low=None,
            high=None,
        )
        ingest_record(
            store, make_record(number, imported=(imported,), cases=(make_case(),), measurements=())
        )

    (one,) = seen(store, AlertSetup(rules))

    assert "throughput fell 16.7%, 600 tokens/s to 500 tokens/s" in one.message.title


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
    [[rules]]
    name = "much slower"
    kind = "regression"
    channels = ["chat"]
    """
)


def condition(
    cause: str = "one",
    rule: str = "slower",
    severity: Severity = Severity.WARNING,
    **fields: object,
) -> Any:
    return AlertCondition(rule, cause, severity, Message(title=f"{cause} is slower"), **fields)  # type: ignore[arg-type]


ONE, TWO, FIRED = condition(), condition("two"), ["fired chat one"]
Timeline = list[tuple[float, list[AlertCondition], list[str]]]


@pytest.mark.parametrize(
    "timeline",
    [
        # an alert is notified once, and each cause is an alert
        [(0, [ONE], FIRED), (1, [ONE, TWO], ["fired chat two"]), (2, [ONE, TWO], [])],
        # it is escalated once if nobody acknowledges it, and its end is notified to all
        [(0, [ONE], FIRED), (3.9, [ONE], []), (4, [ONE], ["escalated lead one"]), (9, [ONE], [])],
        [
            (0, [ONE], FIRED),
            (4, [ONE], ["escalated lead one"]),
            (5, [], ["resolved chat one", "resolved lead one"]),
        ],
        [
            (0, [ONE], FIRED),
            (5, [condition(is_acknowledged=True)], []),
            (6, [], ["resolved chat one"]),
            (7, [], []),
        ],
        # one that comes and goes is notified again only after the cool-down, and so is its end
        [
            (0, [ONE], FIRED),
            (1, [], ["resolved chat one"]),
            (2, [ONE], []),
            (3, [], []),
            (10, [ONE], []),
            (24, [ONE], FIRED),
        ],
        # somebody is reminded of one that fires for long, unless it is acknowledged
        [
            (0, [ONE], FIRED),
            (167, [ONE], ["escalated lead one"]),
            (168, [ONE], ["reminded chat one"]),
            (169, [ONE], []),
        ],
        [(0, [ONE], FIRED), (1, [condition(is_acknowledged=True)], []), (500, [ONE], [])],
        # a more severe rule tells it again
        [
            (0, [ONE], FIRED),
            (
                1,
                [ONE, condition(rule="much slower", severity=Severity.CRITICAL)],
                ["reminded chat one"],
            ),
        ],
        # whichever rules report it
        [(0, [ONE, condition(rule="much slower")], FIRED)],
        # what lies too far back begins nothing and ends nothing
        [(0, [condition(is_past=True)], []), (1, [ONE], FIRED), (2, [condition(is_past=True)], [])],
    ],
)
def test_an_alert_follows_its_condition(timeline: Timeline) -> None:
    alerts: dict[str, Alert] = {}
    for hours, conditions, expected in timeline:
        assert [
            f"{one.event} {one.channel} {cause}" for cause, one in step(alerts, hours, conditions)
        ] == expected


def test_a_resolution_has_its_reason() -> None:
    alerts: dict[str, Alert] = {}
    step(alerts, 0, [ONE, condition("three", regression_id=UUID(int=1))])

    step(alerts, 1, [], endings={"one": "back where it was at abc"})

    assert alerts["one"].message.facts[0].text == "back where it was at abc"
    assert alerts["three"].message.facts[0].text == "the newer results no longer show it"


def test_an_alert_of_a_removed_rule_resolves_silently() -> None:
    alerts: dict[str, Alert] = {}
    step(alerts, 0, [TWO])

    notified = step(alerts, 1, [], rules=AlertRules())

    assert notified == []
    assert alerts["two"].state is AlertState.RESOLVED


RENAMED = AlertRules.model_validate(
    {
        "channels": ESCALATING.channels,
        "rules": [{"name": "renamed", "kind": "regression", "channels": ["chat"]}],
    }
)


def test_a_renamed_rule_tells_nothing_anew() -> None:
    alerts: dict[str, Alert] = {}
    step(alerts, 0, [ONE])

    assert step(alerts, 1, [condition(rule="renamed")], rules=RENAMED) == []


def test_a_renamed_rule_ends_what_it_told_by_its_old_name() -> None:
    alerts: dict[str, Alert] = {}
    step(alerts, 0, [ONE])
    step(alerts, 1, [condition(rule="renamed")], rules=RENAMED)

    ended = step(alerts, 2, [], rules=RENAMED)

    assert [f"{delivery.event} {delivery.channel}" for _, delivery in ended] == ["resolved chat"]


def test_a_rule_is_replayed_day_by_day(store: Engine) -> None:
    """The utilisation was low on two days, apart from each other."""
    for number, value in enumerate([0.5, 0.1, 0.5, 0.5, 0.1, 0.5]):
        commit = make_commit(number, committed_at=NOON + number * timedelta(days=1))
        measured = make_measurement(utilisation=value)
        ingest_record(store, make_record(number, commit=commit, measurements=[measured]))
    now = NOON + timedelta(days=6)

    with Session(store) as session:
        told = replay(PLAN.rules.rules[0], read_state(session, PROJECT, PLAN), now)

    assert [at for at, _ in told] == [NOON + timedelta(days=2), NOON + timedelta(days=5)]


def test_a_rule_compares_with_the_run_of_a_tag(store: Engine) -> None:
    rules = parse_rules(
        RULES % "throughput" + 'metric = "flop_per_s"\ndrops_by = "5%"\nagainst = "v1.0"\n'
    )
    for number, time_ns in enumerate([10_000.0, 12_000.0, 12_000.0]):
        commit = make_commit(number, tags=("v1.0",) if number == 0 else ())
        ingest_record(
            store,
            make_record(number, commit=commit, measurements=[make_measurement(median_ns=time_ns)]),
        )

    (one,) = seen(store, AlertSetup(rules))

    assert (one.message.base_sha, one.message.head_sha) == (make_commit(0).sha, make_commit(2).sha)
    assert raise_alerts(store, AlertSetup(rules), DAY_LATER)[0].alert.rules == ("rule",)


def step(
    alerts: dict[str, Alert],
    hours: float,
    conditions: list[AlertCondition],
    rules: AlertRules = ESCALATING,
    endings: dict[str, str] | None = None,
) -> list[tuple[str, Delivery]]:
    """The messages after some hours, with their causes."""
    known, now = list(alerts.values()), NOON + hours * HOUR
    steps = next_steps(PROJECT, known, conditions, rules=rules, endings=endings or {}, now=now)
    alerts |= {one.alert.cause: one.alert for one in steps}
    return [(one.alert.cause, delivery) for one in steps for delivery in one.deliveries]


def test_the_regressions_of_one_commit_are_one_message_in_the_outbox(store: Engine) -> None:
    rules = parse_rules(RULES.replace("runs = 1", "") % "regression")
    ingest_all(store, *map(make_record, range(3)))
    regressions = [
        make_regression(
            1,
            kernel=kernel,
            is_confirmed=True,
            is_alert=True,
            summary=f"{kernel} became slower",
            change_points=(
                make_change_point(1, series=make_series_key(case_id=f"{kernel}/n=1/float32/fwd")),
            ),
        )
        for kernel in ("rms_norm", "softmax", "swiglu")
    ]
    replace_regressions(store, PROJECT, regressions)

    raise_alerts(store, AlertSetup(rules), DAY_LATER)

    with Session(store) as session:
        alerts, deliveries = list_alerts(session), list_deliveries(session)
        (delivery,) = deliveries
    assert len(alerts) == 3
    assert delivery.alert.message.title.startswith("3 kernels together, the worst: ")
    assert set(delivery.alert.message.kernels) == {"rms_norm", "softmax", "swiglu"}
    acknowledged = acknowledge(
        store, delivery.alert.alert_id, person="A", reason="b", actor="c", now=DAY_LATER
    )
    with Session(store) as session:
        states = {alert.state for alert in list_alerts(session)}
    assert (acknowledged.state, states) == (AlertState.ACKNOWLEDGED, {AlertState.ACKNOWLEDGED})
