"""An HTTP client for one server: HTTPS only, no redirects, and a token that no message repeats."""

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import IO

from roofwatch.collector.errors import SpoolError

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
        try:
            parts = urllib.parse.urlsplit(self.url)
            host = (parts.hostname or "").encode("idna")
            is_valid = parts.scheme in {"http", "https"} and bool(host) and parts.port != 0 and parts.path.isascii()
        except ValueError:
            is_valid = False
        if not is_valid or not self.url.isprintable() or " " in self.url:
            raise SpoolError("the server's URL must be https://host or https://host:port")
        if parts.username is not None or parts.query or parts.fragment:
            raise SpoolError(f"the server's URL may hold no credentials or query: set {TOKEN_VARIABLE}")
        if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
            raise SpoolError(f"{self.url}: plain http would expose records and token: use https")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SpoolError(f"{TOKEN_VARIABLE} is no token: it holds a line break, or characters other than ASCII")

    @contextmanager
    def request(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes | IO[bytes] | None = None
    ) -> Iterator[HTTPResponse]:
        """Send one request; every status is an answer.

        Raises:
            ConnectionFailedError: no connection, or it broke.
        """
        authorization = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.url.rstrip("/") + path, data=data, headers={**headers, **authorization}, method=method
        )
        # plain HTTP stays on this machine: it must not pass through a proxy
        proxies = [urllib.request.ProxyHandler({})] if self.url.startswith("http:") else []
        try:
            with urllib.request.build_opener(_EveryStatus, *proxies).open(request, timeout=self.timeout_s) as response:
                yield response
        except urllib.error.URLError as error:
            raise ConnectionFailedError(self.clean(f"no connection: {error.reason}")) from None
        except (OSError, HTTPException) as error:
            raise ConnectionFailedError(self.clean(f"the connection broke: {type(error).__name__} {error}")) from None

    def clean(self, text: str) -> str:
        """Make a short one-line message without the token."""
        if self.token:
            text = text.replace(self.token, "***")
        printable = "".join(character if character.isprintable() else " " for character in text)
        return " ".join(printable.split())[:_MAX_MESSAGE_LENGTH]


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Returns redirects and errors like any other response."""

    def http_response(self, request: urllib.request.Request, response: HTTPResponse) -> HTTPResponse:
        del request
        return response

    https_response = http_response
