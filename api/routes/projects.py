"""Which projects there are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access import Reader
from api.caching import respond
from api.documents import NOT_MODIFIED, PROBLEMS
from api.paging import Cursor, Limit, Page, decode, page_of
from api.state import state_of
from db.queries import list_projects

router = APIRouter(tags=["projects"])


@router.get("/v1/projects", summary="List projects", response_model=Page[str], responses={**NOT_MODIFIED, **PROBLEMS})
def get_projects(request: Request, reader: Reader, *, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The projects that the token may read, by name."""
    (after,) = ("",) if cursor is None else decode(cursor, (str,))
    with state_of(request).reading() as session:
        names = [name for name in list_projects(session) if reader.may_see(name)]
    # by code point here, whatever the database's language would say
    items, following = page_of(sorted(name for name in names if name > after), limit, lambda name: [name])
    return respond(request, Page(items=items, next=following).model_dump_json().encode())
