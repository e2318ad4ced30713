"""Projects and runs: records come in, results go out."""

import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from roofwatch.api.auth import Administrator, Principal, Reader, Sender, no_run
from roofwatch.api.limits import Limits, parse_json, unpack
from roofwatch.api.models import (
    Cursor,
    JsonBody,
    Limit,
    Page,
    Project,
    Release,
    Stored,
    as_json,
    check_is_json,
    make_router,
    page,
    page_of,
    read_cursor,
)
from roofwatch.api.problems import ProblemError
from roofwatch.api.state import State, state_of
from roofwatch.db.ingest.artefacts import list_artefacts
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.quarantine import release_run
from roofwatch.db.queries.project import list_projects
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.runs import list_runs, read_run_detail
from roofwatch.db.regressions.judgements import RunState, read_run_state, request_analysis
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import RunDetail, RunSummary

router = make_router("runs")


_RECORD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A RunRecord: docs/reference/record.md.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["schema_version", "run_id"]}
            }
        },
    }
}


@router.post(
    "/v1/records",
    status_code=201,
    summary="Send a record",
    response_model=Stored,
    responses={200: {"model": Stored, "description": "It was stored before."}},
    openapi_extra=_RECORD_BODY,
)
async def post_record(
    request: Request,
    sender: Sender,
    *,
    quarantine: Annotated[bool, Query(description="Store it in quarantine.")] = False,
) -> Response:
    """Store a record in one transaction. It is on disk before the response, and stored once however
    often it is sent.

    The body is JSON; `Content-Encoding` may be `gzip`. The same run with other content is refused
    with 409. Records from a quarantined token, a workflow on a pull request, or with
    `quarantine=true` are not analysed.
    """
    check_is_json(request)
    encoding = request.headers.get("content-encoding", "")
    state = state_of(request)
    body = io.BytesIO()
    async with _whole(request, state, body), state.turn():
        state.metrics.record_bytes.inc(body.tell())
        stored = await run_in_threadpool(
            _store, state, sender, body, encoding, quarantine=quarantine
        )
    return as_json(stored, 201 if stored.was_new else 200)


@asynccontextmanager
async def _whole(request: Request, state: State, body: io.BytesIO) -> AsyncIterator[None]:
    """Receive the body of a record. One above the limit is read to its end before the refusal: a
    client that is cut off reads no answer, and would send the record again and again.
    """
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(
                state.bodies.save(request, body, state.limits.body_bytes)
            )
        except ProblemError as problem:
            # only then the client is still sending
            if problem.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await state.bodies.discard(request, state.limits.discarded_bytes)
            raise
        yield


def _store(
    state: State,
    sender: Principal,
    body: io.BytesIO,
    encoding: str,
    *,
    quarantine: bool,
) -> Stored:
    record = _read_record(body, encoding, state.limits)
    sender.check_project(record.project)
    is_quarantined = quarantine or sender.must_quarantine(record.project)
    result = ingest_record(state.engine, record, is_quarantined=is_quarantined)
    with state.reading() as session:
        if not result.was_new:
            # the first request may have differed
            stored_state = read_run_state(session, record.run_id)
            is_quarantined = stored_state is not None and stored_state.is_quarantined
        named = list_artefacts(session, record.run_id)
    if not is_quarantined:
        request_analysis(state.engine, record.project)
        state.wake_worker()
    kind = "new"
    if not result.was_new:
        kind = "known"
    elif is_quarantined:
        kind = "quarantined"
    state.metrics.records.labels(kind).inc()
    return Stored(
        run_id=result.run_id,
        content_hash=result.content_hash,
        project=record.project,
        was_new=result.was_new,
        is_quarantined=is_quarantined,
        lacking_artefacts=sorted({artefact.sha256 for artefact in named if not artefact.is_stored}),
    )


def _read_record(body: io.BytesIO, encoding: str, limits: Limits) -> RunRecord:
    """Parse a body and forget it: body, document and values are not in memory at the same time."""
    return RunRecord.from_parsed(
        parse_json(unpack(_take(body), encoding, limits), limits), name="the record"
    )


def _take(body: io.BytesIO) -> bytes:
    content = body.getvalue()
    body.close()
    return content


@router.get("/v1/projects", summary="List projects", response_model=Page[str])
def get_projects(
    request: Request,
    reader: Reader,
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
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
        runs = list_runs(session, project, limit + 1, after=after, is_quarantined=quarantined)
    return page(runs, limit, lambda run: (run.started_at, run.run_id))


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
)
def post_release(
    request: Request,
    administrator: Administrator,
    run_id: UUID,
    release: Annotated[Release, Depends(JsonBody(Release))],
) -> Response:
    """Move a run to its project because someone vouches for it; the audit trail records who and
    why.

    A run that is not in quarantine is refused with 409.
    """
    state = state_of(request)
    before = administrator.see_run(state, run_id)
    release_run(
        state.engine,
        run_id,
        actor=administrator.actor,
        person=release.person,
        reason=release.reason,
    )
    request_analysis(state.engine, before.project)
    state.wake_worker()
    return as_json(administrator.see_run(state, run_id))
