"""Errors as problem documents (RFC 9457), which say what to do and nothing of the inside."""

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

from roofwatch.db.engine.session import is_full
from roofwatch.db.errors import (
    AgedError,
    ConflictError,
    IngestError,
    NotQuarantinedError,
    NotStoredError,
    StoreError,
)
from roofwatch.db.leases import ClaimLostError
from roofwatch.db.queue import QueueFullError
from roofwatch.db.regressions.decisions import DecisionError
from roofwatch.db.regressions.triage import StaleTriageError
from roofwatch.model.errors import RecordError

# RFC 9457
_MEDIA_TYPE = "application/problem+json"
_DATABASE_RETRY_S = 10
# somebody has to make room first
_FULL_DISK_RETRY_S = 60
# a hostile record could have millions
_MAX_ERRORS = 10
# before a request has an id of its own
_NO_INSTANCE = "urn:uuid:00000000-0000-0000-0000-000000000000"


class Problem(BaseModel):
    """RFC 9457."""

    type: str = Field(description="A stable URN of the kind of problem.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with the request, and what to do.")
    instance: str | None = Field(default=None, description="ID of the request in the server's log.")
    errors: list[dict[str, str]] | None = Field(
        default=None, description="Invalid values and their places."
    )


_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The token is for another project, or lacks the scope.",
    404: "Not found, or not visible to the token.",
    408: "The body took too long.",
    409: "Conflict: other content under a known ID, or a state that has changed.",
    410: "Removed by retention.",
    413: "The body is too large.",
    415: "Unsupported media type or encoding.",
    422: "Invalid value.",
    429: "Too many requests, or too many wrong tokens; see Retry-After.",
    503: "Unavailable, for example because the database is down; see Retry-After.",
    507: "The database's disk is full; see Retry-After.",
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "model": Problem,
        "description": text,
        "content": {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in _DESCRIPTIONS.items()
}
"""Error responses of a route, for OpenAPI."""


class ProblemError(Exception):
    """A refused request. `kind` is the end of the problem's URN; `detail` says what is wrong and
    what to do.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})


def not_found(subject: str, hint: str) -> ProblemError:
    return ProblemError(
        404, "not-found", f"{subject}: not found, or not visible to this token; {hint}"
    )


def unavailable(detail: str, retry_after_s: float) -> ProblemError:
    return ProblemError(503, "unavailable", detail, {"Retry-After": str(math.ceil(retry_after_s))})


_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (AgedError, 410, "gone"),
    (NotStoredError, 404, "not-found"),
    (ConflictError, 409, "other-content"),
    (StaleTriageError, 409, "conflict"),
    (NotQuarantinedError, 409, "conflict"),
    (ClaimLostError, 409, "conflict"),
    (QueueFullError, 429, "queue-full"),
    (DecisionError, 422, "invalid"),
    (RecordError, 422, "invalid"),
    (IngestError, 422, "invalid"),
)
"""Errors whose message is the detail."""


def install(app: FastAPI) -> None:
    """Answer every error of an app with a problem document."""
    further_kinds = (
        ProblemError,
        HTTPException,
        ClientDisconnect,
        StoreError,
        DBAPIError,
        PoolTimeoutError,
    )
    for kind in (*(row[0] for row in _KINDS), *further_kinds):
        app.add_exception_handler(kind, _handle)

    @app.exception_handler(RequestValidationError)
    def _(request: Request, error: RequestValidationError) -> Response:
        # without the values, which may be long or secret
        fields: list[dict[str, str]] = []
        for field in error.errors()[:_MAX_ERRORS]:
            path = ".".join(map(str, field["loc"]))
            fields.append({"where": path[:200], "message": str(field["msg"])[:300]})
        detail = "; ".join(f"{field['where']}: {field['message']}" for field in fields)
        problem = ProblemError(422, "invalid", f"{detail}; see /v1/openapi.json")
        return problem_response(problem, _instance(request), errors=fields)


def problem_response(problem: ProblemError, instance: str, **more: Any) -> Response:
    """The problem document; `instance` is the request's ID, `more` are further fields."""
    document = {
        "type": f"urn:roofwatch:problem:{problem.kind}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
    } | more
    return Response(orjson.dumps(document), problem.status, problem.headers, _MEDIA_TYPE)


def _handle(request: Request, error: Exception) -> Response:
    return problem_response(_to_problem(request, error), _instance(request))


def _to_problem(request: Request, error: Exception) -> ProblemError:
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, HTTPException):
        # the framework's own errors have the same form as ours
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
        return ProblemError(
            error.status_code, kind, f"{error.detail}; see /v1/openapi.json", error.headers
        )
    if isinstance(error, ClientDisconnect):
        return ProblemError(408, "timed-out", "the connection broke within the body; send it again")
    if isinstance(error, DataError):
        return ProblemError(422, "invalid", "the database cannot hold a value")
    for kind_of_error, status, kind in _KINDS:
        if isinstance(error, kind_of_error):
            return ProblemError(status, kind, str(error))
    cause = error.orig if isinstance(error, DBAPIError) else error
    # a message of the database may have line breaks
    printable = "".join(char if char.isprintable() else " " for char in str(cause))
    request.app.state.shared.health.database.note_failure(" ".join(printable.split())[:500])
    # a full disk needs a person, so it says so
    if is_full(error):
        detail = (
            "the disk of the database is full; nothing was stored: send it again once the "
            "operator has freed space"
        )
        return ProblemError(507, "full-disk", detail, {"Retry-After": str(_FULL_DISK_RETRY_S)})
    return unavailable(
        "the database is unavailable; nothing was stored: try again later", _DATABASE_RETRY_S
    )


def _instance(request: Request) -> str:
    return str(getattr(request.state, "instance", _NO_INSTANCE))
