"""A line to one server: protected, without proxies or redirects that carry what is said elsewhere, and with a token
that no message repeats.
"""

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
_MAX_REASON = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Response:
    """What a server said: its status, its headers, and its body to be read."""

    status: int
    headers: Any
    body: IO[bytes]

    def read(self, most_bytes: int) -> bytes:
        """The beginning of the body; nothing where the line broke."""
        try:
            return self.body.read(most_bytes)
        except (OSError, http.client.HTTPException):
            return b""


class ConnectionFailedError(SpoolError):
    """The server was not reached, or the connection broke; later it may work."""


@dataclass(frozen=True)
class HttpClient:
    """Raises SpoolError where the URL would carry records or a token unprotected, or is none."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = _TIMEOUT_S
    """For the connection and for each silence."""

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            host = (parts.hostname or "").encode("idna")
            is_known = parts.scheme in {"http", "https"} and bool(host) and parts.port != 0
        except ValueError:  # a port that is no number, half of an address in brackets, a name without a letter
            is_known = False
        if not is_known or not (self.url.isprintable() and " " not in self.url and parts.path.isascii()):
            raise SpoolError("the server's URL must be https://host or https://host:port")
        if parts.username is not None or parts.query or parts.fragment:
            raise SpoolError(f"the server's URL may hold no credentials or query: set {TOKEN_VARIABLE}")
        if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
            raise SpoolError(f"{self.url}: plain http would show records and token to others: use https")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SpoolError(f"{TOKEN_VARIABLE} holds what no token does: a line break, or other than ASCII")

    @contextmanager
    def ask(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes | IO[bytes] | None = None
    ) -> Iterator[Response]:
        """Send one request.

        Raises:
            ConnectionFailedError: no connection, or it broke, while the body is read too.
        """
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.url.rstrip("/") + path, data=data, headers=dict(headers), method=method
        )
        if self.token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=self.timeout_s) as response:
                yield Response(response.status, response.headers, response)
        except urllib.error.HTTPError as error:
            with error:
                yield Response(error.code, error.headers, error)
        except urllib.error.URLError as error:
            raise ConnectionFailedError(self.said(f"no connection: {error.reason}")) from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailedError(self.said(f"the connection broke: {type(error).__name__} {error}")) from None

    def said(self, text: str) -> str:
        """A reason to be kept and shown: short, in one line, and without the token if somebody repeats it."""
        if self.token:
            text = text.replace(self.token, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MAX_REASON]

    @property
    def _opener(self) -> urllib.request.OpenerDirector:
        # what is unprotected stays on this machine: no proxy gets to see it
        is_plain = urllib.parse.urlsplit(self.url).scheme == "http"
        return urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if is_plain else []))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the record elsewhere, or turn it into a GET."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Never:
        del newurl
        raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
