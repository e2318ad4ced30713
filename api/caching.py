"""Answers that need not be sent twice: ETag and If-None-Match (RFC 9110)."""

from __future__ import annotations

import hashlib
import re

from fastapi import Request
from fastapi.responses import Response

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def respond(request: Request, body: bytes, *, media_type: str = "application/json") -> Response:
    """An answer with its tag; 304 without a body where the client has it already."""
    tag = hashlib.sha256(body).hexdigest()[:32]
    return not_modified(request, tag) or Response(body, 200, headers_of(tag), media_type)


def not_modified(request: Request, tag: str) -> Response | None:
    """The answer for a client that has what the tag stands for already; None for one that has not."""
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or f'"{tag}"' in _TAG.findall(known):
        return Response(status_code=304, headers=headers_of(tag))
    return None


def headers_of(tag: str) -> dict[str, str]:
    """Of an answer with this tag."""
    # what one token may see another may not: no cache between may hand it on
    return {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache", "Vary": "Authorization"}
