"""Send to a server: a record by `POST /v1/records`, answered with its id and content hash and the files that the server
lacks of it; each of those by `PUT /v1/runs/{run_id}/artefacts/{sha256}`.
"""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.files import compress
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE, ConnectionFailedError, HttpClient, Response
from roofwatch.collector.outbox.spool import Acknowledged, Answer, Deferred, Refused, Unavailable
from roofwatch.collector.record.record import Artefact, RunRecord, utc_now

__all__ = ["TOKEN_VARIABLE", "HttpSender"]

PATH = "/v1/records"

_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 2**18

_CONFLICT = 409
_TRY_LATER = frozenset({408, 425, 429})
_FORBIDDEN = 403
# the fault is this sender's, its address or token, and not the record's or the file's: that must put no record aside
# and let no file go
_WRONG_SENDER = frozenset({401, 404, 405, 407})
# said of a file after its record was taken from here: it is about this file, or its run
_NOT_THIS_FILE = frozenset({_FORBIDDEN, 404, 405})
_OF_PROJECT = "urn:roofwatch:problem:forbidden"
"""As our server says that a token is not for a project; a proxy may forbid one record for what is in it."""


@dataclass(frozen=True)
class HttpSender:
    """Sends records and their files to one server.

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
        _ = self._line  # its URL is looked at now

    def __call__(self, record: RunRecord) -> Answer:
        """Send one record.

        Raises:
            SpoolError: the server does not take records from here at all: wrong address, or wrong token.
        """
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "Accept": "application/json",
            "User-Agent": f"roofwatch/{record.harness_version}",
            "Idempotency-Key": str(record.run_id),
        }
        # without fields at their defaults: a server of an older minor version would keep one that it does not know as
        # said, find another content hash, and acknowledge another record than this one
        document = orjson.dumps(record.said(), option=orjson.OPT_SORT_KEYS)
        try:
            with self._line.ask("POST", PATH, headers, compress(document)) as response:
                return self._judge_record(record, response)
        except ConnectionFailedError as error:
            return Unavailable(str(error))

    def send_artefact(
        self, record: RunRecord, artefact: Artefact, file: Path
    ) -> Refused | Unavailable | Deferred | None:
        """Send a file that an acknowledged record names; None where the server has it from now on.

        Raises:
            SpoolError: the server does not take files from here at all: wrong address, or wrong token.
        """
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(artefact.size_bytes),
            "Accept": "application/json",
            "User-Agent": f"roofwatch/{record.harness_version}",
        }
        path = f"/v1/runs/{record.run_id}/artefacts/{artefact.sha256}"
        try:
            with file.open("rb") as content, self._line.ask("PUT", path, headers, content) as response:
                return self._judge_artefact(response)
        except ConnectionFailedError as error:
            return Unavailable(str(error))
        except OSError as error:
            # it is there, so this may pass, as what another user owns or a disk in trouble: its only copy is kept
            return Deferred(f"{file}: cannot be read: {error.strerror}")

    @property
    def _line(self) -> HttpClient:
        return HttpClient(self.url, self.token, self.timeout_s)

    def _judge_record(self, record: RunRecord, response: Response) -> Answer:
        body = response.read(_MAX_ANSWER_BYTES)
        acknowledged = _acknowledgement(body)
        if acknowledged is not None and (response.status < 300 or response.status == _CONFLICT):
            return acknowledged  # whether it names the right record is for the spool to see
        said = self._said(response.status, body)
        self._raise_where_at_fault("records", _WRONG_SENDER, response, said)
        if response.status == _FORBIDDEN:
            way_out = f"push again with one that is for it: roofwatch token create NAME --project {record.project} "
            reason = f"project {record.project}: the token may not send its records; {way_out}--scope ingest ({said})"
            return Deferred(reason, is_of_project=_kind(body) == _OF_PROJECT)
        if response.status < 300:
            return Unavailable(f"the server did not say which record it has: {said}")
        return self._refusal(response, said)

    def _judge_artefact(self, response: Response) -> Refused | Unavailable | Deferred | None:
        if response.status < 300:
            return None
        said = self._said(response.status, response.read(_MAX_ANSWER_BYTES))
        self._raise_where_at_fault("files", _WRONG_SENDER - _NOT_THIS_FILE, response, said)
        if response.status in _NOT_THIS_FILE:
            # the run is gone since it was acknowledged, say: the next push sends its record first, and hears more
            return Deferred(f"its files are not taken: {said}")
        return self._refusal(response, said)

    def _raise_where_at_fault(self, what: str, wrong: Collection[int], response: Response, said: str) -> None:
        lacks_scope = response.status == _FORBIDDEN and "insufficient_scope" in _challenge(response.headers)
        if response.status in wrong or lacks_scope or 300 <= response.status < 400:
            where = _destination(response.headers)
            raise SpoolError(self._line.said(f"{self.url} takes no {what} from here{where}: {said}"))

    def _refusal(self, response: Response, said: str) -> Refused | Unavailable:
        if response.status < 500 and response.status not in _TRY_LATER:
            return Refused(said)
        return Unavailable(said, _seconds_of(response.headers.get("Retry-After"), self.now()))

    def _said(self, status: int, body: bytes) -> str:
        return self._line.said(f"HTTP {status}: {body.decode(errors='replace')}")


def _destination(headers: Any) -> str:
    return f", which sends on to {headers.get('Location')}" if headers.get("Location") else ""


def _challenge(headers: Any) -> str:
    """Source: RFC 6750, 3.1, what a token lacks."""
    return headers.get("WWW-Authenticate") or ""


def _kind(body: bytes) -> str | None:
    """Of a problem document (RFC 9457); None where it is none."""
    try:
        return str(orjson.loads(body)["type"])
    except (ValueError, KeyError, TypeError):
        return None


def _acknowledgement(body: bytes) -> Acknowledged | None:
    try:
        said = orjson.loads(body)
        lacking = tuple(str(sha256) for sha256 in said.get("lacking_artefacts") or ())
        return Acknowledged(UUID(said["run_id"]), str(said["content_hash"]), lacking)
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
