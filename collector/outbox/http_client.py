"""An HTTP client for one server: HTTPS only, no redirects, and a token that no message repeats."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Never

from roofwatch.collector.errors import SpoolError

TOKEN_VARIABLE = "ROOFWATCH_TOKEN"  # noqa: S105  the name of the variable, not a token

_TIMEOUT_S = 60.0
_MAX_MESSAGE_LENGTH = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Response:
    status: int
    headers: Any
    body: IO[bytes]

    def read(self, max_bytes: int) -> bytes:
        """Read the start of the body; empty if the connection broke."""
        try:
            return self.body.read(max_bytes)
        except (OSError, http.client.HTTPException):
            return b""


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
    ) -> Iterator[Response]:
        """Send one request.

        Raises:
            ConnectionFailedError: no connection, or it broke.
        """
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.url.rstrip("/") + path, data=data, headers=dict(headers), method=method
        )
        if self.token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        # plain HTTP stays on this machine: it must not pass through a proxy
        proxies = [urllib.request.ProxyHandler({})] if self.url.startswith("http:") else []
        try:
            with urllib.request.build_opener(_NoRedirect, *proxies).open(request, timeout=self.timeout_s) as response:
                yield Response(response.status, response.headers, response)
        except urllib.error.HTTPError as error:
            with error:
                yield Response(error.code, error.headers, error)
        except urllib.error.URLError as error:
            raise ConnectionFailedError(self.clean(f"no connection: {error.reason}")) from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailedError(self.clean(f"the connection broke: {type(error).__name__} {error}")) from None

    def clean(self, text: str) -> str:
        """Make a short one-line message without the token."""
        if self.token:
            text = text.replace(self.token, "***")
        printable = "".join(character if character.isprintable() else " " for character in text)
        return " ".join(printable.split())[:_MAX_MESSAGE_LENGTH]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Never:
        del newurl
        raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
