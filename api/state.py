"""Shared state of the app, its metrics, and the middleware that counts and logs requests."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roofwatch.api.limits import BodyReader, Limits
from roofwatch.api.logs import Outage
from roofwatch.api.problems import ProblemError, problem_response, unavailable
from roofwatch.api.service_metrics import ServiceMetrics
from roofwatch.db.engine.session import reading_session

_RETRY_S = 5
_HEADERS = [
    # no browser may show untrusted content as a page, and no cache may keep it
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
# a label of a metric: other methods would make new series at a client's will
_METHODS = frozenset({"GET", "POST", "PUT", "HEAD"})
_WRITING = frozenset({"POST", "PUT"})

_log = logging.getLogger("roofwatch.api")


class Metrics:
    """Prometheus metrics. Labels are not taken from clients, except usual methods."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "roofwatch_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "roofwatch_request_seconds",
            "Time to answer, in seconds.",
            ["route"],
            registry=self.registry,
        )
        self.open = Gauge(
            "roofwatch_requests_open", "Requests being answered.", registry=self.registry
        )
        self.records = Counter(
            "roofwatch_records",
            "Records taken: new, known before, or quarantined.",
            ["kind"],
            registry=self.registry,
        )
        self.record_bytes = Counter(
            "roofwatch_record_bytes", "Bytes of records as sent.", registry=self.registry
        )
        self.artefact_bytes = Counter(
            "roofwatch_artefact_bytes", "Bytes of artefacts as sent.", registry=self.registry
        )
        self.service = ServiceMetrics.register(self.registry)
        for kind in ("new", "known", "quarantined"):
            self.records.labels(kind)


@dataclass
class ServiceHealth:
    """What requests found out about the database."""

    database: Outage
    is_disk_full: bool = False
    """The last attempt to write failed for lack of disk space."""


@dataclass(frozen=True)
class State:
    engine: Engine
    limits: Limits
    metrics: Metrics
    health: ServiceHealth
    bodies: BodyReader
    ingests: asyncio.Semaphore
    """Held while a record or a file is stored."""
    wake_worker: Callable[[], None]
    exports_series: bool
    """Serve `/v1/series/metrics`."""
    now: Callable[[], datetime]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot to store something, or raise ProblemError (503) after `turn_s`."""
        try:
            # a client waits rather than the database
            async with asyncio.timeout(self.limits.turn_s):
                await self.ingests.acquire()
        except TimeoutError:
            raise unavailable(
                "too many clients send at once; try again in a moment", _RETRY_S
            ) from None
        try:
            yield
        finally:
            self.ingests.release()

    def reading(self) -> AbstractContextManager[Session]:
        """A read-only session on one snapshot, with a statement timeout."""
        return reading_session(self.engine, sees_one_state=True, timeout_s=self.limits.query_s)


def state_of(request: Request) -> State:
    state: State = request.app.state.shared
    return state


class RequestLog:
    """ASGI middleware: an ID, headers, metrics and a log line for each request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, health: ServiceHealth) -> None:
        self._app = app
        self._metrics = metrics
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(uuid.uuid4())
        instance = f"urn:uuid:{request_id}"
        scope.setdefault("state", {})["instance"] = instance
        began_s = time.perf_counter()
        status = 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own_headers = [*_HEADERS, (b"x-request-id", request_id.encode())]
                message["headers"] = [*message.get("headers", ()), *own_headers]
            await send(message)

        with self._metrics.open.track_inprogress():
            try:
                app = self._app
                if {name for name, _ in scope["headers"]} >= _LENGTHS:
                    # request smuggling (RFC 9112, 6.1)
                    detail = (
                        "Content-Length and Transfer-Encoding exclude each other; send one of them"
                    )
                    app = problem_response(
                        ProblemError(400, "bad-request", detail, {"Connection": "close"}), instance
                    )
                await app(scope, receive, send_counted)
            except Exception:
                _log.exception("a request failed unexpectedly", extra={"request_id": request_id})
                if status:
                    raise  # the response has begun
                detail = "an internal error, logged under this instance; try again"
                await problem_response(ProblemError(500, "unexpected", detail), instance)(
                    scope, receive, send_counted
                )
        self._note(scope, status, time.perf_counter() - began_s, request_id)

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        # the route's pattern, not the client's path
        route: Any = scope.get("route")
        path = str(getattr(route, "path", "unknown"))
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, path, str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        actor = scope["state"].get("actor", "-")
        if status == HTTPStatus.INSUFFICIENT_STORAGE:
            self._health.is_disk_full = True
        elif method in _WRITING and status < HTTPStatus.BAD_REQUEST:
            self._health.is_disk_full = False
        if actor != "-" and status < HTTPStatus.BAD_REQUEST:
            # the token was read from the database
            self._health.database.note_success()
        fields = {
            "request_id": request_id,
            "method": method,
            "route": path,
            "status": status,
            "duration_ms": round(seconds * 1e3, 1),
            "actor": actor,
        }
        text = "%(method)s %(route)s %(status)d %(duration_ms)s ms, %(actor)s, %(request_id)s"
        _log.info(text, fields, extra=fields)
