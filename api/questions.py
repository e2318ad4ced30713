"""The questions of a reader by their names, for a dashboard that has no database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from pydantic import ValidationError

from roofwatch.api.auth import Reader
from roofwatch.api.models import check_is_json, invalid_body
from roofwatch.api.problems import PROBLEMS, ProblemError, not_found
from roofwatch.api.state import state_of
from roofwatch.db.queries.question import answer_to_json
from roofwatch.db.queries.questions import QUESTIONS

router = APIRouter(tags=["questions"], responses=PROBLEMS)

Name = Annotated[
    str, Path(pattern=r"^[a-z_]{1,50}$", description="Of the question.", json_schema_extra={"enum": sorted(QUESTIONS)})
]


async def _document(request: Request) -> AsyncIterator[bytes]:
    """Read after authentication, as `json_body` does."""
    check_is_json(request, "a question")
    state = state_of(request)
    async with state.bodies.read(request, state.limits.question_bytes, way_out="ask about less at once") as document:
        yield document


@router.post(
    "/v1/questions/{question}",
    summary="Ask as the dashboard does",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "What the question takes, by name.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def post_question(
    request: Request, reader: Reader, question: Name, document: Annotated[bytes, Depends(_document)]
) -> Response:
    """Answer one question of a dashboard, which reads through this server instead of a database. It changes nothing.

    What a question takes and what it answers changes with the version of roofwatch, and is no promise to others: the
    other routes are.
    """
    known = QUESTIONS.get(question)
    if known is None:
        raise not_found("this question", "ask by a dashboard of this server's version: update the older of the two")
    try:
        asked = known.parameters.model_validate_json(document)
    except ValidationError as error:
        raise invalid_body(error) from None
    if known.known_projects is not None and reader.projects is not None:
        asked = asked.model_copy(update={known.known_projects: frozenset(reader.projects)})
    state = state_of(request)
    with state.reading() as session:
        reader.check_scope(session, known.scope(asked))
        answer = known.ask_with(session, asked)
    content, max_bytes = answer_to_json(answer), state.limits.answer_bytes
    if len(content) > max_bytes:
        detail = f"the answer would have {len(content)} bytes, more than the {max_bytes} that are sent"
        raise ProblemError(422, "too-large", f"{detail}: ask about fewer cases, or a shorter time")
    return Response(content, media_type="application/json")
