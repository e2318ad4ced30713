"""Errors as clients see them: problem documents (RFC 9457) that say what to do, and nothing of the inside."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
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
from roofwatch.db.engine.session import is_full
from roofwatch.db.errors import AgedError, ConflictError, IngestError, NotStoredError, StoreError
from roofwatch.db.quarantine import NotQuarantinedError
from roofwatch.db.regressions.triage import StaleTriageError

_MEDIA_TYPE = "application/problem+json"
_DATABASE_RETRY_S = 10
_FULL_DISK_RETRY_S = 60
_MAX_ERRORS = 10
_NO_INSTANCE = "urn:uuid:00000000-0000-0000-0000-000000000000"

_log = logging.getLogger("roofwatch.api")


class Problem(BaseModel):
    """RFC 9457."""

    type: str = Field(description="Which kind of problem, a URN that stays the same.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with this request, and what to do.")
    instance: str | None = Field(default=None, description="The request, as the server's log names it.")
    errors: list[dict[str, str]] | None = Field(default=None, description="What in the request is wrong, and where.")

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "type": "urn:roofwatch:problem:other-content",
                    "title": "Conflict",
                    "status": 409,
                    "detail": "a run with this id is stored with other content; measure again for a run of its own",
                }
            ]
        }
    }


_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No token, or one that is not known, expired or revoked.",
    403: "The token is for another project, or lacks the scope.",
    404: "There is none that the token may see.",
    408: "The body took too long.",
    409: "Not as it was: other content under a known id, or a state that has changed.",
    410: "What was asked for is no longer kept, by the policy of who runs the store.",
    413: "The body is too large, packed or unpacked.",
    415: "A form that is not known.",
    422: "A value that cannot be.",
    429: "The token asks too often, or too many wrong ones came from its address; Retry-After says how long to wait.",
    503: "Not now, for example because the database is down; Retry-After says when to try again.",
    507: "No room on the database's disk; Retry-After says when to try again.",
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "model": Problem,
        "description": text,
        "content": {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in _DESCRIPTIONS.items()
}
"""The responses of a route, for OpenAPI."""


class ProblemError(Exception):
    """A request that is refused.

    Args:
        status: Of HTTP.
        kind: Which problem: the end of its URN.
        detail: What is wrong and what to do.
        headers: To go with it.
    """

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})


def not_found(what: str, way_out: str) -> ProblemError:
    return ProblemError(404, "not-found", f"{what}: there is none here that this token may see; {way_out}")


def unavailable(detail: str, retry_after_s: float) -> ProblemError:
    return ProblemError(503, "unavailable", detail, {"Retry-After": str(math.ceil(retry_after_s))})


_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (AgedError, 410, "gone"),
    (NotStoredError, 404, "not-found"),
    (ConflictError, 409, "other-content"),
    (StaleTriageError, 409, "conflict"),
    (NotQuarantinedError, 409, "conflict"),
    (RecordError, 422, "invalid"),
    (IngestError, 422, "invalid"),
)
"""Errors whose own message is the detail."""


def install(app: FastAPI) -> None:
    """Answer every error of an app with a problem document."""

    @app.exception_handler(ProblemError)
    def _(request: Request, error: ProblemError) -> Response:
        return _respond(request, error)

    @app.exception_handler(HTTPException)
    def _(request: Request, error: HTTPException) -> Response:
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
        detail = f"{error.detail}; the routes are in /v1/openapi.json"
        return _respond(request, ProblemError(error.status_code, kind, detail, error.headers))

    @app.exception_handler(ClientDisconnect)
    def _(request: Request, error: Exception) -> Response:
        del error
        # only the log and the metrics see it
        return _respond(request, ProblemError(408, "timed-out", "the connection broke within the body; send it again"))

    @app.exception_handler(RequestValidationError)
    def _(request: Request, error: RequestValidationError) -> Response:
        # without what was sent: it may be long, and anything
        found = [
            {"where": ".".join(str(step) for step in one["loc"])[:200], "message": str(one["msg"])[:300]}
            for one in error.errors()[:_MAX_ERRORS]
        ]
        detail = "; ".join(f"{one['where']}: {one['message']}" for one in found)
        return _respond(request, ProblemError(422, "invalid", f"{detail}; see /v1/openapi.json"), errors=found)

    for kind_of_error, status, kind in _KINDS:

        def answer(request: Request, error: Exception, status: int = status, kind: str = kind) -> Response:
            return _respond(request, ProblemError(status, kind, str(error)))

        app.add_exception_handler(kind_of_error, answer)

    @app.exception_handler(StoreError)
    @app.exception_handler(DBAPIError)
    @app.exception_handler(PoolTimeoutError)
    def _(request: Request, error: Exception) -> Response:
        if isinstance(error, DataError):
            return _respond(request, ProblemError(422, "invalid", "a value that the database cannot hold; correct it"))
        _log.error("%s the database failed: %s", _instance(request), _one_line(error))
        if is_full(error):
            detail = (
                "the disk of the database is full; nothing was half-stored: keep the record and send it again once "
                "whoever runs the server has made room"
            )
            return _respond(request, ProblemError(507, "full-disk", detail, {"Retry-After": str(_FULL_DISK_RETRY_S)}))
        detail = "the database cannot be used now; nothing was half-stored: try again later"
        return _respond(request, unavailable(detail, _DATABASE_RETRY_S))


def problem_response(problem: ProblemError, instance: str, **more: Any) -> Response:
    """The problem document.

    Args:
        problem: What is wrong.
        instance: The request, as the log names it.
        more: Fields to add.
    """
    document = {
        "type": f"urn:roofwatch:problem:{problem.kind}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
    } | more
    return Response(orjson.dumps(document), problem.status, problem.headers, _MEDIA_TYPE)


def _respond(request: Request, problem: ProblemError, **more: Any) -> Response:
    return problem_response(problem, _instance(request), **more)


def _instance(request: Request) -> str:
    return str(getattr(request.state, "instance", _NO_INSTANCE))


def _one_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return " ".join("".join(c if c.isprintable() else " " for c in str(cause)).split())[:500]
