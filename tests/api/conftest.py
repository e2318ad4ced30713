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
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.api.app import configure, create_app
from roofwatch.api.limits import Limits
from roofwatch.db.access import NewToken, create_token
from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Scope
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
}
"""Of routes, by name; `filled` has what they name."""
UNLIMITED = Limits(requests="1000000 per 1 second", failures="1000000 per 1 second")


def new_token(
    store: Engine,
    *scopes: Scope,
    project: str | None = PROJECT,
    now: datetime = NOW,
    days: float = 30,
    is_quarantined: bool = False,
) -> NewToken:
    """Create a token, with all scopes if none is named."""
    return create_token(
        store,
        name="of a test",
        project=project,
        scopes=scopes or tuple(Scope),
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
    """Two runs with a regression, and a quarantined run with a file."""
    ingest_record(store, RECORD, is_quarantined=True)
    store_artefact(store, RUN_ID, make_artefact().sha256, io.BytesIO(b"a trace"))
    ingest_all(store, make_record(0), make_record(1, run_id=SECOND_RUN_ID))
    replace_regressions(store, PROJECT, [make_regression(1)])
    return store


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
