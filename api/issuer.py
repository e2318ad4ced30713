"""Fetch the public keys of an issuer of OIDC tokens."""

import time
import urllib.request
from http.client import HTTPException
from typing import Any

import orjson
from jwt.exceptions import PyJWKClientConnectionError

# of the whole fetch: a timeout for each read never ends a slow one
_DEADLINE_S = 5.0
_READ_TIMEOUT_S = 2.5
# a key set has a few kilobytes
_MAX_BYTES = 2**20


def fetch_keys(url: str) -> dict[str, Any]:
    """Fetch a key set within one deadline: an issuer that sends a byte at a time must not
    hold a thread.

    Raises:
        PyJWKClientConnectionError: no connection, no keys, or too slow.
    """
    deadline_s = time.monotonic() + _DEADLINE_S
    document = b""
    try:
        # the scheme was checked by `Workflows`
        with urllib.request.urlopen(url, timeout=_READ_TIMEOUT_S) as answer:  # noqa: S310
            while chunk := answer.read1(_MAX_BYTES):
                document += chunk
                if time.monotonic() > deadline_s or len(document) > _MAX_BYTES:
                    raise PyJWKClientConnectionError("the issuer's keys are too long or too slow")
        parsed = orjson.loads(document)
    except (OSError, HTTPException, ValueError) as error:
        raise PyJWKClientConnectionError(f"no keys: {type(error).__name__}") from None
    if not isinstance(parsed, dict):
        raise PyJWKClientConnectionError("no keys: not an object")
    return parsed
