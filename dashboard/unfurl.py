"""The head of a page's HTML: title and preview for chat programs, and what must run first."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from roofwatch.ci.messages import on_one_line
from roofwatch.configuration.settings import SettingsError
from roofwatch.dashboard.headline import headline_of
from roofwatch.dashboard.linked_row import find_linked_row
from roofwatch.dashboard.navigation import FRONT_PAGE, VIEWS
from roofwatch.dashboard.wording import shortened
from roofwatch.db.errors import StoreError

_TITLE = re.compile(rb"<title>.*?</title>", re.DOTALL)
_KEYS = (Path(__file__).parent / "assets" / "keys.js").read_text(encoding="utf-8")
_ABOUT = "Which commit made a GPU kernel slower, by how much, how far it is from the roof, and why."
_LONGEST = 200
_NOT_PASSED_ON = frozenset(
    {
        b"accept-encoding",
        b"if-none-match",
        b"if-modified-since",
    }
)
"""Headers that ask for a compressed page, or for none if it is unchanged."""
_OF_THE_FILE = frozenset(
    {
        "content-length",
        "etag",
        "last-modified",
    }
)
"""Headers that do not hold for the page with its title."""


class PreviewMiddleware(BaseHTTPMiddleware):
    """Writes title and description of the asked page into Streamlit's HTML."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        # a title is replaced in whole pages only: not in compressed ones, nor in "not modified"
        headers = request.scope["headers"]
        request.scope["headers"] = [pair for pair in headers if pair[0] not in _NOT_PASSED_ON]
        response = await call_next(request)
        # scripts and pictures pass unchanged
        if not response.headers.get("content-type", "").startswith("text/html"):
            return response
        chunks = [chunk async for chunk in response.body_iterator]  # type: ignore[attr-defined]  # of Starlette's private class
        title, description = await run_in_threadpool(
            preview_of,
            request.url.path,
            dict(request.query_params),
        )
        tags = _tags(title, description)
        page = b"".join(chunks)
        # a function, because a backslash in a subject is no group of the pattern
        body = _TITLE.sub(lambda _: tags, page, count=1)
        page_headers = {
            name: value for name, value in response.headers.items() if name not in _OF_THE_FILE
        }
        return Response(
            body,
            status_code=response.status_code,
            headers=page_headers,
        )


def preview_of(path: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return title and description of a page; those of a regression if the address names one."""
    view = path.rpartition("/")[2] or FRONT_PAGE
    title = VIEWS.get(view, VIEWS[FRONT_PAGE])
    project = query.get("project")
    plain = (f"{title} · {project or 'roofwatch'}", _ABOUT)
    # only the ledger has rows that a link names
    if view != FRONT_PAGE:
        return plain
    try:
        linked = find_linked_row(query)
    except (StoreError, SettingsError):
        # the page itself says what is wrong
        return plain
    if linked is None:
        return plain
    _, row = linked
    return headline_of(row), row.parts[0].regression.summary


def _tags(title: str, description: str) -> bytes:
    shown_title = escape(shortened(on_one_line(title), length=_LONGEST))
    shown_text = escape(shortened(on_one_line(description), length=_LONGEST))
    return (
        f"<title>{shown_title}</title>"
        f'<meta name="description" content="{shown_text}">'
        f'<meta property="og:title" content="{shown_title}">'
        f'<meta property="og:description" content="{shown_text}">'
        '<meta property="og:type" content="website">'
        '<meta property="og:site_name" content="roofwatch">'
        f"<script>{_KEYS}</script>"
    ).encode()
