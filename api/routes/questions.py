"""The questions of a reader by their names, for a dashboard that has no database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from pydantic import ValidationError

from roofwatch.api.access import Reader
from roofwatch.api.documents import PROBLEMS, QUESTION_BODY
from roofwatch.api.permissions import check_concerned
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.request_models import check_is_json, invalid_body
from roofwatch.api.state import state_of
from roofwatch.db.queries.question import written
from roofwatch.db.queries.questions import QUESTIONS

router = APIRouter(tags=["questions"])

Name = Annotated[
    str, Path(pattern=r"^[a-z_]{1,50}$", description="Of the question.", json_schema_extra={"enum": sorted(QUESTIONS)})
]


async def _document(request: Request) -> AsyncIterator[bytes]:
    """Read once it is known who asks, as `roofwatch.api.request_models` has it."""
    check_is_json(request, "a question")
    state = state_of(request)
    # who waits to be answered holds it
    async with state.uploads.held(request, state.limits.question_bytes, way_out="ask about less at once") as document:
        yield document


@router.post(
    "/v1/questions/{question}",
    summary="Ask as the dashboard does",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}}, **PROBLEMS},
    openapi_extra=QUESTION_BODY,
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
        asked = known.asked.model_validate_json(document)
    except ValidationError as error:
        raise invalid_body(error) from None
    if known.known_projects is not None and reader.projects is not None:
        asked = asked.model_copy(update={known.known_projects: frozenset(reader.projects)})
    state = state_of(request)
    with state.reading() as session:
        check_concerned(session, reader, known.concerned(asked))
        answer = known.ask_by(session, asked)
    return _response(written(answer), state.limits.answer_bytes)


def _response(document: bytes, max_bytes: int) -> Response:
    if len(document) > max_bytes:
        detail = f"the answer would have {len(document)} bytes, more than the {max_bytes} that are sent"
        raise ProblemError(422, "too-large", f"{detail}: ask about fewer cases, or a shorter time")
    return Response(document, media_type="application/json", headers={"Cache-Control": "no-store"})
