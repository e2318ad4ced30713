"""Alerts as JSON, posted to a URL. Not through apprise, whose document has a title and a text alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from roofwatch.ci.alerts.sending import Address, SendError
from roofwatch.ci.alerts.text import Notice, to_document
from roofwatch.ci.errors import AlertError

_TIMEOUT_S = 30.0
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_WAIT_S = 86_400.0
_UNSEEN = (ConnectionRefusedError,)
"""Errors after which nothing can have arrived."""


class WebhookSender:
    """A receiver of JSON, by its https URL; plain http only on this machine.

    Raises:
        AlertError: the address is none.
    """

    def __init__(self, address: Address) -> None:
        try:
            parts = urlsplit(address.url)
            is_good = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _THIS_MACHINE)):
            raise AlertError("the address is no https:// URL; over plain http others would read it")
        self._address = address

    def send(self, notice: Notice, key: str) -> None:
        """Post it. `Idempotency-Key` says the key, and an answer of 2xx that it arrived."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "roofwatch"}
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self._address.url, json.dumps(to_document(notice)).encode(), headers, method="POST"
        )
        opener = urllib.request.build_opener(_StayHere)
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            wait_s = _seconds(error.headers.get("Retry-After"))
            is_uncertain = error.code >= 500
            error.close()
            raise SendError(f"HTTP {error.code}", is_uncertain=is_uncertain, wait_s=wait_s) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            said = self._address.without(f"no answer: {type(reason).__name__}: {reason}")
            raise SendError(said, is_uncertain=not isinstance(reason, _UNSEEN)) from None


class _StayHere(urllib.request.HTTPRedirectHandler):
    """What is elsewhere now is an error: the message is for nobody but the address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _seconds(text: str | None) -> float:
    return min(float(text), _MAX_WAIT_S) if text is not None and text.isascii() and text.isdigit() else 0.0
