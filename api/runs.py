"""Projects and runs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime

from roofwatch.api.auth import Administrator, Reader, no_run
from roofwatch.api.models import (
    Cursor,
    Limit,
    Page,
    Project,
    Release,
    as_json,
    body_schema,
    json_body,
    page,
    page_of,
    read_cursor,
)
from roofwatch.api.problems import PROBLEMS
from roofwatch.api.state import state_of
from roofwatch.db.ingest.ingest import release_run
from roofwatch.db.queries.project import list_projects
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.results import RunDetail, RunSummary
from roofwatch.db.queries.runs import list_runs, read_run_detail
from roofwatch.db.regressions.judgements import RunState, request_analysis

router = APIRouter(tags=["runs"], responses=PROBLEMS)


@router.get("/v1/projects", summary="List projects", response_model=Page[str])
def get_projects(request: Request, reader: Reader, *, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The projects that the token may read, by name."""
    with state_of(request).reading() as session:
        names = [name for name in list_projects(session) if reader.may_see(name)]
    return page_of(names, limit, cursor, str, str)


@router.get("/v1/runs", summary="List runs", response_model=Page[RunSummary])
def get_runs(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    quarantined: Annotated[bool, Query(description="List the quarantine instead.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Runs of a project, the latest first."""
    reader.check_project(project)
    after = read_cursor(cursor, tuple[AwareDatetime, UUID])
    with state_of(request).reading() as session:
        found = list_runs(session, project, limit + 1, after=after, is_quarantined=quarantined)
    return page(found, limit, lambda run: (run.started_at, run.run_id))


@router.get("/v1/runs/{run_id}", summary="Read a run", response_model=RunDetail)
def get_run(request: Request, reader: Reader, run_id: UUID) -> Response:
    """Results of a run."""
    state = state_of(request)
    reader.see_run(state, run_id)
    with state.reading() as session:
        detail = read_run_detail(session, run_id)
    if detail is None:
        raise no_run(run_id)
    return as_json(detail)


@router.get("/v1/runs/{run_id}/status", summary="Read the status of a run", response_model=RunState)
def get_run_status(request: Request, reader: Reader, run_id: UUID) -> Response:
    """Whether the run is quarantined and analysed."""
    return as_json(reader.see_run(state_of(request), run_id))


@router.get(
    "/v1/runs/{run_id}/record",
    summary="Download a record",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
def get_record(request: Request, reader: Reader, run_id: UUID) -> Response:
    """The record as it was sent: docs/reference/record.md."""
    state = state_of(request)
    reader.see_run(state, run_id)
    with state.reading() as session:
        record = load_record(session, run_id)
    return Response(record.to_json(), media_type="application/json")


@router.post(
    "/v1/runs/{run_id}/release",
    summary="Release a run from quarantine",
    response_model=RunState,
    openapi_extra=body_schema(Release),
)
def post_release(
    request: Request,
    administrator: Administrator,
    run_id: UUID,
    release: Annotated[Release, Depends(json_body(Release))],
) -> Response:
    """Move a run to its project because someone vouches for it; the audit trail records who and why.

    A run that is not in quarantine is refused with 409.
    """
    state = state_of(request)
    before = administrator.see_run(state, run_id)
    release_run(state.engine, run_id, actor=administrator.actor, person=release.person, reason=release.reason)
    request_analysis(state.engine, before.project)
    state.wake_worker()
    return as_json(administrator.see_run(state, run_id))
