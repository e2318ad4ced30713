"""Files of runs: sent after the record that names them, and downloaded as attachments."""

import tempfile
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from roofwatch.api.auth import Principal, Reader, Sender
from roofwatch.api.limits import Limits
from roofwatch.api.models import (
    Cursor,
    Limit,
    Page,
    Position,
    StoredFile,
    as_json,
    make_router,
    page,
    read_cursor,
)
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.state import State, state_of
from roofwatch.db.ingest.artefacts import list_artefacts, read_artefact, store_artefact
from roofwatch.model.stored_results import StoredArtefact

router = make_router("artefacts")

Sha256 = Annotated[
    str, Path(pattern=r"^[0-9a-f]{64}$", description="Of the content, as in the record.")
]

_FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file.",
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "{}",
            }
        },
    }
}


@router.get(
    "/v1/runs/{run_id}/artefacts",
    summary="List the files of a run",
    response_model=Page[StoredArtefact],
)
def get_artefacts(
    request: Request,
    reader: Reader,
    run_id: UUID,
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Files that the record names, and whether their contents are stored."""
    named = _named(state_of(request), reader, run_id)
    begin = read_cursor(cursor, Position) or 0
    return page(named[begin : begin + limit + 1], limit, lambda _: begin + limit)


@router.put(
    "/v1/runs/{run_id}/artefacts/{sha256}",
    status_code=201,
    summary="Send a file of a run",
    response_model=StoredFile,
    responses={200: {"model": StoredFile, "description": "The run had it before."}},
    openapi_extra=_FILE_BODY,
)
async def put_artefact(request: Request, sender: Sender, run_id: UUID, sha256: Sha256) -> Response:
    """Store the content of a file that the record names, once however often it is sent.

    The body has no `Content-Encoding`, and the length and sha256 of the record.
    """
    # the hash is that of the file, not of a compressed copy
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise ProblemError(415, "unsupported-media", "send the file without Content-Encoding")
    state = state_of(request)
    named = await run_in_threadpool(_named, state, sender, run_id)
    artefact = _with_sha256(named, sha256)
    if artefact is None:
        raise _no_artefact(run_id, sha256)
    refusal = _refusal(state.limits, artefact, named)
    if refusal is not None:
        await state.bodies.discard(request, state.limits.run_artefact_bytes)
        raise refusal
    with tempfile.TemporaryFile() as file:
        async with state.bodies.save(request, file, artefact.size_bytes), state.turn():
            state.metrics.artefact_bytes.inc(file.tell())
            file.seek(0)
            was_new = await run_in_threadpool(store_artefact, state.engine, run_id, sha256, file)
    held = StoredFile(
        run_id=str(run_id),
        sha256=sha256,
        size_bytes=artefact.size_bytes,
        was_new=was_new,
    )
    return as_json(held, 201 if was_new else 200)


@router.get(
    "/v1/runs/{run_id}/artefacts/{sha256}",
    summary="Download a file of a run",
    response_class=Response,
    responses={
        200: {
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            }
        }
    },
)
def get_artefact(request: Request, reader: Reader, run_id: UUID, sha256: Sha256) -> Response:
    """Content of a file, as an attachment."""
    state = state_of(request)
    artefact = _with_sha256(_named(state, reader, run_id), sha256)
    if artefact is None or not artefact.is_stored:
        raise _no_artefact(run_id, sha256)
    headers = {
        "Content-Length": str(artefact.size_bytes),
        # records validate names: no quotes
        "Content-Disposition": f'attachment; filename="{artefact.name}"',
        "Content-Security-Policy": "sandbox",
    }
    content = read_artefact(state.engine, run_id, sha256)
    return StreamingResponse(content, 200, headers, "application/octet-stream")


def _named(state: State, principal: Principal, run_id: UUID) -> list[StoredArtefact]:
    principal.see_run(state, run_id)
    with state.reading() as session:
        return list_artefacts(session, run_id)


def _with_sha256(artefacts: Sequence[StoredArtefact], sha256: str) -> StoredArtefact | None:
    return next((artefact for artefact in artefacts if artefact.sha256 == sha256), None)


def _refusal(
    limits: Limits,
    artefact: StoredArtefact,
    named: Sequence[StoredArtefact],
) -> ProblemError | None:
    """Check the limits of a file and of all files of its run."""
    # before the body is read, which may take minutes
    if artefact.size_bytes > limits.artefact_bytes:
        detail = f"{artefact.size_bytes} bytes; a file has at most {limits.artefact_bytes} here"
        return ProblemError(413, "too-large", f"{detail}: record a shorter time, or compress it")
    stored_bytes = 0
    for stored in named:
        # the same file again takes no further space
        if stored.is_stored and stored.sha256 != artefact.sha256:
            stored_bytes += stored.size_bytes
    if stored_bytes + artefact.size_bytes > limits.run_artefact_bytes:
        detail = f"the files of a run have at most {limits.run_artefact_bytes} bytes together"
        return ProblemError(413, "too-large", detail)
    return None


def _no_artefact(run_id: UUID, sha256: str) -> ProblemError:
    return not_found(
        f"content {sha256[:12]} of run {run_id}", f"see GET /v1/runs/{run_id}/artefacts"
    )
