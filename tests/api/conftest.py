"""The app on a fresh store, without a network, and tokens for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.api.app import create_app
from roofwatch.api.limits import Limits
from roofwatch.db.auth.access import create_token
from roofwatch.db.auth.values import NewToken, Scope
from tests.builders import PROJECT

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)

MakeToken = Callable[..., NewToken]
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


def make_app(store: Engine, limits: Limits | None = None, *, analyses: bool = False, **fields: Any) -> FastAPI:
    return create_app(store, version="1", limits=limits, analyses=analyses, **{"now": lambda: NOW} | fields)


@pytest.fixture
def client(store: Engine, make_token: MakeToken) -> Iterator[TestClient]:
    """A client with all scopes in the default project."""
    with TestClient(make_app(store, UNLIMITED), headers=headers_of(make_token())) as client:
        yield client
