"""Agendas of runners: lease a job, finish it, list them."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from roofwatch.api.auth import Reader, Sender
from roofwatch.api.models import (
    Cursor,
    JsonBody,
    Limit,
    Line,
    Page,
    Project,
    Seconds,
    as_json,
    make_router,
    page_by_position,
)
from roofwatch.api.state import state_of
from roofwatch.db.agenda import finish_job, list_jobs, take_job
from roofwatch.model.agenda import JobKind, PlannedJob, StoredJob
from roofwatch.model.queue import MAX_NOTE_CHARACTERS, Sha

router = make_router("agenda")

# more than a runner does in a night
_MAX_JOBS = 30
_Text = Annotated[str, Field(min_length=1, max_length=500)]


class AgendaJob(BaseModel):
    """A job that a runner could do."""

    model_config = ConfigDict(extra="forbid")

    key: _Text
    kind: JobKind
    reason: _Text
    expected_s: Seconds
    base_sha: Sha | None = None
    head_sha: Sha


class Agenda(BaseModel):
    """What the runners of a class could do, the most valuable first."""

    model_config = ConfigDict(extra="forbid")

    runner_class: _Text
    claim_id: UUID = Field(description="Of the runner.")
    jobs: Annotated[list[AgendaJob], Field(max_length=_MAX_JOBS)]


class Taken(BaseModel):
    """The job that the runner may do."""

    key: str | None = Field(description="None if other runners have taken all.")


class FinishedJob(BaseModel):
    """A job that the runner did."""

    model_config = ConfigDict(extra="forbid")

    runner_class: _Text
    claim_id: UUID
    key: _Text
    spent_s: Seconds
    note: Annotated[Line, Field(max_length=MAX_NOTE_CHARACTERS)] | None = Field(
        default=None, description="Why nothing was measured."
    )


class Finished(BaseModel):
    is_own: bool = Field(description="False if another runner had taken the job over.")


@router.post(
    "/v1/agenda/take",
    summary="Lease a job",
    response_model=Taken,
)
async def post_agenda(
    request: Request,
    sender: Sender,
    project: Project,
    agenda: Annotated[Agenda, Depends(JsonBody(Agenda))],
) -> Response:
    """Replace the agenda of a runner class, and lease its most valuable job that is free."""
    sender.check_project(project)
    jobs = [PlannedJob(**dict(job)) for job in agenda.jobs]
    key = await run_in_threadpool(
        take_job, state_of(request).engine, project, agenda.runner_class, jobs, agenda.claim_id
    )
    return as_json(Taken(key=key))


@router.post(
    "/v1/agenda/finish",
    summary="Finish a job",
    response_model=Finished,
)
async def post_finished(
    request: Request,
    sender: Sender,
    project: Project,
    job: Annotated[FinishedJob, Depends(JsonBody(FinishedJob))],
) -> Response:
    """End the lease of a job, with the time that it took."""
    sender.check_project(project)
    is_own = await run_in_threadpool(
        finish_job,
        state_of(request).engine,
        project,
        job.runner_class,
        job.key,
        job.claim_id,
        job.spent_s,
        job.note,
    )
    return as_json(Finished(is_own=is_own))


@router.get("/v1/agenda", summary="List the jobs of runners", response_model=Page[StoredJob])
def get_agenda(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Open jobs of a project in their order, then those of the last 30 days, the newest first."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        jobs = list_jobs(session, project)
    return page_by_position(jobs, limit, cursor)
