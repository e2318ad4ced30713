"""Questions of the dashboard through the API: answers equal to the database, access, and invalid
input.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.collector.outbox.http_client import HttpClient
from roofwatch.db.agenda import take_job
from roofwatch.db.bisections import request_bisection
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.quarantine import release_run
from roofwatch.db.projects import quarantine_name
from roofwatch.db.queries import questions
from roofwatch.db.queries.questions import QUESTIONS, Question, answer_to_json, subjects_of
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.db.schema.subjects import ProjectName, Subjects
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import Regression, Scope
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import BisectionRange, TriageState
from roofwatch.store.database_source import DatabaseSource
from roofwatch.store.reading import Source
from roofwatch.store.server import Server
from tests.api.conftest import UNLIMITED, headers_of, make_app, new_token, served, token_of_today
from tests.api.test_fuzz import places, repeatable, replaced, values
from tests.builders import (
    NOON,
    PROJECT,
    make_artefact,
    make_change_point,
    make_commit_ref,
    make_imported,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.dashboard.gpu_history import HOT_AT, SOFTMAX, calibration, gpu, gpu_record
from tests.databases import Databases, ingest_all, set_triage

OTHER = "other/project"
FILES = (b"one", b"other")


@dataclass(frozen=True)
class Filled:
    """A store with two projects, and an answer to every question."""

    engine: Engine
    runs: dict[str, list[RunRecord]]
    """By project."""
    regressions: dict[str, Regression]
    aside: RunRecord
    """In the quarantine of the first project."""
    released: RunRecord

    def asked(self, project: str) -> dict[str, dict[str, Any]]:
        """Parameters of each question about a project."""
        first, second, *_ = (str(run.run_id) for run in self.runs[project])
        both = {"base_id": first, "head_id": second}
        commits = {"project": project, "base_sha": sha_of(0), "head_sha": sha_of(HOT_AT)}
        runner_class = gpu().runner_class
        keys = tuple(
            make_series_key(
                metric,
                project=project,
                case_id=SOFTMAX,
                implementation="triton",
                runner_class=runs_on,
            )
            for metric, runs_on in [("median_ns", runner_class), ("utilisation", runner_class)]
        )
        trend = TrendQuestion(project, keys, since=NOON, kept_commits=(sha_of(0),))
        found = regression_id(self.regressions[project])
        return {
            "read_filter_options": {"project": project},
            "list_commits": {"project": project, "runner_classes": (runner_class,)},
            "read_runs_by_runner": commits,
            "read_runs_on": {**commits, "base_runner": runner_class, "head_runner": runner_class},
            "read_runs": both,
            "read_imported_values": both,
            "search": {"project": project, "text": "softmax"},
            "list_series_keys": {
                "project": project,
                "include_dirty": True,
                "include_branches": True,
            },
            "read_trend": {"trend": trend},
            "list_roof_cells": {"project": project, "since": NOON, "limit": 2},
            "list_counted_runs": {"project": project},
            "list_releases": {"project": project},
            "list_triaged": {"project": project},
            "list_step_shares": {"project": project, "runner_class": runner_class},
            "list_functions": {"project": project, "kernel": "softmax"},
            "list_runner_coverage": {"project": project, "branches": ("main",)},
            "read_recent_runs": {"project": project, "limit": 3},
            "read_case_of_both": {**commits, "case_id": SOFTMAX, "runner_class": runner_class},
            "read_case_of_runs": {**both, "case_id": SOFTMAX},
            "list_decisions": {"project": project, "regression_id": found},
            "load_record": {"run_id": first},
            "read_case_history": {"project": project, "case_id": SOFTMAX, "with_every_run": True},
            "list_fleet_runs": {
                "project": project,
                "limit": 10,
                "with_quarantine": True,
                "or_run": first,
            },
            "read_run_energies": {"run_ids": (first, second)},
            "list_kernel_costs": {"run_ids": (first, second), "case_ids": frozenset({SOFTMAX})},
            "list_case_costs": {"run_ids": (first, second), "limit": 5},
            "list_calibrations": {"project": project},
            "list_jobs": {"project": project},
            "list_artefacts": {"run_id": first},
            "read_kernel_of_run": {"run_id": first, "kernel": "softmax"},
            "read_newest_bisection": {"regression_id": found},
            "list_readable": {"projects": (project,), "reader_names": ()},
            "list_projects_of": {"run_ids": (first,), "regression_ids": (found,)},
        }


@pytest.fixture(scope="module")
def filled(databases: Databases) -> Iterator[Filled]:
    with databases.store() as engine:
        yield _filled(engine)


def _filled(engine: Engine) -> Filled:
    runs, regressions = {}, {}
    share = make_imported(
        SOFTMAX, metric=f"{SHARE_OF_STEP}_softmax_kernel", statistic="value", unit="share"
    )
    for project in (PROJECT, OTHER):
        named = tuple(make_artefact(content, name=f"{content.decode()}.json") for content in FILES)
        runs[project] = [
            gpu_record(number, project=project).model_copy(
                update={"artefacts": named, "imported": (share,)}
            )
            for number in (0, HOT_AT)
        ]
        newest = runs[project][1]
        commit = newest.commit.model_copy(update={"tags": ("v1.0",)})
        runs[project][1] = newest.model_copy(update={"commit": commit})
        ingest_all(engine, *runs[project], *calibration(project=project))
        for content in FILES:
            store_artefact(
                engine, runs[project][0].run_id, make_artefact(content).sha256, io.BytesIO(content)
            )
        regressions[project] = _judged(engine, project)
        planned = Job(kind=JobKind.NEW, reason="new", seconds=1.0, head=make_commit_ref(HOT_AT))
        take_job(engine, project, gpu().runner_class, [planned.planned()], UUID(int=1))
    aside, released = make_record(1), make_record(2)
    for record in (aside, released):
        ingest_record(engine, record, is_quarantined=True)
    release_run(engine, released.run_id, actor="test", person="somebody", reason="measured again")
    return Filled(engine, runs, regressions, aside, released)


def _judged(engine: Engine, project: str) -> Regression:
    key = make_series_key(
        project=project, case_id=SOFTMAX, implementation="triton", runner_class=gpu().runner_class
    )
    change = make_change_point(HOT_AT, series=key, previous_commit=make_commit_ref(0))
    found = make_regression(
        HOT_AT,
        project=project,
        kernel="softmax",
        change_points=(change,),
        recovered_at=make_commit_ref(HOT_AT),
    )
    replace_regressions(engine, project, [found])
    state = TriageState.ACKNOWLEDGED
    set_triage(
        engine,
        project,
        regression_id(found),
        state,
        person="somebody",
        reason="a reason",
        actor="a test",
    )
    wanted = BisectionRange(project, SOFTMAX, "triton", sha_of(0), sha_of(HOT_AT))
    with Session(engine) as session, session.begin():
        request_bisection(
            session, wanted, requested_by="somebody", regression_id=regression_id(found)
        )
    return found


def _client(filled: Filled, project: str | None) -> TestClient:
    """A client that may read a project, or all."""
    token = new_token(filled.engine, Scope.READ, project=project)
    return TestClient(make_app(filled.engine, UNLIMITED), headers=headers_of(token))


@pytest.fixture(scope="module")
def client(filled: Filled) -> TestClient:
    return _client(filled, PROJECT)


@pytest.fixture(scope="module")
def client_of_all(filled: Filled) -> TestClient:
    return _client(filled, None)


def test_api_answers_like_the_database(filled: Filled) -> None:
    asked = filled.asked(PROJECT)
    database = DatabaseSource(filled.engine)
    assert asked.keys() == QUESTIONS.keys()
    with served(filled.engine) as (host, port):
        server = Server(
            HttpClient(f"http://{host}:{port}", token_of_today(filled.engine, Scope.READ))
        )
        for name, arguments in asked.items():
            answer = database.ask(QUESTIONS[name], **arguments)
            assert answer, name
            through = server.ask(QUESTIONS[name], **arguments)
            assert through == answer, name
            assert type(through) is type(answer), name
        runners = [gpu().runner_class] * 2
        for source in (server, database):
            _check_files(source, filled.runs[PROJECT][0])
            with pytest.raises(
                (SpoolError, StoreError),
                match="commit 00000000 of example/project: no run on",
            ):
                source.ask(questions.read_runs_on, PROJECT, "0" * 40, sha_of(0), *runners)
        with pytest.raises(SpoolError, match=f"HTTP 403: this token is for {PROJECT}"):
            server.ask(questions.list_commits, OTHER)
        with pytest.raises(SpoolError, match="HTTP 404: this question: not found"):
            server.ask(Question(list_everything), PROJECT)


def list_everything(session: Session, project: str) -> list[str]:
    """A question that no server knows."""
    raise AssertionError


def list_nothing(session: Session, text: str) -> list[str]:
    """A question about nothing whose access could be checked."""
    raise AssertionError


def read_any_run(session: Session, project: ProjectName, run: UUID) -> list[str]:
    """A question whose run would be read without a check."""
    raise AssertionError


def test_every_parameter_of_a_project_is_checked_whatever_its_name() -> None:
    def list_shared(session: Session, ours: ProjectName, theirs: ProjectName) -> list[str]:
        raise AssertionError

    parameters = Question(list_shared).parameters(ours=PROJECT, theirs=OTHER)

    assert subjects_of(parameters).projects == {PROJECT, OTHER}


def test_every_question_says_what_it_is_about(filled: Filled) -> None:
    for name, arguments in filled.asked(PROJECT).items():
        parameters = QUESTIONS[name].parameters(**arguments)
        assert subjects_of(parameters) != Subjects(), name
        assert "project" not in arguments or subjects_of(parameters).projects == {PROJECT}, name


def test_a_question_about_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="list_nothing: no parameter says what it is about"):
        _ = Question(list_nothing).parameters


def test_a_run_that_is_not_marked_is_refused() -> None:
    with pytest.raises(TypeError, match="read_any_run: run is not marked with what it is about"):
        _ = Question(read_any_run).parameters


def _check_files(source: Source, run: RunRecord) -> None:
    first, second = ((run.run_id, make_artefact(content).sha256) for content in FILES)
    assert [source.read_artefact(*one) for one in (first, second)] == list(FILES)
    with pytest.raises((SpoolError, StoreError), match="content 000000000000"):
        source.read_artefact(run.run_id, "0" * 64)


def test_questions_about_other_projects_are_refused(client: TestClient, filled: Filled) -> None:
    about_runs = {
        "load_record",
        "list_artefacts",
        "read_kernel_of_run",
        "read_runs",
        "read_imported_values",
        "read_case_of_runs",
    }
    about_runs |= {
        "read_run_energies",
        "list_kernel_costs",
        "list_case_costs",
        "read_newest_bisection",
        "list_projects_of",
    }
    for name, arguments in filled.asked(OTHER).items():
        answer = ask(client, name, arguments)

        assert answer.status_code == (404 if name in about_runs else 403), name
        assert OTHER not in answer.text.replace(str(arguments), ""), name
    ours, theirs = (filled.asked(project) for project in (PROJECT, OTHER))
    for name in ("read_runs", "read_case_of_runs"):
        assert (
            ask(client, name, ours[name] | {"head_id": theirs[name]["head_id"]}).status_code == 404
        )
    for name in ("read_run_energies", "list_kernel_costs", "list_case_costs"):
        mixed = (*ours[name]["run_ids"], *theirs[name]["run_ids"])
        assert ask(client, name, ours[name] | {"run_ids": mixed}).status_code == 404
    own_trend, their_trend = (asked["read_trend"]["trend"] for asked in (ours, theirs))
    for trend in (replace(own_trend, keys=their_trend.keys), replace(own_trend, project=OTHER)):
        assert ask(client, "read_trend", {"trend": trend}).status_code == 403


def test_quarantined_runs_are_visible_in_their_project(client: TestClient, filled: Filled) -> None:
    run_id = str(filled.aside.run_id)

    listed = ask(
        client, "list_fleet_runs", {"project": quarantine_name(PROJECT), "limit": 5}
    ).json()

    assert [run["run_id"] for run in listed] == [run_id]
    assert ask(client, "load_record", {"run_id": run_id}).status_code == 200
    assert (
        ask(client, "list_fleet_runs", {"project": quarantine_name(OTHER), "limit": 5}).status_code
        == 403
    )


def test_invalid_parameters_are_refused(client: TestClient, filled: Filled) -> None:
    own = filled.asked(PROJECT)
    trend = own["read_trend"]["trend"]
    no_metric = replace(trend, keys=(replace(trend.keys[0], metric="unknown"),))
    refused: list[tuple[str, Any, int, str]] = [
        ("list_commits", {}, 422, "body.project"),
        ("list_commits", {"project": PROJECT, "of": "more"}, 422, "body.of"),
        ("load_record", {"run_id": "5f0c1b1e-0f6e-4d38-9f6c-2f8f9d1d2aff"}, 404, "not found"),
        ("list_fleet_runs", own["list_fleet_runs"] | {"limit": 10**9}, 422, "body.limit"),
        ("read_trend", {"trend": no_metric}, 422, "unknown metric"),
        ("read_trend", {"trend": replace(trend, keys=trend.keys * 1_001)}, 422, "at most 2000"),
        ("unknown", {}, 404, "this question"),
    ]
    for name, arguments, status, text in refused:
        answer = ask(client, name, arguments)
        assert (answer.status_code, text in answer.json()["detail"]) == (status, True), (
            name,
            answer.text,
        )
    plain = client.post(
        "/v1/questions/list_commits", content=b"{}", headers={"Content-Type": "text/plain"}
    )
    assert plain.status_code == 415
    short = TestClient(
        make_app(filled.engine, Limits(question_bytes=10)), headers=dict(client.headers)
    )
    assert ask(short, "list_commits", own["list_commits"]).status_code == 413


@repeatable(120)
@given(name=st.sampled_from(sorted(QUESTIONS)), place=st.integers(0, 60), new=values)
def test_mutated_questions_never_fail_inside(
    filled: Filled, client_of_all: TestClient, name: str, place: int, new: Any
) -> None:
    document = json.loads(answer_to_json(filled.asked(PROJECT)[name]))
    there = places(document)
    body = json.dumps(replaced(document, there[place % len(there)], new)).encode(
        errors="surrogatepass"
    )

    answer = client_of_all.post(f"/v1/questions/{name}", content=body)

    assert answer.status_code < 500, answer.text


def ask(client: TestClient, name: str, arguments: object) -> Any:
    return client.post(f"/v1/questions/{name}", content=answer_to_json(arguments))
