"""Routes with a body read it after authentication, up to a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI, Request
from sqlalchemy import Engine
from starlette.types import Message

from roofwatch.api.limits import BodyReader, Limits
from roofwatch.api.problems import ProblemError
from roofwatch.model.history import Scope
from tests.api.conftest import PARAMETERS, MakeToken, headers_of, make_app
from tests.builders import PROJECT

QUESTION = f"/v1/questions/{PARAMETERS['question']}"
"""Has a body and needs only the scope `read`."""
KIB = 2**10
LIMITS = Limits(
    body_bytes=256 * KIB, discarded_bytes=1024 * KIB, question_bytes=64 * KIB, silence_s=0.02
)
JOB = f"/v1/queue/jobs/{PARAMETERS['job_id']}"
MAX_BYTES = {
    "/v1/records": LIMITS.body_bytes,
    QUESTION: LIMITS.question_bytes,
    f"{JOB}/tree": LIMITS.body_bytes,
    f"{JOB}/result": LIMITS.body_bytes,
}
OF_RUNNERS = {"/v1/queue/take", *(f"{JOB}/{what}" for what in ("progress", "release", "result"))}
QUERY = f"project={PROJECT}&claim_id={PARAMETERS['job_id']}&exit_status=0&spent_s=1"
"""All that some route with a body requires."""
CHUNK = b"x" * 16 * KIB
ENDLESS = 1_000
"""Chunks after which the sender stops."""


@dataclass
class Sent:
    """A request whose body is sent in chunks while the app reads."""

    chunk_count: int = ENDLESS
    """0: no body is sent."""
    read_bytes: int = 0
    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    async def receive(self) -> Message:
        if self.chunk_count == 0:
            await asyncio.Event().wait()
        self.read_bytes += len(CHUNK)
        self.chunk_count -= 1
        return {"type": "http.request", "body": CHUNK, "more_body": self.chunk_count > 0}

    async def answer(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    def ask(self, app: FastAPI, method: str, path: str) -> Sent:
        headers = {"content-type": "application/json"} if method == "POST" else {}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": QUERY.encode(),
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in (headers | self.headers).items()
            ],
        }

        async def run() -> None:
            async with asyncio.timeout(10):
                await app(scope, self.receive, self.answer)

        asyncio.run(run())
        return self


@pytest.fixture
def app(filled: Engine) -> FastAPI:
    return make_app(filled, LIMITS)


def routes_with_body(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Method and path of every route with a body."""
    for path, operations in app.openapi()["paths"].items():
        for method in operations:
            if method not in {"get", "head"}:
                yield method.upper(), path.format(**PARAMETERS)


def test_body_is_not_read_without_authentication(app: FastAPI) -> None:
    for method, path in routes_with_body(app):
        for chunk_count in (0, ENDLESS):
            for headers in ({}, {"content-length": str(10**12)}, headers_of("garbage")):
                sent = Sent(chunk_count, headers=headers).ask(app, method, path)

                assert (sent.status, sent.read_bytes) == (401, 0), (method, path, headers)


def test_body_is_not_read_without_the_scope(app: FastAPI, make_token: MakeToken) -> None:
    for method, path in routes_with_body(app):
        other = headers_of(make_token(Scope.INGEST if path == QUESTION else Scope.READ))
        sent = Sent(headers=other).ask(app, method, path)

        assert (sent.status, sent.read_bytes) == (403, 0), (method, path)


def test_body_is_read_up_to_its_limit(app: FastAPI, make_token: MakeToken) -> None:
    persons = headers_of(make_token())
    runners = headers_of(make_token(Scope.RUNNER))
    for method, path in routes_with_body(app):
        headers = runners if path in OF_RUNNERS else persons
        endless = Sent(headers=headers).ask(app, method, path)
        announced = Sent(headers=headers | {"content-length": str(10**12)}).ask(app, method, path)

        max_bytes = MAX_BYTES.get(path, LIMITS.decision_bytes)
        assert endless.status == 413, (method, path, endless.body)
        if path == "/v1/records":
            # read to its end, within a second limit, so that the client reads the answer
            max_bytes = LIMITS.body_bytes + LIMITS.discarded_bytes
        assert endless.read_bytes <= max_bytes + 2 * len(CHUNK), (method, path)
        assert (announced.status, announced.read_bytes) == (413, 0), (method, path)
        assert json.loads(endless.body)["type"] == "urn:roofwatch:problem:too-large"


def test_bodies_in_memory_are_limited() -> None:
    bodies = BodyReader(Limits(upload_bytes=3 * len(CHUNK)))

    async def run() -> None:
        def sent() -> Request:
            return Request({"type": "http", "headers": []}, Sent(2).receive)

        async with bodies.read(sent(), LIMITS.body_bytes) as body:
            assert body == CHUNK * 2
            with pytest.raises(ProblemError) as caught:
                async with bodies.read(sent(), LIMITS.body_bytes):
                    pass
            assert (caught.value.status, int(caught.value.headers["Retry-After"]) > 0) == (
                503,
                True,
            )

        async with bodies.read(sent(), LIMITS.body_bytes) as body:
            assert body == CHUNK * 2

    asyncio.run(run())
