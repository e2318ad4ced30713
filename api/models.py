"""Parameters, bodies and pages of the routes."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import to_json

from roofwatch.api.problems import PROBLEMS, ProblemError
from roofwatch.api.state import state_of
from roofwatch.db.regressions.deciding import DecisionKind
from roofwatch.model.queue import NO_CONTROLS
from roofwatch.model.triage import TriageState

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


Project = Annotated[
    str,
    Query(
        min_length=1,
        max_length=200,
        pattern=r"^[\w.][\w./-]*$",
        description="A project.",
        examples=["owner/kernels"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of items of a page.")]
Position = Annotated[int, Field(ge=0, lt=2**63)]
"""Part of a cursor that is an index or an ID."""
Cursor = Annotated[str | None, Query(max_length=8_000, description="`next` of the previous page.")]
Word = Annotated[str, Query(max_length=500, pattern=NO_CONTROLS)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=NO_CONTROLS)]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(description="Cursor of the next page; null on the last one.")


class Stored(BaseModel):
    """A record that is stored on disk."""

    run_id: str
    content_hash: str = Field(
        description="sha256 of the record's content, for the client to compare."
    )
    project: str
    was_new: bool = Field(description="False if the same record was stored before.")
    is_quarantined: bool = Field(description="From an untrusted source: shown, but not analysed.")
    lacking_artefacts: list[str] = Field(
        default=[], description="sha256 of each named file that was not sent yet."
    )


class StoredFile(BaseModel):
    """A file of a run that is stored on disk."""

    run_id: str
    sha256: str
    size_bytes: int
    was_new: bool = Field(description="False if the run had it before.")


class Decision(BaseModel):
    """A triage decision."""

    model_config = ConfigDict(extra="forbid")

    decision: DecisionKind
    value: str = Field(
        default="",
        max_length=500,
        description="Who is assigned, the address of the issue, or the end of a snooze: `7d`, a "
        "date or a commit. Empty removes it.",
    )
    person: Annotated[Line, Field(max_length=200, description="Who decides.")]
    reason: str = Field(
        default="",
        max_length=2_000,
        description="Kept in the audit trail; required for decisions that set a state.",
    )
    expected: TriageState | None = Field(
        default=None, description="Refuse with 409 if the state is another."
    )


class Release(BaseModel):
    """Why a run may leave quarantine."""

    model_config = ConfigDict(extra="forbid")

    person: Annotated[Line, Field(max_length=200, description="Who vouches for the record.")]
    reason: Sentence


class ComparedCommits(BaseModel):
    base_run_id: str
    head_run_id: str
    exit_code: int = Field(description="0: fine. 1: regression. 2: inconclusive.")
    judgement: dict[str, Any] = Field(description="As `roofwatch compare --json` prints it.")


class Health(BaseModel):
    status: str


def page(following: Sequence[T], limit: int, key: Callable[[T], object]) -> Response:
    """Respond with a page of a list.

    Args:
        following: From the first item of the page; one more than `limit` if there is another page.
        limit: Maximum number of items.
        key: What the cursor holds of the last item: its place in the order of the list.
    """
    items = list(following[:limit])
    cursor = None
    if len(following) > limit:
        cursor = cursor_after(key(items[-1]))
    return as_json(Page(items=items, next=cursor))


def page_of(
    whole: Sequence[T],
    limit: int,
    cursor: str | None,
    key: Callable[[T], Any],
    kind: type[Any],
) -> Response:
    """Respond with the page after a cursor of a short list,
    which is ordered by a key of some type.
    """
    after = read_cursor(cursor, kind)
    return page([item for item in whole if after is None or key(item) > after], limit, key)


def page_by_position(whole: Sequence[T], limit: int, cursor: str | None) -> Response:
    """Respond with the page after a cursor of a short list whose order no field of its items gives.

    The cursor is the position of an item, so a page may skip or repeat items that moved meanwhile.
    """
    start = 0
    last_position = read_cursor(cursor, int)
    if last_position is not None:
        start = max(last_position + 1, 0)
    end = start + limit
    next_cursor = None
    if end < len(whole):
        next_cursor = cursor_after(end - 1)
    return as_json(Page(items=list(whole[start:end]), next=next_cursor))


def cursor_after(key: object) -> str:
    return base64.urlsafe_b64encode(to_json(key)).decode()


def read_cursor(cursor: str | None, kind: type[T]) -> T | None:
    """Parse a cursor as the type of its key; None without a cursor.

    Raises:
        ProblemError: not a cursor of this list.
    """
    if cursor is None:
        return None
    try:
        return TypeAdapter(kind).validate_json(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError:
        raise ProblemError(
            400, "bad-request", "not a cursor of this list; start without one"
        ) from None


def as_json(value: object, status: int = 200) -> Response:
    """Respond with a model or a dataclass; NaN and infinity become null."""
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


class JsonBody(Generic[M]):
    """A dependency that reads a short JSON body, after the principal among a route's parameters.

    FastAPI itself would read a body parameter before authentication.
    """

    def __init__(self, model: type[M]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> M:
        """Read the body.

        Raises:
            ProblemError: another media type, too long, or too slow.
            RequestValidationError: not valid JSON of the model.
        """
        check_is_json(request)
        state = state_of(request)
        async with state.bodies.read(
            request, state.limits.decision_bytes, hint="write less"
        ) as body:
            return parse_body(self.model, body)


class _DescribedRoute(APIRoute):
    """A route whose description has the JSON body that it reads."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        for dependency in self.dependant.dependencies:
            if isinstance(dependency.call, JsonBody):
                self.openapi_extra = _body_schema(dependency.call.model)


def make_router(tag: str) -> APIRouter:
    return APIRouter(tags=[tag], responses=PROBLEMS, route_class=_DescribedRoute)


def _body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI of such a body, with the types that it refers to in place."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    whole = _in_place(schema, definitions)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": whole}}}}


def _in_place(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Replace references by what they refer to; no definition refers to itself."""
    if isinstance(node, list):
        return [_in_place(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return _in_place(definitions[name], definitions)
    return {key: _in_place(value, definitions) for key, value in node.items()}


def check_is_json(request: Request) -> None:
    """Raise ProblemError if the header names another media type."""
    media_type = (
        request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    )
    if media_type != "application/json":
        raise ProblemError(415, "unsupported-media", "the body must be application/json")


def parse_body(model: type[M], body: bytes) -> M:
    """Parse JSON, or raise RequestValidationError."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = [
            {"loc": ("body", *problem["loc"]), "msg": problem["msg"]}
            for problem in error.errors(include_input=False)
        ]
        raise RequestValidationError(problems) from None
