"""Send records and their artefacts to a server: HTTPS only, no redirects, and a token that no
message repeats.

A record goes to `POST /v1/records`. The answer holds its ID, its content hash and the artefacts
that the server lacks. Each of them goes to `PUT /v1/runs/{run_id}/artefacts/{sha256}`.
"""

import email.utils
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from uuid import UUID

import orjson

from roofwatch.collector.outbox.spool import Acknowledged, Answer, Refused, Unavailable
from roofwatch.model.errors import SpoolError
from roofwatch.model.files import compress
from roofwatch.model.record import Artefact, RunRecord, utc_now

TOKEN_VARIABLE = "ROOFWATCH_TOKEN"  # noqa: S105  the name of the variable, not a token

_TIMEOUT_S = 60.0
_MAX_MESSAGE_LENGTH = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class ConnectionFailedError(SpoolError):
    """The server was not reached, or the connection broke."""


@dataclass(frozen=True)
class HttpClient:
    """A client of one server.

    Raises:
        SpoolError: the URL is invalid, or would send the token unencrypted.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = _TIMEOUT_S
    """For connecting and for each read."""

    def __post_init__(self) -> None:
        """Refuse a URL or token that would expose what is sent."""
        try:
            parts = urllib.parse.urlsplit(self.url)
            host = (parts.hostname or "").encode("idna")
            is_http = parts.scheme in {"http", "https"}
            is_valid = is_http and bool(host) and parts.port != 0 and parts.path.isascii()
        except ValueError:
            is_valid = False
        if not is_valid or not self.url.isprintable() or " " in self.url:
            raise SpoolError("the server's URL must be https://host or https://host:port")
        if parts.username is not None or parts.query or parts.fragment:
            raise SpoolError(
                f"the server's URL may hold no credentials or query: set {TOKEN_VARIABLE}"
            )
        if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
            raise SpoolError(f"{self.url}: plain http would expose records and token: use https")
        if self.token is None:
            return
        if not self.token.isascii() or not self.token.isprintable():
            raise SpoolError(
                f"{TOKEN_VARIABLE} is no token: it holds a line break, or characters other than "
                f"ASCII"
            )

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: bytes | IO[bytes] | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send one request; every status is an answer.

        Raises:
            ConnectionFailedError: no connection, or it broke.
        """
        all_headers = dict(headers)
        if self.token is not None:
            all_headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.url.rstrip("/") + path,
            data=data,
            headers=all_headers,
            method=method,
        )
        opener = urllib.request.build_opener(_EveryStatus)
        if self.url.startswith("http:"):
            # plain HTTP stays on this machine: it must not pass through a proxy
            opener = urllib.request.build_opener(_EveryStatus, urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self.timeout_s) as response:
                yield response
        except urllib.error.URLError as error:
            raise ConnectionFailedError(self.clean(f"no connection: {error.reason}")) from None
        except (OSError, HTTPException) as error:
            raise ConnectionFailedError(
                self.clean(f"the connection broke: {type(error).__name__} {error}")
            ) from None

    def clean(self, text: str) -> str:
        """Make a short one-line message without the token."""
        if self.token:
            text = text.replace(self.token, "***")
        printable = "".join(character if character.isprintable() else " " for character in text)
        words = printable.split()
        return " ".join(words)[:_MAX_MESSAGE_LENGTH]


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Returns redirects and errors like any other response."""

    def http_response(
        self,
        request: urllib.request.Request,
        response: HTTPResponse,
    ) -> HTTPResponse:
        """Return every response as it is: the caller judges the status."""
        del request
        return response

    https_response = http_response


_PATH = "/v1/records"
_MAX_ANSWER_BYTES = 2**18

_FORBIDDEN = 403
_CONFLICT = 409
_TRY_LATER = frozenset({408, 425, 429})
_WRONG_TOKEN = frozenset({401, 407})
_WRONG_ADDRESS = frozenset({404, 405})


@dataclass(frozen=True)
class HttpSender(HttpClient):
    """Sends records and their artefacts to its server."""

    now: Callable[[], datetime] = utc_now
    """To interpret a date in `Retry-After`."""

    def send(self, record: RunRecord) -> Answer:
        """Send one record.

        Raises:
            SpoolError: wrong address or token; the server accepts no records from this sender.
        """
        headers = {
            **_headers(record),
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        }
        # without default values: an older server would include fields that it does not know in the
        # content hash
        document = compress(orjson.dumps(record.to_dict(), option=orjson.OPT_SORT_KEYS))
        try:
            with self.request("POST", _PATH, headers, document) as response:
                body = response.read(_MAX_ANSWER_BYTES)
                acknowledged = _acknowledgement(body)
                # a conflict: the server has the record already
                has_record = response.status < 300 or response.status == _CONFLICT
                if acknowledged is not None and has_record:
                    return acknowledged
                message = self._message(response, body)
                if response.status < 300:
                    return Unavailable(f"the server did not say which record it has: {message}")
                if response.status in _WRONG_ADDRESS:
                    raise self._rejected(
                        documents="records",
                        response=response,
                        message=message,
                    )
                if response.status == _FORBIDDEN and not _lacks_scope(response):
                    reason = (
                        f"the token may not send records of project {record.project}; push again "
                        f"with one that may: "
                        f"roofwatch token create NAME --project {record.project} --scope ingest "
                        f"({message})"
                    )
                    return Unavailable(reason, is_retried=False)
                return self._failure(
                    documents="records",
                    response=response,
                    message=message,
                )
        except ConnectionFailedError as error:
            return Unavailable(str(error))

    def send_artefact(
        self,
        record: RunRecord,
        artefact: Artefact,
        file: Path,
    ) -> Refused | Unavailable | None:
        """Send an artefact of an acknowledged record; None once the server has it.

        Raises:
            SpoolError: wrong address or token; the server accepts no files from this sender.
        """
        headers = _headers(record)
        headers |= {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(artefact.size_bytes),
        }
        path = f"/v1/runs/{record.run_id}/artefacts/{artefact.sha256}"
        try:
            with (
                file.open("rb") as content,
                self.request("PUT", path, headers, content) as response,
            ):
                if response.status < 300:
                    return None
                message = self._message(response, response.read(_MAX_ANSWER_BYTES))
                is_forbidden = response.status == _FORBIDDEN and not _lacks_scope(response)
                if response.status in _WRONG_ADDRESS or is_forbidden:
                    return Unavailable(f"its files are not accepted: {message}", is_retried=False)
                return self._failure(
                    documents="files",
                    response=response,
                    message=message,
                )
        except ConnectionFailedError as error:
            return Unavailable(str(error))
        except OSError as error:
            return Unavailable(f"{file}: cannot be read: {error.strerror}", is_retried=False)

    def _failure(
        self,
        documents: str,
        response: HTTPResponse,
        message: str,
    ) -> Refused | Unavailable:
        """Tell a refusal of this record from a server to try again later."""
        status = response.status
        # below 400 is a redirect, which would take the token to another address
        if status < 400 or status in _WRONG_TOKEN or status == _FORBIDDEN:
            raise self._rejected(documents, response, message)
        if status < 500 and status not in _TRY_LATER:
            return Refused(message)
        retry_after = response.headers.get("Retry-After")
        return Unavailable(message, _retry_after_s(retry_after, self.now()))

    def _rejected(self, documents: str, response: HTTPResponse, message: str) -> SpoolError:
        """The error for a server that accepts nothing from here."""
        location = response.headers.get("Location")
        redirect = ""
        if location:
            redirect = f", which redirects to {location}"
        return SpoolError(
            self.clean(f"{self.url} accepts no {documents} from here{redirect}: {message}")
        )

    def _message(self, response: HTTPResponse, body: bytes) -> str:
        return self.clean(f"HTTP {response.status}: {body.decode(errors='replace')}")


def _headers(record: RunRecord) -> dict[str, str]:
    return {"Accept": "application/json", "User-Agent": f"roofwatch/{record.harness_version}"}


def _lacks_scope(response: HTTPResponse) -> bool:
    """Whether the token lacks the scope (RFC 6750, 3.1), not only access to this project."""
    return "insufficient_scope" in (response.headers.get("WWW-Authenticate") or "")


def _acknowledgement(body: bytes) -> Acknowledged | None:
    """What the server stored; None if it is no answer of a server of records."""
    try:
        answer = orjson.loads(body)
        missing = tuple(str(sha256) for sha256 in answer.get("lacking_artefacts") or ())
        return Acknowledged(
            run_id=UUID(answer["run_id"]),
            content_hash=str(answer["content_hash"]),
            missing_artefacts=missing,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _retry_after_s(retry_after: str | None, now: datetime) -> float | None:
    """Parse `Retry-After`: seconds, or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        wait = email.utils.parsedate_to_datetime(retry_after) - now
    except (ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())
