"""A webhook on this machine that keeps every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_server import Answer, Request, serve


@dataclass
class Hook:
    """What was posted. It answers `status`; with `is_deaf` it keeps nothing."""

    url: str = ""
    documents: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    is_deaf: bool = False
    arrived: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: Request) -> Answer:
        if not self.is_deaf:
            self.documents.append(json.loads(request.body))
            self.keys.append(request.headers.get("Idempotency-Key", ""))
        self.arrived.set()
        return Answer(self.status, headers=self.headers)


@contextmanager
def open_hook() -> Iterator[Hook]:
    hook = Hook()
    with serve(hook.answer) as url:
        hook.url = f"{url}/services/T0KEN-in-the-path"
        yield hook
