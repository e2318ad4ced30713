"""Which projects there are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from roofwatch.api.access import Reader
from roofwatch.api.documents import PROBLEMS
from roofwatch.api.paging import Cursor, Limit, Page, decode, json_response, page_of
from roofwatch.api.state import state_of
from roofwatch.db.queries.runs import list_projects

router = APIRouter(tags=["projects"])


@router.get(
    "/v1/projects",
    summary="List projects",
    response_model=Page[str],
    responses={**PROBLEMS},
)
def get_projects(request: Request, reader: Reader, *, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The projects that the token may read, by name."""
    (after,) = ("",) if cursor is None else decode(cursor, (str,))
    with state_of(request).reading() as session:
        names = list_projects(session, among=reader.projects, after=after, limit=limit + 1)
    items, following = page_of(names, limit, lambda name: [name])
    return json_response(Page(items=items, next=following).model_dump_json().encode())
