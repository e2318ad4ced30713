"""What every request gets: an id, headers that keep it harmless, a line in the log, counts for Prometheus."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roofwatch.api.problems import of_two_lengths, unexpected

_log = logging.getLogger("roofwatch.api")

_HEADERS = [
    # what comes from records is data, whatever it looks like: no browser may run it or show it as a page
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


class Metrics:
    """Counts of one app. No label comes from what a client sends, but for its method if it is a usual one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "roofwatch_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "roofwatch_request_seconds", "Time to answer, in seconds.", ["route"], registry=self.registry
        )
        self.open = Gauge("roofwatch_requests_open", "Requests being answered.", registry=self.registry)
        self.records = Counter(
            "roofwatch_records", "Records taken: new, known before, or quarantined.", ["kind"], registry=self.registry
        )
        self.record_bytes = Counter("roofwatch_record_bytes", "Bytes of records as sent.", registry=self.registry)
        self.artefact_bytes = Counter("roofwatch_artefact_bytes", "Bytes of artefacts as sent.", registry=self.registry)
        for kind in ("new", "known", "quarantined"):
            self.records.labels(kind)


class Watch:
    """ASGI middleware around an app."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        instance = f"urn:uuid:{uuid.uuid4()}"
        scope.setdefault("state", {})["instance"] = instance
        began_s = time.perf_counter()
        status = 0

        async def send_watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        with self._metrics.open.track_inprogress():
            try:
                app = of_two_lengths(instance) if {name for name, _ in scope["headers"]} >= _LENGTHS else self._app
                await app(scope, receive, send_watched)
            except Exception:
                _log.exception("%s failed unexpectedly", instance)
                if status:
                    raise  # the answer has begun: all that is left is to break it off
                await unexpected(instance)(scope, receive, send_watched)
        self._note(scope, status, time.perf_counter() - began_s, instance)

    def _note(self, scope: Scope, status: int, seconds: float, instance: str) -> None:
        # the route's pattern, not the path: a line and a label of our own words, however the path reads
        route = _route_of(scope)
        method = scope["method"] if scope["method"] in {"GET", "POST", "PUT", "HEAD"} else "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        actor = scope["state"].get("actor", "-")
        _log.info("%s %s %d %.1f ms, %s, %s", method, route, status, seconds * 1e3, actor, instance)


def _route_of(scope: Scope) -> str:
    route: Any = scope.get("route")
    return str(getattr(route, "path", "unknown"))
