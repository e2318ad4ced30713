"""What the routes take and give beyond the values of the store: parameters, bodies, pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import orjson
from fastapi import Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field, StringConstraints, ValidationError
from pydantic_core import to_json

from roofwatch.api.problems import ProblemError
from roofwatch.api.state import state_of
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.values import Regression

RUN_ID = "0b9c6c8e-9a1e-4a0e-8f6e-2f1c1c0a7d11"
OTHER_RUN_ID = "3d6f0a52-8c1b-4b7e-9a57-6f1de0c9b2a4"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_LARGEST = 2**63 - 1
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"

PROJECT_PATTERN = r"^[\w.][\w./-]*$"
Project = Annotated[
    str,
    Query(min_length=1, max_length=200, pattern=PROJECT_PATTERN, description="A project.", examples=["owner/kernels"]),
]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Entries of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=8_000, description="`next` of the page before; left out for the first page.")
]
Word = Annotated[str, Query(max_length=500, pattern=_NO_CONTROLS)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=_NO_CONTROLS)]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(description="The cursor of the next page; null on the last one.")


class Stored(BaseModel):
    """A record that the server has, on disk."""

    run_id: str
    content_hash: str = Field(description="sha256 of what the record says; a client compares it with its own.")
    project: str
    was_new: bool = Field(description="False where the very same record was stored before.")
    is_quarantined: bool = Field(description="Nobody vouches for it: it is shown, and nothing counts it.")
    lacking_artefacts: list[str] = Field(
        default=[], description="sha256 of each file that the record names and that is to be sent yet."
    )

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "run_id": RUN_ID,
                    "content_hash": SHA256,
                    "project": "owner/kernels",
                    "was_new": True,
                    "is_quarantined": False,
                    "lacking_artefacts": [],
                }
            ]
        }
    }


class HeldArtefact(BaseModel):
    """A file of a run that the server has, on disk."""

    run_id: str
    sha256: str
    size_bytes: int
    was_new: bool = Field(description="False where the run had it before.")

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "run_id": RUN_ID,
                    "sha256": SHA256,
                    "size_bytes": 4,
                    "was_new": True,
                }
            ]
        }
    }


class TriagedRegression(BaseModel):
    """A regression, and what people decided about it."""

    regression_id: str = Field(description="The same in every judgement.")
    regression: Regression
    triage: Triage


class Decision(BaseModel):
    """What somebody decides about a regression."""

    state: TriageState
    person: Annotated[Line, Field(max_length=200, description="Who decides.")]
    reason: Annotated[Sentence, Field(description="Why; it stays in the audit trail.")]
    expected: TriageState | None = Field(
        default=None, description="What it was when the person looked; refused with 409 if it is no longer."
    )

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [
                {
                    "state": "expected",
                    "person": "Example Engineer",
                    "reason": "The price of the exact sum; agreed in the review.",
                    "expected": "new",
                }
            ]
        },
    }


class Release(BaseModel):
    """Why a run may leave quarantine."""

    person: Annotated[Line, Field(max_length=200, description="Who vouches for the record.")]
    reason: Sentence

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [{"person": "Example Engineer", "reason": "Measured again on our own runner: the same."}]
        },
    }


class Comparison(BaseModel):
    """Two commits against each other."""

    base_run_id: str
    head_run_id: str
    exit_code: int = Field(description="0 fine, 1 a regression, 2 it cannot be told.")
    judgement: dict[str, Any] = Field(description="As `roofwatch compare --json` prints it.")


class ComparedRuns(BaseModel):
    """What two sides of a comparison stand for."""

    base_run_id: str
    head_run_id: str
    noise_floor: NoiseFloor | None = Field(
        default=None,
        description="By the newest stored calibrations of the head's runner; null if it was not asked for.",
    )

    model_config = {"json_schema_extra": {"examples": [{"base_run_id": RUN_ID, "head_run_id": OTHER_RUN_ID}]}}


class Health(BaseModel):
    status: str


def page(found: Sequence[T], limit: int, key: Callable[[T], Sequence[str | int]]) -> Response:
    """A page of a list.

    Args:
        found: From the first entry of the page on, one more than fits where there are more.
        limit: Entries that fit.
        key: What the cursor holds of an entry: entries that come in between shift nothing.
    """
    items = list(found[:limit])
    return as_json(Page(items=items, next=cursor_after(key(items[-1])) if len(found) > limit else None))


def cursor_after(key: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(list(key))).decode()


def read_cursor(cursor: str, *kinds: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The parts of a cursor, each made by its kind.

    Raises:
        ProblemError: it is not one of this list.
    """
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(cursor.encode()))
        # `true` is a number to Python, and no number is larger than what the database has
        if not isinstance(parts, list) or any(type(part) not in (int, str) or "\0" in str(part) for part in parts):
            raise ValueError("not a key")
        return tuple(kind(part) for kind, part in zip(kinds, parts, strict=True))
    except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error):
        raise ProblemError(400, "bad-request", "the cursor is none of this list; begin without one") from None


def position(value: object) -> int:
    """A part of a cursor that is a place in a list."""
    if not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError("not a position")
    return value


def as_json(value: object, status: int = 200) -> Response:
    """A response with a model or a dataclass; NaN and the infinities are null."""
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


def json_body(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads a short JSON body. In a route's parameters it comes after the principal.

    A parameter with a pydantic type would have FastAPI read the body before anything asks for a token.

    The dependency raises:
        ProblemError: another media type, too long, or too slow.
        RequestValidationError: not JSON, or not such a document.
    """

    async def read(request: Request) -> M:
        check_is_json(request, "this")
        state = state_of(request)
        limit = state.limits.decision_bytes
        async with state.bodies.read(request, limit, way_out="say it in fewer words") as body:
            try:
                return model.model_validate_json(body)
            except ValidationError as error:
                raise invalid_body(error) from None

    return read


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of such a body. The types that it names are those of an answer of the same route."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def check_is_json(request: Request, what: str) -> None:
    """Raise ProblemError where the header says that the body is something else."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ProblemError(415, "unsupported-media", f"{what} is application/json; say so in Content-Type")


def invalid_body(error: ValidationError) -> RequestValidationError:
    """What is answered to a body that is not as it has to be."""
    found = [{"loc": ("body", *one["loc"]), "msg": one["msg"]} for one in error.errors(include_input=False)]
    return RequestValidationError(found)
