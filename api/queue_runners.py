"""The queue as runners use it: take a job, report progress, and finish it."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.api.auth import JobRunner, Principal
from roofwatch.api.models import JsonBody, Line, as_json, make_router
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.queue import (
    BINARY_ANSWER,
    BINARY_BODY,
    SIZE_HINT,
    JobAccepted,
    JobId,
    Word,
    see_job,
)
from roofwatch.api.state import State, state_of
from roofwatch.ci.messages import on_one_line
from roofwatch.db.queue_runners import (
    finish_queued_job,
    list_waiting_projects,
    read_tree,
    release_queued_job,
    report_progress,
    take_queued_job,
)
from roofwatch.model.optional import map_optional
from roofwatch.model.queue import JobOutcome, TakenJob, WatchReport

router = make_router("queue")

_MAX_REPORT_CHARACTERS = 8_000
_Claim = Annotated[UUID, Query(description="Of the runner, as when it took the job.")]


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
    lines: Annotated[list[Word], Field(max_length=500)]


class ProgressAnswer(BaseModel):
    is_cancelled: bool = Field(description="The runner shall end the command, and finish the job.")


class ClaimedJob(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim_id: UUID


class EndedJob(BaseModel):
    outcome: JobOutcome


def _see_runners_job(state: State, runner: Principal, job_id: UUID) -> None:
    """Raise ProblemError unless the job is of the runner's class and projects."""
    job = see_job(state, runner, job_id)
    if job.runner_class != runner.runner_class:
        raise not_found(f"job {job_id}", "this token is of another runner class")


@router.post(
    "/v1/queue/take",
    summary="Take a job",
    response_model=Assignment,
)
async def post_take(
    request: Request,
    runner: JobRunner,
    free: Annotated[Availability, Depends(JsonBody(Availability))],
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
    responses=BINARY_ANSWER,
)
def get_tree(request: Request, runner: JobRunner, job_id: JobId, claim_id: _Claim) -> Response:
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
)
async def post_progress(
    request: Request,
    runner: JobRunner,
    job_id: JobId,
    report: Annotated[ProgressReport, Depends(JsonBody(ProgressReport))],
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
)
async def post_release(
    request: Request,
    runner: JobRunner,
    job_id: JobId,
    claimed: Annotated[ClaimedJob, Depends(JsonBody(ClaimedJob))],
) -> Response:
    """End the lease of a job that this runner cannot finish; another one takes it."""
    state = state_of(request)
    await run_in_threadpool(_see_runners_job, state, runner, job_id)
    await run_in_threadpool(release_queued_job, state.engine, job_id, claimed.claim_id)
    return as_json(JobAccepted())


def _parse_report(text: str) -> WatchReport:
    try:
        return WatchReport.model_validate_json(text)
    except ValidationError as error:
        raise ProblemError(400, "bad-request", f"report: {on_one_line(str(error))}") from None


@router.put(
    "/v1/queue/jobs/{job_id}/result",
    summary="Finish a job",
    response_model=EndedJob,
    openapi_extra=BINARY_BODY,
)
async def put_result(
    request: Request,
    runner: JobRunner,
    job_id: JobId,
    claim_id: _Claim,
    exit_status: Annotated[int, Query(ge=-255, le=255, description="Of the command.")],
    spent_s: Annotated[float, Query(ge=0, le=1e6, allow_inf_nan=False)],
    report: Annotated[
        str | None,
        Query(
            max_length=_MAX_REPORT_CHARACTERS,
            description="Of a watch, as JSON: who measured, and which pairs that people asked for.",
        ),
    ] = None,
) -> Response:
    """Store the result of a job. Refused (409) if another runner has taken the job over."""
    state = state_of(request)
    await run_in_threadpool(_see_runners_job, state, runner, job_id)
    watch_report = map_optional(_parse_report, report)
    async with (
        state.bodies.read(request, state.limits.body_bytes, hint=SIZE_HINT) as content,
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
                report=watch_report,
            )
        )
    return as_json(EndedJob(outcome=outcome))
