"""What people note about a regression: assignee, issue, snooze; and undo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.access import list_entries
from roofwatch.db.agenda import finish_job, list_jobs, take_job
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.deciding import (
    DecisionKind,
    TriageDecision,
    apply_decision,
    find_all_regressions,
    find_regressions,
)
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.model.agenda import JobKind, PlannedJob
from roofwatch.model.triage import TriagedRegression, TriageState
from tests.builders import PROJECT, make_environment, make_record, make_regression, sha_of

ME = Signature(person="me@example.com", actor="git:me@example.com")


@pytest.fixture
def history(store: Engine) -> Engine:
    for number in (0, 1):
        ingest_record(store, make_record(number))
    replace_regressions(store, PROJECT, [make_regression()])
    return store


def read(engine: Engine) -> TriagedRegression:
    with Session(engine) as session:
        (triaged,) = list_triaged(session, PROJECT)
    return triaged


def decide(engine: Engine, kind: DecisionKind, value: str = "", reason: str = "") -> str:
    about = read(engine)
    decision = TriageDecision(kind=kind, value=value, reason=reason)
    with Session(engine) as session, session.begin():
        return apply_decision(session, PROJECT, about, decision, ME)


def assign_with_issue(history: Engine) -> None:
    decide(history, DecisionKind.ASSIGN, "wen@example.com")
    decide(history, DecisionKind.ISSUE, "https://example.com/issues/7")


def test_decisions_of_two_kinds_are_kept(history: Engine) -> None:
    assign_with_issue(history)

    triage = read(history).triage
    assert (triage.assignee, triage.issue_url) == (
        "wen@example.com",
        "https://example.com/issues/7",
    )


def test_decisions_are_undone_one_by_one(history: Engine) -> None:
    assign_with_issue(history)

    assert "issue" in decide(history, DecisionKind.UNDO)

    triage = read(history).triage
    assert (triage.assignee, triage.issue_url) == ("wen@example.com", None)


def test_a_state_is_undone(history: Engine) -> None:
    decide(history, DecisionKind.EXPECTED, reason="trade-off")
    assert read(history).triage.state is TriageState.EXPECTED

    decide(history, DecisionKind.UNDO)

    assert read(history).triage.state is TriageState.NEW


def test_the_trail_keeps_what_was_undone(history: Engine) -> None:
    decide(history, DecisionKind.EXPECTED, reason="trade-off")
    decide(history, DecisionKind.UNDO)

    with Session(history) as session:
        entries = list_entries(session, PROJECT, subject=read(history).regression_id)
    assert [(entry.before, entry.after, entry.person) for entry in entries] == [
        ("expected", "new", ME.person),
        ("new", "expected", ME.person),
    ]


def test_nothing_decided_is_nothing_to_undo(history: Engine) -> None:
    with pytest.raises(StoreError, match="nothing was decided"):
        decide(history, DecisionKind.UNDO)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (DecisionKind.NOT_REAL, "", "reason is required"),
        (DecisionKind.ISSUE, "javascript:alert(1)", "https://"),
        (DecisionKind.SNOOZE, "soon", "7d"),
    ],
)
def test_an_incomplete_decision_is_refused(
    history: Engine, kind: DecisionKind, value: str, message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        decide(history, kind, value)


def test_a_snooze_ends_at_its_time(history: Engine) -> None:
    decide(history, DecisionKind.SNOOZE, "7d")
    assert read(history).is_snoozed
    past = datetime.now(UTC) - timedelta(minutes=1)
    decide(history, DecisionKind.SNOOZE, past.isoformat())
    assert not read(history).is_snoozed


def test_a_snooze_ends_when_its_commit_is_measured(history: Engine) -> None:
    decide(history, DecisionKind.SNOOZE, sha_of(2)[:10])
    assert read(history).is_snoozed
    ingest_record(history, make_record(2))
    assert not read(history).is_snoozed


def test_a_confirmation_stays_the_first_job(history: Engine) -> None:
    runner_class = make_environment().runner_class
    assert runner_class in decide(history, DecisionKind.CONFIRM)
    with Session(history) as session:
        (asked,) = list_jobs(session, PROJECT)
    assert (asked.kind, asked.base_sha, asked.head_sha) == (
        JobKind.CONFIRM,
        sha_of(0),
        sha_of(1),
    )
    assert asked.is_requested
    newest = PlannedJob(
        key="new",
        kind=JobKind.NEW,
        reason="the newest commit",
        expected_s=60,
        base_sha=None,
        head_sha=sha_of(1),
    )
    runner = uuid4()
    plan = [newest, asked]
    assert take_job(history, PROJECT, runner_class, plan, runner) == asked.key
    assert finish_job(history, PROJECT, runner_class, asked.key, runner, 5.0)


def test_a_plan_without_it_does_not_drop_what_was_asked_for(history: Engine) -> None:
    decide(history, DecisionKind.CONFIRM)
    take_job(history, PROJECT, make_environment().runner_class, [], uuid4())
    with Session(history) as session:
        assert [job.is_requested for job in list_jobs(session, PROJECT)] == [True]


def test_a_regression_is_found_by_its_id(history: Engine) -> None:
    stored = [read(history)]
    assert find_regressions(stored, stored[0].regression_id[:8]) == stored
    with pytest.raises(StoreError, match="no regression"):
        find_regressions(stored, str(UUID(int=7)))


def test_regressions_of_a_commit_are_found_by_its_sha(history: Engine) -> None:
    stored = [read(history)]
    assert find_regressions(stored, sha_of(1)[:9]) == stored


def test_several_names_find_each_regression_once(history: Engine) -> None:
    replace_regressions(history, PROJECT, [make_regression(), make_regression(kernel="softmax")])
    with Session(history) as session:
        stored = list_triaged(session, PROJECT)
    names = [stored[0].regression_id[:12], sha_of(1)[:9]]
    assert find_all_regressions(stored, names) == stored
    with pytest.raises(StoreError, match="an empty name"):
        find_all_regressions(stored, ["", *names])
