"""The door of records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from roofwatch.api.access import Principal, Sender
from roofwatch.api.body import unpack
from roofwatch.api.documents import PROBLEMS, RECORD_BODY
from roofwatch.api.json_limits import parse_bounded, weigh
from roofwatch.api.request_models import check_is_json
from roofwatch.api.response_models import Stored
from roofwatch.api.state import State, state_of
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import list_artefacts
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judging import ask_for_judgement, read_run_state

router = APIRouter(tags=["records"])


@router.post(
    "/v1/records",
    status_code=201,
    summary="Send a record",
    response_model=Stored,
    responses={200: {"model": Stored, "description": "It was stored before."}, **PROBLEMS},
    openapi_extra=RECORD_BODY,
)
async def post_record(
    request: Request,
    sender: Sender,
    *,
    quarantine: Annotated[bool, Query(description="Keep it where nothing counts it.")] = False,
) -> Response:
    """Store a record: all of it or nothing, once however often it is sent. Once this is answered it is on disk.

    The body is the record's JSON; `Content-Encoding` may be `gzip` or `zstd`. The same run with other content is
    refused with 409. Records sent with a token in quarantine, by a workflow on a pull request, or with
    `quarantine=true` are kept beside the project: to be looked at, never part of a baseline.
    """
    check_is_json(request, "a record")
    encoding = request.headers.get("content-encoding", "")
    state = state_of(request)
    async with state.uploads.held(request, state.limits.body_bytes) as body, state.turn():
        state.metrics.record_bytes.inc(len(body))
        document = await run_in_threadpool(unpack, body, encoding, state.limits)
        size_bytes = await run_in_threadpool(weigh, document, state.limits)
        async with state.memory.share(size_bytes):
            stored = await run_in_threadpool(_store, state, sender, document, quarantine=quarantine)
    return Response(stored.model_dump_json(), 201 if stored.was_new else 200, media_type="application/json")


def _store(state: State, sender: Principal, document: bytes, *, quarantine: bool) -> Stored:
    record = RunRecord.from_parsed(parse_bounded(document, state.limits), name="the record")
    sender.check_project(record.project)
    is_quarantined = quarantine or sender.must_quarantine(record.project)
    result = ingest_record(state.engine, record, is_quarantined=is_quarantined)
    if not result.was_new:
        # it may have come in otherwise the first time
        with state.reading() as session:
            known = read_run_state(session, record.run_id)
        is_quarantined = known is not None and known.is_quarantined
    if not is_quarantined:
        ask_for_judgement(state.engine, record.project)
        state.wake_judge()
    kind = "known" if not result.was_new else "quarantined" if is_quarantined else "new"
    state.metrics.records.labels(kind).inc()
    return Stored(
        run_id=result.run_id,
        content_hash=result.content_hash,
        project=record.project,
        was_new=result.was_new,
        is_quarantined=is_quarantined,
        lacking_artefacts=_lacking(state, record),
    )


def _lacking(state: State, record: RunRecord) -> list[str]:
    if not record.artefacts:
        return []
    with state.reading() as session:
        named = list_artefacts(session, record.run_id)
    return sorted({artefact.sha256 for artefact in named if not artefact.is_stored})
