"""The app on a fresh store, without a network, and tokens for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
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


@pytest.fixture
def make_token(store: Engine) -> MakeToken:
    def make(*scopes: Scope, project: str | None = PROJECT, days: float = 30, **fields: bool) -> NewToken:
        return create_token(
            store,
            name="of a test",
            project=project,
            scopes=scopes or tuple(Scope),
            now=NOW,
            validity=timedelta(days=days),
            actor="test",
            **fields,
        )

    return make


def headers_of(token: NewToken | str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token if isinstance(token, str) else token.text}"}


def make_app(store: Engine, limits: Limits | None = None, *, analyses: bool = False, **fields: Any) -> FastAPI:
    return create_app(store, version="1", limits=limits, analyses=analyses, **{"now": lambda: NOW} | fields)


@pytest.fixture
def client(store: Engine, make_token: MakeToken) -> Iterator[TestClient]:
    """A client with all scopes in the default project."""
    with TestClient(make_app(store, UNLIMITED), headers=headers_of(make_token())) as client:
        yield client
