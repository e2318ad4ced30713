"""Answers that need not be sent twice: ETag and If-None-Match (RFC 9110)."""

from __future__ import annotations

import hashlib
import re

from fastapi import Request
from fastapi.responses import Response

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def respond(request: Request, body: bytes, *, media_type: str = "application/json") -> Response:
    """An answer with its tag; 304 without a body where the client has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    # what one token may see another may not: no cache between may hand it on
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or tag in _TAG.findall(known):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type)
