"""Errors as the client sees them: RFC 9457 problem documents that say the way out, and nothing of the inside."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from roofwatch.collector.errors import RecordError
from roofwatch.db.engine.disk_space import is_full
from roofwatch.db.errors import AgedError, ConflictError, IngestError, NotStoredError, StoreError
from roofwatch.db.quarantine import NotQuarantinedError
from roofwatch.db.regressions.triage import StaleTriageError

MEDIA_TYPE = "application/problem+json"
_DATABASE_RETRY_S = 10
_FULL_DISK_RETRY_S = 60
_MOST_ERRORS = 10

_log = logging.getLogger("roofwatch.api")


class Problem(BaseModel):
    """RFC 9457."""

    type: str = Field(description="Which kind of problem, a URN that stays the same.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with this request, and the way out.")
    instance: str | None = Field(default=None, description="The request, as the server's log names it.")
    errors: list[dict[str, str]] | None = Field(default=None, description="What in the request is wrong, and where.")

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "type": "urn:roofwatch:problem:other-content",
                    "title": "Other content under a known id",
                    "status": 409,
                    "detail": "a run with this id is stored with other content; measure again for a run of its own",
                }
            ]
        }
    }


class ProblemError(Exception):
    """A request that is not answered.

    Args:
        status: Of HTTP.
        kind: Which problem: the end of its URN.
        detail: What is wrong and the way out.
        headers: To go with it.
    """

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})


_TITLES = {
    "bad-request": "The request cannot be read",
    "conflict": "Not as it was",
    "forbidden": "Not with this token",
    "full-disk": "No room",
    "gone": "No longer kept",
    "invalid": "A value that cannot be",
    "method-not-allowed": "Not in this way",
    "not-found": "There is none",
    "other-content": "Other content under a known id",
    "other-request": "Another request under a known key",
    "rate-limited": "Too many requests",
    "timed-out": "It took too long",
    "too-complex": "Too much in one document",
    "too-large": "Too large",
    "unauthenticated": "Who are you?",
    "unavailable": "Not now",
    "unexpected": "Our fault",
    "unsupported-media": "Not in this form",
}
_KIND_OF_STATUS = {404: "not-found", 405: "method-not-allowed"}


def not_found(what: str, way_out: str) -> ProblemError:
    return ProblemError(404, "not-found", f"{what}: there is none here that this token may see; {way_out}")


def unavailable(detail: str, retry_after_s: float) -> ProblemError:
    return ProblemError(503, "unavailable", detail, {"Retry-After": str(math.ceil(retry_after_s))})


def no_room(status: int) -> ProblemError:
    """The database's disk is full: 507 for what should be stored, 503 where it was only asked."""
    detail = (
        "the disk of the database is full; nothing was kept half-done: keep the record and send it again once whoever "
        "runs the server has made room"
    )
    return ProblemError(status, "full-disk", detail, {"Retry-After": str(_FULL_DISK_RETRY_S)})


def install(app: FastAPI) -> None:
    """Have every error of an app answered with a problem document."""

    @app.exception_handler(ProblemError)
    def _(request: Request, error: ProblemError) -> Response:
        return _respond(request, error)

    @app.exception_handler(HTTPException)
    def _(request: Request, error: HTTPException) -> Response:
        kind = _KIND_OF_STATUS.get(error.status_code, "bad-request")
        way_out = "the routes are in /v1/openapi.json"
        return _respond(request, ProblemError(error.status_code, kind, f"{error.detail}; {way_out}", error.headers))

    @app.exception_handler(ClientDisconnect)
    def _(request: Request, error: Exception) -> Response:
        del error
        # heard by nobody but a proxy, the log and the counts: no fault of ours, and none of the body's
        return _respond(
            request, ProblemError(408, "timed-out", "the line broke before the body was whole; send it again")
        )

    @app.exception_handler(RequestValidationError)
    def _(request: Request, error: RequestValidationError) -> Response:
        # what was sent is not said again: it may be long, and anything
        found = [
            {"where": ".".join(str(step) for step in one["loc"])[:200], "message": str(one["msg"])[:300]}
            for one in error.errors()[:_MOST_ERRORS]
        ]
        detail = "; ".join(f"{one['where']}: {one['message']}" for one in found)
        return _respond(request, ProblemError(422, "invalid", f"{detail}; see /v1/openapi.json"), errors=found)

    @app.exception_handler(AgedError)
    def _(request: Request, error: Exception) -> Response:
        return _respond(request, ProblemError(410, "gone", str(error)))

    @app.exception_handler(NotStoredError)
    def _(request: Request, error: Exception) -> Response:
        return _respond(request, ProblemError(404, "not-found", str(error)))

    @app.exception_handler(RecordError)
    @app.exception_handler(IngestError)
    @app.exception_handler(ConflictError)
    @app.exception_handler(StaleTriageError)
    @app.exception_handler(NotQuarantinedError)
    def _(request: Request, error: Exception) -> Response:
        if isinstance(error, ConflictError):
            return _respond(request, ProblemError(409, "other-content", str(error)))
        if isinstance(error, StaleTriageError | NotQuarantinedError):
            return _respond(request, ProblemError(409, "conflict", str(error)))
        return _respond(request, ProblemError(422, "invalid", str(error)))

    @app.exception_handler(StoreError)
    @app.exception_handler(DBAPIError)
    @app.exception_handler(PoolTimeoutError)
    def _(request: Request, error: Exception) -> Response:
        if isinstance(error, DataError):
            return _respond(request, ProblemError(422, "invalid", "a value that the database cannot hold; correct it"))
        _log.error("%s the database failed: %s", _instance(request), _one_line(error))
        if is_full(error):
            request.app.state.shared.room.note_full()
            return _respond(request, no_room(507))
        detail = "the database cannot be used now; nothing was kept half-done: try again later"
        return _respond(request, unavailable(detail, _DATABASE_RETRY_S))


def unexpected(instance: str) -> Response:
    """For an error that is nobody's but ours."""
    detail = "an error of the server's; its log has it under this instance. Nothing was kept half-done: try again"
    return _response(ProblemError(500, "unexpected", detail), instance)


def of_two_lengths(instance: str) -> Response:
    """For a body of which a proxy may see another end than we do, and take the rest for somebody else's request.

    Source: RFC 9112, 6.1: such a request may be refused, and its connection is closed in any case.
    """
    detail = "Content-Length and Transfer-Encoding both say how long the body is; send one of them"
    return _response(ProblemError(400, "bad-request", detail, {"Connection": "close"}), instance)


def _respond(request: Request, problem: ProblemError, **more: Any) -> Response:
    return _response(problem, _instance(request), **more)


def _response(problem: ProblemError, instance: str, **more: Any) -> Response:
    document = {
        "type": f"urn:roofwatch:problem:{problem.kind}",
        "title": _TITLES[problem.kind],
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
    } | more
    return Response(orjson.dumps(document), problem.status, problem.headers, MEDIA_TYPE)


def _instance(request: Request) -> str:
    return str(getattr(request.state, "instance", "urn:uuid:00000000-0000-0000-0000-000000000000"))


def _one_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return " ".join("".join(c if c.isprintable() else " " for c in str(cause)).split())[:500]
