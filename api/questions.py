"""Questions of a dashboard that reads through the API instead of a database."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.responses import Response

from roofwatch.api.auth import Reader
from roofwatch.api.models import check_is_json, make_router, parse_body
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.state import state_of
from roofwatch.db.queries.questions import QUESTIONS, answer_to_json, subjects_of

router = make_router("questions")

Name = Annotated[
    str,
    Path(
        pattern=r"^[a-z_]{1,50}$",
        description="Of the question.",
        json_schema_extra={"enum": sorted(QUESTIONS)},
    ),
]


async def _document(request: Request) -> AsyncIterator[bytes]:
    """Read after authentication, as `JsonBody` does."""
    check_is_json(request)
    state = state_of(request)
    async with state.bodies.read(
        request, state.limits.question_bytes, hint="select less"
    ) as document:
        yield document


@router.post(
    "/v1/questions/{question}",
    summary="Answer a question of the dashboard",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Parameters of the question.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def post_question(
    request: Request,
    reader: Reader,
    question: Name,
    document: Annotated[bytes, Depends(_document)],
) -> Response:
    """Answer one question of a dashboard of the same version. Other clients should use the other
    routes.
    """
    definition = QUESTIONS.get(question)
    if definition is None:
        raise not_found("this question", "dashboard and server must have the same version")
    parameters = parse_body(definition.parameters, document)
    state = state_of(request)
    with state.reading() as session:
        # names of projects and runs are in the parameters, and each needs access
        reader.check_subjects(session, subjects_of(parameters))
        answer = definition.ask(session, **vars(parameters))
    content, max_bytes = answer_to_json(answer), state.limits.answer_bytes
    # a page that asks for too much should ask for less
    if len(content) > max_bytes:
        detail = f"the answer would have {len(content)} bytes, more than {max_bytes}"
        raise ProblemError(422, "too-large", f"{detail}: select fewer cases or a shorter time")
    return Response(content, media_type="application/json")
