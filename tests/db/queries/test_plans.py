"""No question that a page, the API or a judgement asks reads a large table from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.evaluation import AlertSetup, read_state
from roofwatch.ci.alerts.kinds import conditions_at
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.db.access import list_entries
from roofwatch.db.bisections import read_bisection, read_newest_bisection
from roofwatch.db.ingest.artefacts import list_artefacts
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.quarantine import release_run
from roofwatch.db.projects import delete_project
from roofwatch.db.queries.columns import (
    count_analysed_runs,
    list_case_names,
    read_error_columns,
    read_time_columns,
)
from roofwatch.db.queries.comparing import (
    find_runs_to_compare,
    read_case_of_both,
    read_case_of_runs,
    read_kernel_of_run,
    read_runs,
    read_runs_by_runner,
    read_runs_on,
    resolve_revisions,
)
from roofwatch.db.queries.evidence import list_changed_code, list_failed_checks
from roofwatch.db.queries.fleet import (
    list_case_costs,
    list_fleet_runs,
    list_kernel_costs,
    read_run_energies,
)
from roofwatch.db.queries.pairs import list_newest_calibrations, list_pairs
from roofwatch.db.queries.project import list_commits, list_projects, read_filter_options
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.roof import list_roof_cells
from roofwatch.db.queries.runners import list_runner_coverage, read_recent_runs
from roofwatch.db.queries.runs import list_runs, read_run_detail
from roofwatch.db.queries.series import count_series_runs, read_case_history, read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from roofwatch.db.regressions.alerts import claim_next, list_alerts, list_deliveries
from roofwatch.db.regressions.branch_line import note_unreachable
from roofwatch.db.regressions.judgements import list_triaged, read_run_state
from roofwatch.model.alert import AlertState, DeliveryState
from roofwatch.model.history import SeriesKey
from roofwatch.model.triage import TriageState
from tests.builders import NOON
from tests.databases import Databases
from tests.db.made_up_store import Shape, fill, settle
from tests.db.queries.made_up_results import fill_checks, fill_evidence
from tests.db.queries.test_records import full_record

SHAPE = Shape("planned", run_count=60, series_count=100, day_count=50)
OTHERS = range(1, 5)
PROJECT = SHAPE.project(0)
KEY = SeriesKey(PROJECT, SHAPE.case_id(7), "triton", "median_ns", runner_class="made up")


@pytest.fixture(scope="module")
def populated(databases: Databases) -> Iterator[Engine]:
    """One project among several, with figures about all tables."""
    with databases.store() as engine:
        for pair in (0, *OTHERS):
            fill(engine, SHAPE, pair)
            fill_checks(engine, SHAPE, pair)
            fill_evidence(engine, SHAPE, pair)
        settle(engine)
        yield engine


def run_of(session: Session) -> tuple[str, str]:
    """Id and sha of one run."""
    run = list_runs(session, PROJECT, limit=3)[2]
    return run.run_id, run.commit.sha


GROWING = {
    "run",
    "commit",
    "case",
    "case_version",
    "series",
    "static_fact",
    "regression",
    "triage",
    "audit_entry",
    "alert",
    "delivery",
    "artefact_content",
    "artefact_chunk",
    "run_artefact",
}
"""Tables that grow with every run, commit, decision or message; they are small here."""
RESULTS = {
    "measurement",
    "sample_set",
    "accuracy",
    "tensor_error",
    "compilation",
    "case_document",
    "imported",
}
RULES = """
[channels]
chat = { kind = "apprise", url_env = "CHAT" }
[[rules]]
name = "slower"
kind = "regression"
channels = ["chat"]
[[rules]]
name = "wasteful"
kind = "level"
metric = "utilisation"
runs = 3
at_least = "40%"
channels = ["chat"]
[[rules]]
name = "less accurate"
kind = "level"
metric = "rmse_ratio"
runs = 3
grows_by = "50%"
channels = ["chat"]
[[rules]]
name = "silent"
kind = "silence"
channels = ["chat"]
"""


def _report(session: Session) -> object:
    rules = parse_rules(RULES)
    state = read_state(session, PROJECT, AlertSetup(rules))
    newest = max((run.started_at for own in state.runs.values() for run in own), default=NOON)
    return [conditions_at(rule, state, newest) for rule in rules.rules]


QUESTIONS: dict[str, Callable[[Session], object]] = {
    "list_projects": list_projects,
    "list_commits": lambda session: list_commits(session, PROJECT),
    "list_runs": lambda session: list_runs(session, PROJECT),
    "read_runs_by_runner": lambda session: read_runs_by_runner(
        session, PROJECT, *[run_of(session)[1]] * 2
    ),
    "read_runs_on": lambda session: read_runs_on(
        session, PROJECT, *[run_of(session)[1]] * 2, *[KEY.runner_class] * 2
    ),
    "read_case_of_both": lambda session: read_case_of_both(
        session,
        PROJECT,
        run_of(session)[1],
        run_of(session)[1],
        KEY.case_id,
        runner_class=KEY.runner_class,
    ),
    "read_run_detail": lambda session: read_run_detail(session, _run_id(session)),
    "load_record": lambda session: load_record(session, _run_id(session)),
    "list_series_keys": lambda session: list_series_keys(session, PROJECT, metric="median_ns"),
    "list_series_keys of a kernel": lambda session: list_series_keys(
        session, PROJECT, kernel=KEY.kernel
    ),
    "read_series of a key": lambda session: read_series(session, PROJECT, keys=[KEY]),
    "read_series of a kernel": lambda session: read_series(
        session, PROJECT, list_series_keys(session, PROJECT, kernel=KEY.kernel)
    ),
    "read_series of a time": lambda session: read_series(
        session, PROJECT, keys=[KEY], since=NOON, until=NOON
    ),
    "count_series_runs": lambda session: count_series_runs(
        session, PROJECT, since=NOON, until=NOON
    ),
    "read_series with conditions": lambda session: read_series(
        session,
        PROJECT,
        list_series_keys(session, PROJECT, cases=[KEY.case_id], include_pairs=True),
        include_pairs=True,
        include_conditions=True,
    ),
    "read_trend of two metrics": lambda session: read_trend(
        session,
        TrendQuestion(PROJECT, (KEY, replace(KEY, metric="utilisation")), since=NOON),
    ),
    "list_roof_cells": lambda session: list_roof_cells(session, PROJECT),
    "list_pairs": lambda session: list_pairs(session, PROJECT),
    "list_newest_calibrations": lambda session: list_newest_calibrations(
        session, PROJECT, _run_id(session)
    ),
    "read_filter_options": lambda session: read_filter_options(session, PROJECT),
    "list_triaged": lambda session: list_triaged(session, PROJECT),
    "list_triaged of a state": lambda session: list_triaged(
        session, PROJECT, triage=TriageState.NEW
    ),
    "list_entries": lambda session: list_entries(session, PROJECT),
    "list_runner_coverage": lambda session: list_runner_coverage(session, PROJECT),
    "read_recent_runs": lambda session: read_recent_runs(session, PROJECT, limit=5),
    "list_fleet_runs": lambda session: list_fleet_runs(session, PROJECT, limit=20),
    "list_fleet_runs of a branch and of each class": lambda session: list_fleet_runs(
        session,
        PROJECT,
        limit=20,
        runner_classes=("made up",),
        branches=("main",),
        of_each_class=True,
        with_quarantine=True,
    ),
    "list_kernel_costs of some cases": lambda session: list_kernel_costs(
        session, (_run_id(session),), case_ids=frozenset(SHAPE.case_id(at) for at in range(50))
    ),
    "list_case_costs of some cases": lambda session: list_case_costs(
        session,
        (_run_id(session),),
        limit=20,
        case_ids=frozenset(SHAPE.case_id(at) for at in range(50)),
    ),
    "list_runner_coverage of a branch": lambda session: list_runner_coverage(
        session, PROJECT, branches=("main",)
    ),
    "read_run_energies": lambda session: read_run_energies(session, (_run_id(session),)),
    "list_kernel_costs": lambda session: list_kernel_costs(session, (_run_id(session),)),
    "list_case_costs": lambda session: list_case_costs(session, (_run_id(session),), limit=20),
    "read_case_history": lambda session: read_case_history(session, PROJECT, KEY.case_id),
    "list_artefacts": lambda session: list_artefacts(session, _run_id(session)),
    "read_bisection": lambda session: read_bisection(session, _run_id(session)),
    "read_newest_bisection": lambda session: read_newest_bisection(session, _run_id(session)),
    "look for alerts": lambda session: _report(session),
    "find_runs_to_compare": lambda session: find_runs_to_compare(
        session, PROJECT, *[run_of(session)[1]] * 2
    ),
    "resolve_revisions": lambda session: resolve_revisions(
        session, PROJECT, *[run_of(session)[1][:12]] * 2
    ),
    "read_runs": lambda session: read_runs(session, *[_run_id(session)] * 2),
    "read_case_of_runs": lambda session: read_case_of_runs(
        session, _run_id(session), _run_id(session), KEY.case_id
    ),
    "read_kernel_of_run": lambda session: read_kernel_of_run(session, _run_id(session), KEY.kernel),
    "list_alerts": lambda session: list_alerts(session, PROJECT, [AlertState.FIRING]),
    "list_deliveries": lambda session: list_deliveries(session),
    "list_deliveries of a project": lambda session: list_deliveries(session, PROJECT),
    "list_deliveries that wait": lambda session: list_deliveries(
        session, states=[DeliveryState.WAITING]
    ),
    "claim_next": lambda session: _claim(session),
    "read_run_state": lambda session: read_run_state(session, _run_id(session)),
    "read_time_columns": lambda session: list(
        read_time_columns(session, PROJECT, _some_cases(session))
    ),
    "list_failed_checks": lambda session: list_failed_checks(
        session, PROJECT, _some_cases(session)
    ),
    "list_changed_code": lambda session: list_changed_code(session, PROJECT, _some_cases(session)),
    "read_error_columns": lambda session: list(
        read_error_columns(session, PROJECT, _some_cases(session))
    ),
    "note_unreachable": lambda session: note_unreachable(session.get_bind(), PROJECT),  # type: ignore[arg-type]
    "count_analysed_runs": lambda session: count_analysed_runs(session, PROJECT),
}


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_large_table_is_read_from_end_to_end(populated: Engine, question: str) -> None:
    with Session(populated) as session, plans_of(populated) as plans:
        QUESTIONS[question](session)

    assert plans
    assert [plan for plan in plans if plan != "by index"] == []


def test_a_project_that_goes_does_not_read_large_tables_either(populated: Engine) -> None:
    with populated.connect() as connection:
        number = connection.execute(text("SELECT number FROM run LIMIT 1")).scalar_one()
        for table in RESULTS:
            assert (
                scanned(connection, f"DELETE FROM {table} WHERE run_number = {number}") == set()
            ), table
    delete_project(populated, SHAPE.project(OTHERS[-1]))


def test_no_change_of_a_run_reads_large_tables(
    populated: Engine,
) -> None:
    new = full_record().model_copy(update={"project": PROJECT})
    other, quarantined = (new.model_copy(update={"run_id": uuid4()}) for _ in range(2))
    with plans_of(populated) as plans:
        # the second is known, and the third finds all that runs share
        stored = [ingest_record(populated, record).was_new for record in (new, new, other)]
        ingest_record(populated, quarantined, is_quarantined=True)
        release_run(
            populated, quarantined.run_id, actor="test", person="Example Engineer", reason="because"
        )
        changed = other.model_copy(update={"preset": "gate"})
        replaced = ingest_record(populated, changed, replaces=True)

    assert (stored, replaced.was_replaced) == ([True, False, True], True)
    assert len(plans) > 30
    assert [plan for plan in plans if plan != "by index"] == []


def test_a_plan_that_reads_a_table_from_end_to_end_is_seen(populated: Engine) -> None:
    with populated.connect() as connection:
        assert scanned(connection, "SELECT max(median_ns) FROM measurement") == {"measurement"}
    for table, column in (
        ("static_fact", "registers"),
        ("delivery", "error"),
        ("commit", "author"),
    ):
        with plans_of(populated) as plans, populated.connect() as connection:
            connection.execute(text(f'SELECT {column} FROM "{table}" ORDER BY {column}'))
        assert [plan.partition(":")[0] for plan in plans] == [f"end to end ['{table}']"]


_known_plans: dict[tuple[str, str], str] = {}


@contextmanager
def plans_of(engine: Engine) -> Iterator[list[str]]:
    """List what each statement would read, before it is executed."""
    plans: list[str] = []

    def note(
        _: Connection, cursor: Any, statement: str, parameters: Any, __: Any, executemany: bool
    ) -> None:
        if statement.startswith("EXPLAIN"):
            return
        asked = (statement, repr(parameters))  # many questions look up their project or run first
        if asked not in _known_plans:
            with psycopg.ClientCursor(cursor.connection) as explaining:
                _known_plans[asked] = _explain(
                    explaining, statement, parameters[0] if executemany else parameters
                )
        plans.append(_known_plans[asked])

    event.listen(engine, "before_cursor_execute", note)
    yield plans
    event.remove(engine, "before_cursor_execute", note)


def _explain(cursor: psycopg.ClientCursor[Any], statement: str, parameters: Any) -> str:
    def scans() -> set[str]:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), parameters)
        return _scans(cursor.fetchall()[0][0][0]["Plan"])

    found = scans() & _large_tables(cursor)
    cursor.execute("SET enable_seqscan = off")  # whether there is an index
    found |= scans() & GROWING
    cursor.execute("SET enable_seqscan = on")
    return f"end to end {sorted(found)}: {statement}" if found else "by index"


def scanned(connection: Connection, statement: str) -> set[str]:
    """Large tables that a statement would read from end to end."""
    plan = connection.execute(text(f"EXPLAIN (FORMAT JSON) {statement}")).scalar_one()[0]["Plan"]
    return _scans(plan) & _large_tables(connection.connection.cursor())


def _scans(plan: dict[str, Any]) -> set[str]:
    own = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return own.union(*(_scans(child) for child in plan.get("Plans", ())))


def _large_tables(cursor: Any) -> set[str]:
    cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples > 900")
    return {name for (name,) in cursor} & RESULTS


def _some_cases(session: Session) -> list[int]:
    return list(list_case_names(session, PROJECT))[:2]


def _claim(session: Session) -> None:
    assert claim_next(session.get_bind(), NOON) is None  # type: ignore[arg-type]  # an engine


def _run_id(session: Session) -> Any:
    return UUID(run_of(session)[0])
