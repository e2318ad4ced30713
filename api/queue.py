"""The queue of people's jobs: request, follow, cancel; and what runners do with them."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from roofwatch.api.auth import JobRunner, Principal, Requester
from roofwatch.api.models import (
    Cursor,
    Limit,
    Line,
    Page,
    Project,
    as_json,
    body_schema,
    json_body,
    page_by_position,
)
from roofwatch.api.problems import PROBLEMS, ProblemError, not_found
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
from roofwatch.db.queue_runners import (
    finish_queued_job,
    list_waiting_projects,
    read_tree,
    release_queued_job,
    report_progress,
    take_queued_job,
)
from roofwatch.model.history import Scope
from roofwatch.model.queue import (
    QUEUED_COMMANDS,
    JobOutcome,
    JobPriority,
    QueuedJob,
    QueueForecast,
    QueueRequest,
    TakenJob,
)

router = APIRouter(tags=["queue"], responses=PROBLEMS)

_HINT = "send less: commit fewer large files, or ignore them"
_BINARY: dict[str, Any] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
_BINARY_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _BINARY}}
_BINARY_ANSWER: dict[int | str, dict[str, Any]] = {200: {"content": _BINARY}}
_Word = Annotated[str, Field(max_length=2_000, pattern=r"^[^\x00]*$")]
_Job = Annotated[UUID, Path(description="A job.")]
_Claim = Annotated[UUID, Query(description="Of the runner, as when it took the job.")]


class NewQueuedJob(BaseModel):
    """A command for the runners of a class. Its tree is sent next."""

    model_config = ConfigDict(extra="forbid")

    runner_class: Annotated[Line, Field(max_length=200)]
    command: Annotated[list[_Word], Field(min_length=1, max_length=100)]
    folder: Annotated[_Word, Field(description="In which it runs, relative to the tree.")] = ""
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


class Availability(BaseModel):
    """A runner that is free."""

    model_config = ConfigDict(extra="forbid")

    runner_class: Annotated[Line, Field(max_length=200, description="That of the token.")]
    claim_id: UUID = Field(description="New for each job.")
    runner: Annotated[Line, Field(max_length=200, description="Name of the machine.")]


class Assignment(BaseModel):
    job: TakenJob | None = Field(description="Null if no job waits.")


class ProgressReport(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim_id: UUID
    lines: Annotated[list[_Word], Field(max_length=500)]


class ProgressAnswer(BaseModel):
    is_cancelled: bool = Field(description="The runner shall end the command, and finish the job.")


class ClaimedJob(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim_id: UUID


class Cancellation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=2_000, description="Kept in the audit trail.")


class EndedJob(BaseModel):
    outcome: JobOutcome


class JobAccepted(BaseModel):
    """The request was carried out."""

    status: Literal["ok"] = "ok"


# --- people


@router.post(
    "/v1/queue/jobs",
    summary="Request a job",
    response_model=RequestedJob,
    openapi_extra=body_schema(NewQueuedJob),
)
async def post_job(
    request: Request,
    requester: Requester,
    project: Project,
    new: Annotated[NewQueuedJob, Depends(json_body(NewQueuedJob))],
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
    openapi_extra=_BINARY_BODY,
)
async def put_tree(request: Request, requester: Requester, job_id: _Job) -> Response:
    """Store a git bundle for a job, once."""
    state = state_of(request)
    job = await run_in_threadpool(_see_job, state, requester, job_id)
    _check_owner(requester, job)
    async with (
        state.bodies.read(request, state.limits.body_bytes, hint=_HINT) as content,
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
    job_id: _Job,
    after: Annotated[int, Query(ge=0, lt=2**31, description="Number of lines seen.")] = 0,
) -> Response:
    """State of a job, and its next lines of progress."""
    state = state_of(request)
    job = _see_job(state, requester, job_id)
    with state.reading() as session:
        lines = list(read_lines(session, job_id, after))
    return as_json(FollowedJob(job=job, lines=lines))


@router.get(
    "/v1/queue/jobs/{job_id}/result",
    summary="Download the result of a job",
    response_class=Response,
    responses=_BINARY_ANSWER,
)
def get_result(request: Request, requester: Requester, job_id: _Job) -> Response:
    """What the runner returned: a gzipped tar file of the output and the written files."""
    state = state_of(request)
    _see_job(state, requester, job_id)
    with state.reading() as session:
        content = read_result(session, job_id)
    return Response(content, media_type="application/octet-stream")


@router.post(
    "/v1/queue/jobs/{job_id}/cancel",
    summary="Cancel a job",
    response_model=JobAccepted,
    openapi_extra=body_schema(Cancellation),
)
async def post_cancel(
    request: Request,
    requester: Requester,
    job_id: _Job,
    cancellation: Annotated[Cancellation, Depends(json_body(Cancellation))],
) -> Response:
    """Cancel a waiting job at once; a running one ends when its runner reports next."""
    state = state_of(request)
    job = await run_in_threadpool(_see_job, state, requester, job_id)
    _check_owner(requester, job)
    await run_in_threadpool(
        lambda: cancel_queued_job(
            state.engine, job, actor=requester.actor, reason=cancellation.reason
        )
    )
    return as_json(JobAccepted())


def _see_job(state: State, principal: Principal, job_id: UUID) -> QueuedJob:
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


# --- runners


def _see_runners_job(state: State, runner: Principal, job_id: UUID) -> None:
    """Raise ProblemError unless the job is of the runner's class and projects."""
    job = _see_job(state, runner, job_id)
    if job.runner_class != runner.runner_class:
        raise not_found(f"job {job_id}", "this token is of another runner class")


@router.post(
    "/v1/queue/take",
    summary="Take a job",
    response_model=Assignment,
    openapi_extra=body_schema(Availability),
)
async def post_take(
    request: Request,
    runner: JobRunner,
    free: Annotated[Availability, Depends(json_body(Availability))],
) -> Response:
    """Lease the next job of the token's runner class. The lease lasts a minute after each report.

    Order: priority, then the person who used the fewest minutes in 24 hours, then age.
    """
    runner_class = runner.runner_class
    assert runner_class is not None, "a token with this scope has a class"
    if free.runner_class != runner_class:
        raise ProblemError(
            403, "forbidden", f"this token takes jobs of {runner_class}, not {free.runner_class}"
        )
    state = state_of(request)

    def take() -> TakenJob | None:
        with state.reading() as session:
            waiting_projects = list_waiting_projects(session, runner_class)
        # a token for all projects does not see the trees of restricted ones
        return take_queued_job(
            state.engine,
            runner_class,
            [project for project in waiting_projects if runner.may_see(project)],
            claim_id=free.claim_id,
            runner=free.runner,
        )

    return as_json(Assignment(job=await run_in_threadpool(take)))


@router.get(
    "/v1/queue/jobs/{job_id}/tree",
    summary="Download the tree of a job",
    response_class=Response,
    responses=_BINARY_ANSWER,
)
def get_tree(request: Request, runner: JobRunner, job_id: _Job, claim_id: _Claim) -> Response:
    """The git bundle of a job that the runner holds."""
    state = state_of(request)
    _see_runners_job(state, runner, job_id)
    with state.reading() as session:
        content = read_tree(session, job_id, claim_id)
    return Response(content, media_type="application/octet-stream")


@router.post(
    "/v1/queue/jobs/{job_id}/progress",
    summary="Report progress",
    response_model=ProgressAnswer,
    openapi_extra=body_schema(ProgressReport),
)
async def post_progress(
    request: Request,
    runner: JobRunner,
    job_id: _Job,
    report: Annotated[ProgressReport, Depends(json_body(ProgressReport))],
) -> Response:
    """Renew the lease of a job, with new lines of progress."""
    state = state_of(request)
    await run_in_threadpool(_see_runners_job, state, runner, job_id)
    is_cancelled = await run_in_threadpool(
        report_progress, state.engine, job_id, report.claim_id, report.lines
    )
    return as_json(ProgressAnswer(is_cancelled=is_cancelled))


@router.post(
    "/v1/queue/jobs/{job_id}/release",
    summary="Give a job back",
    response_model=JobAccepted,
    openapi_extra=body_schema(ClaimedJob),
)
async def post_release(
    request: Request,
    runner: JobRunner,
    job_id: _Job,
    claimed: Annotated[ClaimedJob, Depends(json_body(ClaimedJob))],
) -> Response:
    """End the lease of a job that this runner cannot finish; another one takes it."""
    state = state_of(request)
    await run_in_threadpool(_see_runners_job, state, runner, job_id)
    await run_in_threadpool(release_queued_job, state.engine, job_id, claimed.claim_id)
    return as_json(JobAccepted())


@router.put(
    "/v1/queue/jobs/{job_id}/result",
    summary="Finish a job",
    response_model=EndedJob,
    openapi_extra=_BINARY_BODY,
)
async def put_result(
    request: Request,
    runner: JobRunner,
    job_id: _Job,
    claim_id: _Claim,
    exit_status: Annotated[int, Query(ge=-255, le=255, description="Of the command.")],
    spent_s: Annotated[float, Query(ge=0, le=1e6, allow_inf_nan=False)],
) -> Response:
    """Store the result of a job. Refused (409) if another runner has taken the job over."""
    state = state_of(request)
    await run_in_threadpool(_see_runners_job, state, runner, job_id)
    async with (
        state.bodies.read(request, state.limits.body_bytes, hint=_HINT) as content,
        state.turn(),
    ):
        outcome = await run_in_threadpool(
            lambda: finish_queued_job(
                state.engine,
                job_id,
                claim_id,
                exit_status=exit_status,
                spent_s=spent_s,
                content=content,
                actor=runner.actor,
            )
        )
    return as_json(EndedJob(outcome=outcome))
