"""A server that has what was stored, asked by its HTTP API: whole answers, or one line that says the way out."""

from __future__ import annotations

import http.client
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from roofwatch import __version__
from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE, ConnectionFailedError, HttpClient, Response
from roofwatch.settings import load_settings

_MAX_ANSWER_BYTES = 2**28
_MAX_REASON_BYTES = 2**16
_CHUNK_BYTES = 2**20
_GZIP = 16 + zlib.MAX_WBITS
"""What zlib calls it."""
_HEADERS = {"User-Agent": f"roofwatch/{__version__}"}
_OK = 200
_GONE = 410
_UNPROCESSABLE = 422
_TOO_LARGE = "urn:roofwatch:problem:too-large"
_NO_ROUTE = "Not Found; "
"""How a server begins that knows no such address, other than one that has no such thing."""

_Value = TypeVar("_Value")


class TooMuchError(SpoolError):
    """The server would answer, were less asked for at once."""


class GoneError(SpoolError):
    """What was asked for went by the policy of what is kept there."""


class _Page(BaseModel):
    items: list[Any]
    next: str | None


_PAGE = TypeAdapter(_Page)


def server_url(url: str | None) -> str:
    """The server of an option, else of the settings.

    Raises:
        SpoolError: neither names one.
    """
    url = url or load_settings().server_url
    if url is None:
        raise SpoolError("which server? Name it with --url, or by the setting server_url")
    return url


def server_to_read(url: str | None) -> Server | None:
    """The server that what is stored is read through; None where the database is asked itself: who names a server by
    the option means that, and who has no database but a server by its settings means that too.
    """
    settings = load_settings()
    if url is None and settings.database_url is not None:
        return None
    url = url or settings.server_url
    return None if url is None else server_at(url)


def server_at(url: str) -> Server:
    """A server with the token of the environment.

    Raises:
        SpoolError: the URL would carry the token unprotected, or is none.
    """
    return Server(HttpClient(url, os.environ.get(TOKEN_VARIABLE) or None))


@dataclass(frozen=True)
class Server:
    """Every method raises SpoolError where the server cannot be asked, refuses, or answers something else."""

    line: HttpClient

    def get(self, path: str, query: Mapping[str, str] | None = None, *, most_bytes: int = _MAX_ANSWER_BYTES) -> bytes:
        """The whole answer to a question.

        Args:
            path: Of the route.
            query: Of the question.
            most_bytes: How long an answer may be.
        """
        asked = f"{path}?{urlencode(query)}" if query else path
        with self._asked(asked, {}) as response:
            self._check(response, path)
            return self._whole(response, most_bytes)

    def read(self, path: str, query: Mapping[str, str], kind: TypeAdapter[_Value]) -> _Value:
        """What a route answers with."""
        return self._parse(self.get(path, query), kind)

    def ask(self, path: str, document: bytes, kind: TypeAdapter[_Value]) -> _Value:
        """What a route answers to a document.

        Args:
            path: Of the route.
            document: JSON.
            kind: What the answer is.
        """
        with self._asked(path, {"Content-Type": "application/json"}, document) as response:
            self._check(response, path)
            body = self._whole(response, _MAX_ANSWER_BYTES)
        try:
            return kind.validate_json(body)
        except ValidationError:
            raise self._is_another() from None

    def pages(
        self, path: str, query: Mapping[str, str], entries: TypeAdapter[list[_Value]], *, size: int
    ) -> Iterator[_Value]:
        """The entries of a list, page by page; the next page is asked for once it is needed.

        Args:
            path: Of the route.
            query: Of the question.
            entries: What the entries of a page are.
            size: Entries of a page.
        """
        cursor: str | None = ""
        while cursor is not None:
            asked = {**query, "limit": str(size)} | ({"cursor": cursor} if cursor else {})
            page = self.read(path, asked, _PAGE)
            yield from self._valid(page.items, entries)
            if page.next == cursor:
                raise self._is_another()  # it would never end
            cursor = page.next

    @contextmanager
    def chunks(self, path: str) -> Iterator[Iterator[bytes]]:
        """The answer in pieces, for what may be too large to be held."""
        with self._asked(path, {}) as response:
            self._check(response, path)
            yield self._chunks(response)

    @contextmanager
    def _asked(self, path: str, headers: Mapping[str, str], document: bytes | None = None) -> Iterator[Response]:
        method = "GET" if document is None else "POST"
        try:
            with self.line.request(method, path, {**_HEADERS, **headers}, document) as response:
                yield response
        except ConnectionFailedError as error:
            raise ConnectionFailedError(
                f"{self.line.url}: {error}; see whether roofwatch api runs there, then ask again"
            ) from None

    def _check(self, response: Response, path: str) -> None:
        if response.status == _OK:
            return
        body = response.read(_MAX_REASON_BYTES)
        reason = _detail_of(body)
        said = f"HTTP {response.status}: {reason or 'no reason given'}"
        if 300 <= response.status < 400:
            said = f"sends on to {response.headers.get('Location')}, where no token goes unasked: name that with --url"
        elif response.status == 401:
            said += f"; the token is read from {TOKEN_VARIABLE}"
        elif response.status == 404 and (reason is None or reason.startswith(_NO_ROUTE)):
            said = f"knows no {path}: it is another server, or older than roofwatch {__version__}; update it"
        elif (wait_s := response.headers.get("Retry-After")) is not None:
            said += f"; after {wait_s} s"
        kind = SpoolError
        if response.status == _GONE:
            kind = GoneError
        elif response.status == _UNPROCESSABLE and _type_of(body) == _TOO_LARGE:
            kind = TooMuchError
        raise kind(self.line.clean(f"{self.line.url}: {said}"))

    def _whole(self, response: Response, most_bytes: int) -> bytes:
        return self._bounded(b"".join(self._chunks(response, most_bytes)), most_bytes)

    def _bounded(self, body: bytes, most_bytes: int) -> bytes:
        if len(body) > most_bytes:
            raise SpoolError(f"{self.line.url}: an answer of more than {most_bytes} bytes; ask for less")
        return body

    def _chunks(self, response: Response, most_bytes: int | None = None) -> Iterator[bytes]:
        """To the end, or to the first piece beyond what may be."""
        length = response.headers.get("Content-Length")
        size_bytes = 0
        try:
            while chunk := response.body.read(_CHUNK_BYTES):
                yield chunk
                size_bytes += len(chunk)
                if most_bytes is not None and size_bytes > most_bytes:
                    return
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailedError(self.line.clean(f"the connection broke: {error}")) from None
        if length is not None and length.isdecimal() and size_bytes < int(length):
            raise ConnectionFailedError("the connection broke within the answer")

    def _parse(self, body: bytes, kind: TypeAdapter[_Value]) -> _Value:
        try:
            return self._valid(orjson.loads(body), kind)
        except orjson.JSONDecodeError:
            raise self._is_another() from None

    def _valid(self, value: object, kind: TypeAdapter[_Value]) -> _Value:
        try:
            return kind.validate_python(value)
        except ValidationError:
            raise self._is_another() from None

    def _is_another(self) -> SpoolError:
        expected = f"does not answer as roofwatch api {__version__} does"
        return SpoolError(f"{self.line.url}: {expected}; check --url, or update the older of the two")


def _type_of(body: bytes) -> object:
    """The kind of problem that a problem document says."""
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return problem.get("type") if isinstance(problem, dict) else None


def _detail_of(body: bytes) -> str | None:
    """What a problem document says of itself, else the text as it is; None where there is none."""
    try:
        problem = orjson.loads(body)
        detail = problem.get("detail") if isinstance(problem, dict) else None
    except orjson.JSONDecodeError:
        return body.decode(errors="replace").strip() or None
    return detail if isinstance(detail, str) else body.decode(errors="replace")
