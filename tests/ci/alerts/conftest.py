from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Engine

from roofwatch.ci.alerts.channels import SIGNATURE
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_record, make_regression
from tests.databases import ingest_all
from tests.http_server import Answer, Request, serve


@dataclass
class Hook:
    """A webhook that keeps what was posted and answers `status`;
    with `is_deaf` it keeps nothing.
    """

    url: str = ""
    documents: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    is_deaf: bool = False
    arrived: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: Request) -> Answer:
        if not self.is_deaf:
            self.documents.append(json.loads(request.body))
            self.bodies.append(request.body)
            self.signatures.append(request.headers.get(SIGNATURE, ""))
            self.keys.append(request.headers.get("Idempotency-Key", ""))
        self.arrived.set()
        return Answer(self.status, headers=self.headers)


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    with serve(hook.answer) as url:
        hook.url = f"{url}/services/T0KEN-in-the-path"
        yield hook


@pytest.fixture
def judged(store: Engine) -> Engine:
    """A store with a regression that raises an alert."""
    ingest_all(store, *map(make_record, range(3)))
    replace_regressions(store, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])
    return store
