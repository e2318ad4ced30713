"""Send a record to a server: `POST /v1/records` with gzip JSON, answered with the record's id and content hash."""

from __future__ import annotations

import email.utils
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, Never
from uuid import UUID

import orjson

from collector.errors import SpoolError
from collector.keeping.compressed import compress
from collector.keeping.spool import Acknowledged, Answer, Refused, Unavailable
from collector.record import RunRecord, utc_now

TOKEN_VARIABLE = "ROOFWATCH_TOKEN"  # noqa: S105  the name of the variable, not a token
PATH = "/v1/records"

_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 2**16
_MAX_REASON = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})

_CONFLICT = 409
_TRY_LATER = frozenset({408, 425, 429})
# the fault is this sender's, its address or token, and not the record's: that must not put a record aside
_WRONG_SENDER = frozenset({401, 403, 404, 405, 407})


@dataclass(frozen=True)
class HttpSender:
    """Sends records to one server.

    Args:
        url: Of the server; `https`, or `http` to this machine.
        token: Sent as bearer token, and found in no message.
        timeout_s: For the connection and for each silence.
        now: The time, which a date in `Retry-After` is counted from.

    Raises:
        SpoolError: the URL would carry records or a token unprotected, or is none.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = _TIMEOUT_S
    now: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SpoolError("the server's URL must be https://host or https://host:port")
        if parts.username is not None or parts.query or parts.fragment:
            raise SpoolError(f"the server's URL may hold no credentials or query: set {TOKEN_VARIABLE}")
        if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
            raise SpoolError(f"{self.url}: plain http would show records and token to others: use https")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SpoolError(f"{TOKEN_VARIABLE} holds what no token does: a line break, or other than ASCII")

    def __call__(self, record: RunRecord) -> Answer:
        """Send one record.

        Raises:
            SpoolError: the server does not take records from here at all: wrong address, or wrong token.
        """
        try:
            with self._opener.open(self._request(record), timeout=self.timeout_s) as response:
                return self._judge(response.status, response.headers, response.read(_MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return self._judge(error.code, error.headers, _read_or_nothing(error))
        except urllib.error.URLError as error:
            return Unavailable(self._said(f"no connection: {error.reason}"))
        except (OSError, http.client.HTTPException) as error:
            return Unavailable(self._said(f"the connection broke: {type(error).__name__} {error}"))

    @property
    def _opener(self) -> urllib.request.OpenerDirector:
        # what is unprotected stays on this machine: no proxy gets to see it
        is_plain = urllib.parse.urlsplit(self.url).scheme == "http"
        return urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if is_plain else []))

    def _request(self, record: RunRecord) -> urllib.request.Request:
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "Accept": "application/json",
            "User-Agent": f"roofwatch/{record.harness_version}",
            "Idempotency-Key": str(record.run_id),
        }
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.url.rstrip("/") + PATH, data=compress(record.to_json()), headers=headers, method="POST"
        )
        if self.token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return request

    def _judge(self, status: int, headers: Any, body: bytes) -> Answer:
        acknowledged = _acknowledgement(body)
        if acknowledged is not None and (status < 300 or status == _CONFLICT):
            return acknowledged  # whether it names the right record is for the spool to see
        said = self._said(f"HTTP {status}: {body.decode(errors='replace')}")
        if status in _WRONG_SENDER or 300 <= status < 400:
            where = f", which sends on to {headers.get('Location')}" if headers.get("Location") else ""
            raise SpoolError(self._said(f"{self.url} takes no records from here{where}: {said}"))
        if status < 300:
            return Unavailable(f"the server did not say which record it has: {said}")
        if 400 <= status < 500 and status not in _TRY_LATER:
            return Refused(said)
        return Unavailable(said, _seconds_of(headers.get("Retry-After"), self.now()))

    def _said(self, text: str) -> str:
        """A reason to be kept and shown: short, in one line, and without the token if somebody repeats it."""
        if self.token:
            text = text.replace(self.token, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MAX_REASON]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the record elsewhere, or turn it into a GET."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Never:
        del newurl
        raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)


def _read_or_nothing(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def _acknowledgement(body: bytes) -> Acknowledged | None:
    try:
        said = orjson.loads(body)
        return Acknowledged(UUID(said["run_id"]), str(said["content_hash"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Seconds that a server asked to wait, in seconds or as a date; None where it did not."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(retry_after) - now).total_seconds())
    except (ValueError, TypeError):  # not a date, or one without its zone
        return None
