"""The app on a fresh store, without a network or behind a real socket, and tokens for it."""

from __future__ import annotations

import io
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, text
from starlette.testclient import TestClient

from roofwatch.api.app import configure, create_app
from roofwatch.api.limits import Limits
from roofwatch.db.access import NewToken, create_token
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queue import request_queued_job, store_tree
from roofwatch.db.queue_runners import finish_queued_job, take_queued_job
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Scope
from roofwatch.model.queue import QueueRequest
from tests.builders import PROJECT, make_artefact, make_record, make_regression, sha_of
from tests.databases import ingest_all

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)

MakeToken = Callable[..., NewToken]
RUN_ID = uuid.UUID("5f0c1b1e-0f6e-4d38-9f6c-2f8f9d1d2a11")
SECOND_RUN_ID = uuid.UUID("5f0c1b1e-0f6e-4d38-9f6c-2f8f9d1d2a12")
RECORD = make_record(run_id=RUN_ID, artefacts=[make_artefact()])
PARAMETERS = {
    "project": PROJECT,
    "run_id": str(RUN_ID),
    "sha256": make_artefact().sha256,
    "regression": str(regression_id(make_regression(1))),
    "base": sha_of(0),
    "head": sha_of(1),
    "question": "list_commits",
    "job_id": "5f0c1b1e-0f6e-4d38-9f6c-2f8f9d1d2a13",
}
"""Of routes, by name; `filled` has what they name."""
PEOPLES_SCOPES = tuple(scope for scope in Scope if scope is not Scope.RUNNER)
RUNNER_CLASS = "GPU A"
UNLIMITED = Limits(requests="1000000 per 1 second", failures="1000000 per 1 second")


def new_token(
    store: Engine,
    *scopes: Scope,
    project: str | None = PROJECT,
    now: datetime = NOW,
    days: float = 30,
    is_quarantined: bool = False,
) -> NewToken:
    """Create a token, with all scopes of people if none is named."""
    return create_token(
        store,
        name="of a test",
        project=project,
        scopes=scopes or PEOPLES_SCOPES,
        runner_class=RUNNER_CLASS if Scope.RUNNER in scopes else None,
        now=now,
        validity=timedelta(days=days),
        is_quarantined=is_quarantined,
        actor="test",
    )


@pytest.fixture
def make_token(store: Engine) -> MakeToken:
    return partial(new_token, store)


def headers_of(token: NewToken | str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token if isinstance(token, str) else token.text}"}


def make_app(store: Engine, limits: Limits | None = None, **fields: Any) -> FastAPI:
    return create_app(store, version="1", limits=limits, **{"now": lambda: NOW} | fields)


@pytest.fixture
def filled(store: Engine) -> Engine:
    """Two runs with a regression, a quarantined run with a file, and a job that is done."""
    ingest_record(store, RECORD, is_quarantined=True)
    store_artefact(store, RUN_ID, make_artefact().sha256, io.BytesIO(b"a trace"))
    ingest_all(store, make_record(0), make_record(1, run_id=SECOND_RUN_ID))
    replace_regressions(store, PROJECT, [make_regression(1)])
    add_done_job(store, uuid.UUID(PARAMETERS["job_id"]))
    return store


def add_done_job(store: Engine, job_id: uuid.UUID) -> None:
    """A job that was taken and is done."""
    command = ("ab", "bench.py")
    asked = QueueRequest(runner_class=RUNNER_CLASS, command=command)
    first_id = request_queued_job(store, PROJECT, asked, actor="token a", device_minutes=None)
    with store.begin() as connection:
        connection.execute(
            text("UPDATE queued_job SET job_id = :known WHERE job_id = :first"),
            {"known": job_id, "first": first_id},
        )
    store_tree(store, job_id, b"a tree")
    claim_id = uuid.uuid4()
    take_queued_job(store, RUNNER_CLASS, None, claim_id=claim_id, runner="gpu-1")
    finish_queued_job(
        store,
        job_id,
        claim_id,
        exit_status=0,
        spent_s=60.0,
        content=b"a result",
        actor="token r",
    )


@pytest.fixture
def client(store: Engine, make_token: MakeToken) -> Iterator[TestClient]:
    """A client with all scopes in the default project."""
    with TestClient(make_app(store, UNLIMITED), headers=headers_of(make_token())) as client:
        yield client


def token_of_today(store: Engine, scope: Scope) -> str:
    """A token that is valid by the real clock."""
    return new_token(store, scope, now=datetime.now(UTC)).text


@contextmanager
def served(store: Engine, limits: Limits | None = None) -> Iterator[tuple[str, int]]:
    """Serve the app, and yield its address."""
    chosen = limits or Limits()
    server = uvicorn.Server(configure(make_app(store, chosen), chosen))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            # early clients wait in the socket's queue
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()
