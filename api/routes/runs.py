"""Runs: which there are, what each found, how far it has come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from roofwatch.api.access import Administrator, Reader
from roofwatch.api.documents import PROBLEMS
from roofwatch.api.paging import Cursor, Limit, Page, decode, json_response, page_of
from roofwatch.api.permissions import no_run, seen_run
from roofwatch.api.request_models import body_of, sent
from roofwatch.api.response_models import Project, Release
from roofwatch.api.state import state_of
from roofwatch.db.quarantine import release_run
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.run_values import RunDetail, RunSummary
from roofwatch.db.queries.runs import list_runs, run_detail
from roofwatch.db.regressions.judging import RunState, ask_for_judgement

router = APIRouter(tags=["runs"])

_DETAIL = TypeAdapter(RunDetail)
_STATE = TypeAdapter(RunState)


@router.get(
    "/v1/runs",
    summary="List runs",
    response_model=Page[RunSummary],
    responses={**PROBLEMS},
)
def get_runs(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    quarantined: Annotated[bool, Query(description="Those in quarantine instead.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The runs of a project, the last one to start first."""
    reader.check_project(project)
    after = None if cursor is None else decode(cursor, (_aware_time, UUID))
    with state_of(request).reading() as session:
        found = list_runs(session, project, limit + 1, after=after, is_quarantined=quarantined)
    items, following = page_of(found, limit, lambda run: [run.started_at.isoformat(), run.run_id])
    return json_response(Page[RunSummary](items=items, next=following).model_dump_json().encode())


@router.get(
    "/v1/runs/{run_id}",
    summary="A run",
    response_model=RunDetail,
    responses={**PROBLEMS},
)
def get_run(request: Request, reader: Reader, run_id: UUID) -> Response:
    """Everything that one run found."""
    state = state_of(request)
    seen_run(state, reader, run_id)
    with state.reading() as session:
        detail = run_detail(session, str(run_id))
    if detail is None:
        raise no_run(run_id)
    return json_response(_DETAIL.dump_json(detail))


@router.get(
    "/v1/runs/{run_id}/status",
    summary="How far a run has come",
    response_model=RunState,
    responses={**PROBLEMS},
)
def get_run_status(request: Request, reader: Reader, run_id: UUID) -> Response:
    """Stored, and judged or not yet."""
    return json_response(_STATE.dump_json(seen_run(state_of(request), reader, run_id)))


@router.get(
    "/v1/runs/{run_id}/record",
    summary="A run's record",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **PROBLEMS,
    },
)
def get_record(request: Request, reader: Reader, run_id: UUID) -> Response:
    """The record that was sent, its times in UTC: docs/record.md."""
    state = state_of(request)
    seen_run(state, reader, run_id)
    with state.reading() as session:
        record = load_record(session, run_id)
    return json_response(record.to_json())


@router.post(
    "/v1/runs/{run_id}/release",
    summary="Let a run out of quarantine",
    response_model=RunState,
    responses={**PROBLEMS},
    openapi_extra=body_of(Release),
)
def post_release(
    request: Request,
    administrator: Administrator,
    run_id: UUID,
    release: Annotated[Release, Depends(sent(Release))],
) -> Response:
    """Make a run one of its project's, because somebody vouches for it. The audit trail says who and why.

    A run that counts already is refused with 409.
    """
    state = state_of(request)
    before = seen_run(state, administrator, run_id)
    said = {"person": release.person, "reason": release.reason}
    release_run(state.engine, run_id, actor=administrator.actor, **said)
    ask_for_judgement(state.engine, before.project)
    state.wake_judge()
    return Response(_STATE.dump_json(seen_run(state, administrator, run_id)), media_type="application/json")


def _aware_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without its zone")
    return time
