"""The queue of people's jobs: request, follow and cancel them."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from roofwatch.api.auth import Principal, Requester
from roofwatch.api.models import (
    Cursor,
    JsonBody,
    Limit,
    Line,
    Page,
    Project,
    as_json,
    make_router,
    page_by_position,
)
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.state import State, state_of
from roofwatch.db.queue import (
    cancel_queued_job,
    forecast_job,
    list_queued_jobs,
    read_lines,
    read_queued_job,
    read_result,
    request_queued_job,
    store_tree,
)
from roofwatch.model.history import Scope
from roofwatch.model.queue import (
    QUEUED_COMMANDS,
    JobPriority,
    QueuedJob,
    QueueForecast,
    QueueRequest,
)

router = make_router("queue")

SIZE_HINT = "send less: commit fewer large files, or ignore them"
_BINARY: dict[str, Any] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
BINARY_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _BINARY}}
BINARY_ANSWER: dict[int | str, dict[str, Any]] = {200: {"content": _BINARY}}
Word = Annotated[str, Field(max_length=2_000, pattern=r"^[^\x00]*$")]
JobId = Annotated[UUID, Path(description="A job.")]


class NewQueuedJob(BaseModel):
    """A command for the runners of a class. Its tree is sent next."""

    model_config = ConfigDict(extra="forbid")

    runner_class: Annotated[Line, Field(max_length=200)]
    command: Annotated[list[Word], Field(min_length=1, max_length=100)]
    folder: Annotated[Word, Field(description="In which it runs, relative to the tree.")] = ""
    priority: JobPriority = JobPriority.NORMAL

    @field_validator("command")
    @classmethod
    def _is_of_the_queue(cls, command: list[str]) -> list[str]:
        if command[0] not in QUEUED_COMMANDS:
            raise ValueError(f"the first word must be one of {', '.join(QUEUED_COMMANDS)}")
        return command

    @field_validator("folder")
    @classmethod
    def _is_inside(cls, folder: str) -> str:
        path = PurePosixPath(folder)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must be a folder of the tree")
        return folder


class RequestedJob(BaseModel):
    job: QueuedJob
    forecast: QueueForecast


class FollowedJob(BaseModel):
    job: QueuedJob
    lines: list[str] = Field(description="Progress from the number on that was asked for.")


class Cancellation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=2_000, description="Kept in the audit trail.")


class JobAccepted(BaseModel):
    """The request was carried out."""

    status: Literal["ok"] = "ok"


@router.post(
    "/v1/queue/jobs",
    summary="Request a job",
    response_model=RequestedJob,
)
async def post_job(
    request: Request,
    requester: Requester,
    project: Project,
    new: Annotated[NewQueuedJob, Depends(JsonBody(NewQueuedJob))],
) -> Response:
    """Queue a command for the runners of a class. Runners take it once its tree is stored."""
    requester.check_project(project)
    # everybody's jobs are urgent to themselves
    if new.priority is JobPriority.HIGH and Scope.ADMIN not in requester.scopes:
        raise ProblemError(403, "forbidden", "priority high needs the scope admin; use normal")
    queue_request = QueueRequest(
        runner_class=new.runner_class,
        command=tuple(new.command),
        folder=new.folder,
        priority=new.priority,
    )
    state = state_of(request)

    def store() -> RequestedJob:
        job_id = request_queued_job(
            state.engine,
            project,
            queue_request,
            actor=requester.actor,
            device_minutes=requester.device_minutes,
        )
        with state.reading() as session:
            job = read_queued_job(session, job_id)
            assert job is not None
            return RequestedJob(job=job, forecast=forecast_job(session, job))

    return as_json(await run_in_threadpool(store))


@router.put(
    "/v1/queue/jobs/{job_id}/tree",
    summary="Send the tree of a job",
    response_model=JobAccepted,
    openapi_extra=BINARY_BODY,
)
async def put_tree(request: Request, requester: Requester, job_id: JobId) -> Response:
    """Store a git bundle for a job, once."""
    state = state_of(request)
    job = await run_in_threadpool(see_job, state, requester, job_id)
    _check_owner(requester, job)
    async with (
        state.bodies.read(request, state.limits.body_bytes, hint=SIZE_HINT) as content,
        state.turn(),
    ):
        await run_in_threadpool(store_tree, state.engine, job_id, content)
    return as_json(JobAccepted())


@router.get("/v1/queue/jobs", summary="List jobs", response_model=Page[QueuedJob])
def get_jobs(
    request: Request,
    requester: Requester,
    project: Project,
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Unfinished jobs of a project in the order of requests, then those of seven days, the newest
    first.
    """
    requester.check_project(project)
    with state_of(request).reading() as session:
        jobs = list_queued_jobs(session, [project])
    return page_by_position(jobs, limit, cursor)


@router.get("/v1/queue/jobs/{job_id}", summary="Follow a job", response_model=FollowedJob)
def get_job(
    request: Request,
    requester: Requester,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, lt=2**31, description="Number of lines seen.")] = 0,
) -> Response:
    """State of a job, and its next lines of progress."""
    state = state_of(request)
    job = see_job(state, requester, job_id)
    with state.reading() as session:
        lines = list(read_lines(session, job_id, after))
    return as_json(FollowedJob(job=job, lines=lines))


@router.get(
    "/v1/queue/jobs/{job_id}/result",
    summary="Download the result of a job",
    response_class=Response,
    responses=BINARY_ANSWER,
)
def get_result(request: Request, requester: Requester, job_id: JobId) -> Response:
    """What the runner returned: a gzipped tar file of the output and the written files."""
    state = state_of(request)
    see_job(state, requester, job_id)
    with state.reading() as session:
        content = read_result(session, job_id)
    return Response(content, media_type="application/octet-stream")


@router.post(
    "/v1/queue/jobs/{job_id}/cancel",
    summary="Cancel a job",
    response_model=JobAccepted,
)
async def post_cancel(
    request: Request,
    requester: Requester,
    job_id: JobId,
    cancellation: Annotated[Cancellation, Depends(JsonBody(Cancellation))],
) -> Response:
    """Cancel a waiting job at once; a running one ends when its runner reports next."""
    state = state_of(request)
    job = await run_in_threadpool(see_job, state, requester, job_id)
    _check_owner(requester, job)
    await run_in_threadpool(
        lambda: cancel_queued_job(
            state.engine,
            job,
            actor=requester.actor,
            reason=cancellation.reason,
        )
    )
    return as_json(JobAccepted())


def see_job(state: State, principal: Principal, job_id: UUID) -> QueuedJob:
    """Read a job.

    Raises:
        ProblemError: there is none, or the principal may not see its project.
    """
    with state.reading() as session:
        job = read_queued_job(session, job_id)
    if job is None or not principal.may_see(job.project):
        raise not_found(f"job {job_id}", "see GET /v1/queue/jobs")
    return job


def _check_owner(principal: Principal, job: QueuedJob) -> None:
    if principal.actor != job.requested_by and Scope.ADMIN not in principal.scopes:
        raise ProblemError(
            403, "forbidden", f"{job.requested_by} asked for this job; only it or admin may do this"
        )
