"""Lists in pages. A cursor says after which entry the next page begins: entries that come in between shift nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import orjson
from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from roofwatch.api.problems import ProblemError

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1_000, description="Entries of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=8_000, description="`next` of the page before; left out for the first page.")
]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(description="The cursor of the next page; null on the last one.")


def page_of(found: list[T], limit: int, key: Callable[[T], list[str | int]]) -> tuple[list[T], str | None]:
    """Cut a page.

    Args:
        found: From the first entry of the page on, one more than fits where there are more.
        limit: Entries that fit.
        key: What the cursor says of an entry.
    """
    items = found[:limit]
    return items, _encode(key(items[-1])) if len(found) > limit else None


def decode(cursor: str, kinds: tuple[Callable[[Any], Any], ...]) -> tuple[Any, ...]:
    """What a cursor says, its parts made by the kinds.

    Raises:
        ProblemError: it is not one of ours.
    """
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(cursor.encode()))
        # orjson reads deeper than Python can write, and `true` is a number to Python
        if not isinstance(parts, list) or any(type(part) not in (int, str) or "\0" in str(part) for part in parts):
            raise ValueError("not a key")
        return tuple(kind(part) for kind, part in zip(kinds, parts, strict=True))
    except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error):
        raise ProblemError(400, "bad-request", "the cursor is none of this list; begin without one") from None


def _encode(key: list[str | int]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(key)).decode()


PRIVATE = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
"""What one token may see another may not: no cache between may hand it on."""


def json_response(body: bytes, *, media_type: str = "application/json") -> Response:
    """An answer that is made already."""
    return Response(body, 200, PRIVATE, media_type)
