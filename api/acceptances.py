"""What was accepted in pull requests."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from roofwatch.api.auth import Reader, Triager
from roofwatch.api.models import (
    Cursor,
    JsonBody,
    Limit,
    Line,
    Page,
    Project,
    Sentence,
    as_json,
    make_router,
    page_by_position,
)
from roofwatch.api.state import state_of
from roofwatch.db.regressions.acceptances import list_acceptances, store_acceptance
from roofwatch.model.acceptance import MAX_BOUNDS, Grain, PullRequestAcceptance

router = make_router("acceptances")

_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
_Size = Annotated[float, Field(ge=0, le=1e32, allow_inf_nan=False)]


class NewAcceptance(BaseModel):
    """What a comment on a pull request accepted."""

    model_config = ConfigDict(extra="forbid")

    pull_request: Annotated[str, Field(pattern=r"^[#!][1-9][0-9]{0,8}$")]
    comment_id: Annotated[int, Field(ge=0, lt=2**63)]
    head_sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
    person: Annotated[Line, Field(max_length=200)]
    reason: Sentence
    accepted_at: AwareDatetime
    most: Annotated[dict[_Key, _Size], Field(max_length=MAX_BOUNDS)]
    grain: Grain
    wrong_results: bool


class AcceptanceAnswer(BaseModel):
    was_new: bool = Field(description="False if it was stored before, for this commit.")


@router.post(
    "/v1/acceptances",
    summary="Store an acceptance",
    response_model=AcceptanceAnswer,
)
async def post_acceptance(
    request: Request,
    triager: Triager,
    project: Project,
    acceptance: Annotated[NewAcceptance, Depends(JsonBody(NewAcceptance))],
) -> Response:
    """Store what was accepted in a pull request. A regression that it covers raises no alert once
    the pull request is merged. The audit trail records it.
    """
    triager.check_project(project)
    shared = state_of(request)
    was_new = await run_in_threadpool(
        store_acceptance,
        shared.engine,
        project,
        PullRequestAcceptance(**dict(acceptance)),
        triager.actor,
    )
    if was_new:
        shared.wake_worker()
    return as_json(AcceptanceAnswer(was_new=was_new))


@router.get(
    "/v1/acceptances",
    summary="List acceptances",
    response_model=Page[PullRequestAcceptance],
)
def get_acceptances(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """What was accepted in pull requests of a project, the newest first."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        acceptances = list_acceptances(session, project)
    return page_by_position(acceptances, limit, cursor)
