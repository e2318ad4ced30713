"""Workers analyse projects with new records: each project once, in processes of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from roofwatch.api import worker
from roofwatch.api.worker import analyse_next, analyse_waiting
from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.analysis_queue import claim_job, read_queue_state
from roofwatch.db.regressions.judgements import read_run_state, request_analysis
from tests.builders import make_record

PROJECTS = ("a/first", "b/second", "c/third")


@pytest.fixture
def waiting(store: Engine) -> Engine:
    """Three projects wait, the first for the longest."""
    for project in PROJECTS:
        ingest_record(store, make_record(project=project))
        request_analysis(store, project)
    return store


def test_the_oldest_request_that_nobody_holds_is_first(waiting: Engine) -> None:
    with claim_job(waiting) as first, claim_job(waiting) as second:
        assert first is not None
        assert second is not None
        assert (first.project, second.project) == PROJECTS[:2]


def test_a_project_that_is_requested_while_it_is_held_waits_again(waiting: Engine) -> None:
    with claim_job(waiting), claim_job(waiting):
        # requests do not wait for the worker
        request_analysis(waiting, PROJECTS[0])

    with Session(waiting) as session:
        assert read_queue_state(session).waiting_count == 2
    assert analyse_waiting(waiting) == [PROJECTS[2], PROJECTS[0]]


def test_workers_at_once_analyse_each_project_once(waiting: Engine) -> None:
    engine = create_engine(waiting.url, pool_size=12)
    barrier = threading.Barrier(3)

    def run(_: int) -> list[str]:
        barrier.wait(timeout=60)
        return analyse_waiting(engine)

    with ThreadPoolExecutor(3) as pool:
        analysed = list(pool.map(run, range(3)))
    engine.dispose()

    assert sorted(project for of_worker in analysed for project in of_worker) == list(PROJECTS)


@pytest.fixture
def failing_first(waiting: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The analysis of the first project failed, and would fail again."""

    def fail_first(engine: Engine, project: str) -> object:
        if project == PROJECTS[0]:
            raise ValueError("secret")
        return analyse_project(engine, project)

    monkeypatch.setattr(worker, "analyse_project", fail_first)
    with pytest.raises(ValueError, match="secret"):
        analyse_next(waiting)


@pytest.mark.usefixtures("failing_first")
def test_a_failed_analysis_holds_up_no_other_project(waiting: Engine) -> None:
    assert analyse_waiting(waiting) == list(PROJECTS[1:])

    with Session(waiting) as session:
        state = read_queue_state(session)
    assert (state.waiting_count, state.failing_count) == (1, 1)


@pytest.mark.usefixtures("failing_first")
def test_a_failed_analysis_waits_with_its_error(waiting: Engine) -> None:
    with waiting.begin() as connection:
        (failure,) = connection.execute(
            text("SELECT failure_count, error, not_before FROM analysis_job WHERE error > ''")
        ).all()

    assert (failure.failure_count, failure.error) == (1, "ValueError")
    assert failure.not_before > datetime.now(UTC)


def test_a_failed_analysis_is_made_after_its_wait(
    waiting: Engine, failing_first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyse_waiting(waiting)
    monkeypatch.undo()
    with waiting.begin() as connection:
        connection.execute(text("UPDATE analysis_job SET not_before = now()"))

    assert analyse_waiting(waiting) == [PROJECTS[0]]


def test_a_worker_that_is_killed_leaves_the_project_to_others(waiting: Engine) -> None:
    other = create_engine(waiting.url)
    kill = text(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    claim = claim_job(other)
    job = claim.__enter__()
    with waiting.begin() as connection:
        connection.execute(kill)

    project = analyse_next(waiting)

    assert job is not None
    assert project == job.project
    with pytest.raises(OperationalError):
        claim.__exit__(None, None, None)
    other.dispose()


def test_a_record_is_judged_once_its_project_was_analysed(waiting: Engine) -> None:
    record = make_record(1, project=PROJECTS[0])
    ingest_record(waiting, record)
    request_analysis(waiting, record.project)

    analyse_waiting(waiting)

    with Session(waiting) as session:
        state = read_run_state(session, record.run_id)
    assert state is not None
    assert state.is_judged
