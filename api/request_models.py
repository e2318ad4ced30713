"""What a person sends as a short JSON document. It is read after who sends it was let in, and no further than its
limit: a parameter with a pydantic type would have FastAPI take the body whole before anything asks for a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from roofwatch.api.problems import ProblemError
from roofwatch.api.state import state_of

M = TypeVar("M", bound=BaseModel)


def sent(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the body as such a document. In a route's parameters it comes after who is asking.

    The dependency raises:
        ProblemError: a form that is not known, too long, or too slow.
        RequestValidationError: not JSON, or not such a document.
    """

    async def read(request: Request) -> M:
        check_is_json(request, "this")
        state = state_of(request)
        body = await state.uploads.read(request, state.limits.decision_bytes, way_out="say it in fewer words")
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise invalid_body(error) from None

    return read


def invalid_body(error: ValidationError) -> RequestValidationError:
    """What is answered to a body that is not as it has to be."""
    found = [{"loc": ("body", *one["loc"]), "msg": one["msg"]} for one in error.errors(include_input=False)]
    return RequestValidationError(found)


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of such a body. The types that it names are those of an answer of the same route."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def check_is_json(request: Request, what: str) -> None:
    """Raise ProblemError where the header says that the body is something else."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ProblemError(415, "unsupported-media", f"{what} is application/json; say so in Content-Type")
