"""The ingest endpoint."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from roofwatch.api.auth import Principal, Sender
from roofwatch.api.limits import parse_json, unpack
from roofwatch.api.models import Stored, as_json, check_is_json
from roofwatch.api.problems import PROBLEMS
from roofwatch.api.state import State, state_of
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import list_artefacts
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import read_run_state, request_analysis

router = APIRouter(tags=["records"], responses=PROBLEMS)

_RECORD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A RunRecord: docs/reference/record.md.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["schema_version", "run_id"]}}},
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
    """Store a record in one transaction. It is on disk before the response, and stored once however often it is sent.

    The body is JSON; `Content-Encoding` may be `gzip`. The same run with other content is refused with 409.
    Records from a quarantined token, a workflow on a pull request, or with `quarantine=true` are not analysed.
    """
    check_is_json(request)
    encoding = request.headers.get("content-encoding", "")
    state = state_of(request)
    async with state.bodies.read(request, state.limits.body_bytes) as body, state.turn():
        state.metrics.record_bytes.inc(len(body))
        stored = await run_in_threadpool(_store, state, sender, body, encoding, quarantine=quarantine)
    return as_json(stored, 201 if stored.was_new else 200)


def _store(state: State, sender: Principal, body: bytes, encoding: str, *, quarantine: bool) -> Stored:
    parsed = parse_json(unpack(body, encoding, state.limits), state.limits)
    record = RunRecord.from_parsed(parsed, name="the record")
    sender.check_project(record.project)
    is_quarantined = quarantine or sender.must_quarantine(record.project)
    result = ingest_record(state.engine, record, is_quarantined=is_quarantined)
    with state.reading() as session:
        if not result.was_new:
            # the first request may have differed
            known = read_run_state(session, record.run_id)
            is_quarantined = known is not None and known.is_quarantined
        named = list_artefacts(session, record.run_id) if record.artefacts else []
    if not is_quarantined:
        request_analysis(state.engine, record.project)
        state.wake_worker()
    kind = "known" if not result.was_new else "quarantined" if is_quarantined else "new"
    state.metrics.records.labels(kind).inc()
    return Stored(
        run_id=result.run_id,
        content_hash=result.content_hash,
        project=record.project,
        was_new=result.was_new,
        is_quarantined=is_quarantined,
        lacking_artefacts=sorted({artefact.sha256 for artefact in named if not artefact.is_stored}),
    )
