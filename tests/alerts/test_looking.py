"""What the rules see of a store: the default branch, in no quarantine, with whose it is."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.looking import AlertPlan, look
from roofwatch.ci.alerts.rules import parse_rules
from roofwatch.ci.report.codeowners import parse_codeowners
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.alerts.values import Firing
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


def seen(engine: Engine, plan: AlertPlan = PLAN, project: str = PROJECT) -> list[Firing]:
    with Session(engine) as session:
        return list(look(session, project, plan, NOON + timedelta(days=1)).firings)


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
