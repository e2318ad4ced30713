"""Stored results from a server: complete answers, or errors of one line that say what to do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlencode
from uuid import UUID

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from roofwatch import __version__
from roofwatch.ci.ab.noise_floor import ComparedRuns, NoiseFloor
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE, ConnectionFailedError, HttpClient
from roofwatch.configuration.settings import load_settings
from roofwatch.db.errors import AgedError
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import RegressionState, Series
from roofwatch.model.optional import map_optional
from roofwatch.model.record import MAX_RECORD_BYTES, Artefact, RunRecord
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.model.stored_results import RunSummary, StepShare, StoredArtefact
from roofwatch.model.triage import TriagedRegression, TriageState

if TYPE_CHECKING:  # a client has no SQLAlchemy
    from roofwatch.db.queries.questions import Question

_MAX_ANSWER_BYTES = 2**28
"""An answer is parsed as a whole."""
_MAX_REASON_BYTES = 2**16
_CHUNK_BYTES = 2**20
_HEADERS = {"User-Agent": f"roofwatch/{__version__}"}
_NO_ROUTE = "Not Found; "
"""Start of the reason if the route is unknown, rather than the resource."""

_PAGE_SIZE = 1_000

_Value = TypeVar("_Value")
P = ParamSpec("P")
A = TypeVar("A")


class _Page(BaseModel):
    items: list[Any]
    next: str | None


_PAGE = TypeAdapter(_Page)
_COMPARED_RUNS = TypeAdapter(ComparedRuns)
_NAMES = TypeAdapter(list[str])
RUNS = TypeAdapter(list[RunSummary])
_SERIES = TypeAdapter(list[Series])
_COUNTED_RUNS = TypeAdapter(list[tuple[str, datetime]])
_REGRESSIONS = TypeAdapter(list[TriagedRegression])
_ACCEPTANCES = TypeAdapter(list[PullRequestAcceptance])
_STEP_SHARES = TypeAdapter(list[StepShare])
_ARTEFACTS = TypeAdapter(list[StoredArtefact])


def server_url(url: str | None) -> str:
    """Return the server of an option, else of the settings.

    Raises:
        SpoolError: neither names one.
    """
    url = url or load_settings().server_url
    if url is None:
        raise SpoolError("no server: use --url or the setting server_url")
    return url


def server_to_read(url: str | None) -> Server | None:
    """Return the server to read through, or None to read the database.

    A URL takes precedence, then the setting `database_url`, then the setting `server_url`.
    """
    settings = load_settings()
    # Someone who names a database in the settings has the rights to read it.
    if url is None and settings.database_url is not None:
        return None
    url = url or settings.server_url
    return map_optional(server_at, url)


def server_at(url: str) -> Server:
    """Open a server with the token from the environment.

    Raises:
        SpoolError: the URL is invalid, or would send the token unencrypted.
    """
    return Server(HttpClient(url, os.environ.get(TOKEN_VARIABLE) or None))


class ConflictingStateError(SpoolError):
    """What the request is about has changed meanwhile."""


@dataclass(frozen=True)
class Server:
    """Every method raises SpoolError if the server cannot be reached, refuses, or answers something
    unexpected.

    AgedError: the server's retention policy removed the data.
    """

    client: HttpClient

    @property
    def url(self) -> str:
        return self.client.url

    def get(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        max_bytes: int = _MAX_ANSWER_BYTES,
    ) -> bytes:
        """Return the complete answer of a route, up to a size; query parameters that are None are
        left out.
        """
        if query:
            path = f"{path}?{_encode(query)}"
        return self._read(path, None, max_bytes)

    def read(self, path: str, query: Mapping[str, object], kind: TypeAdapter[_Value]) -> _Value:
        """Return the parsed answer of a route."""
        return self._parse(self.get(path, query), kind)

    def post(
        self,
        path: str,
        query: Mapping[str, object],
        document: bytes,
        kind: TypeAdapter[_Value],
    ) -> _Value:
        """Post a document and return the parsed answer of a route."""
        body = self._read(f"{path}?{_encode(query)}", document, _MAX_ANSWER_BYTES)
        return self._parse(body, kind)

    def put(
        self,
        path: str,
        query: Mapping[str, object],
        content: bytes,
        kind: TypeAdapter[_Value],
    ) -> _Value:
        """Put the content of a file and return the parsed answer of a route."""
        with self._request(f"{path}?{_encode(query)}", content, method="PUT") as response:
            body = b"".join(self._chunks(response))
        return self._parse(body, kind)

    def _post(self, question: str, document: bytes, kind: TypeAdapter[_Value]) -> _Value:
        """Post the parameters of a question and return the parsed answer."""
        body = self._read(f"/v1/questions/{question}", document, _MAX_ANSWER_BYTES)
        return self._parse(body, kind)

    def pages(
        self,
        path: str,
        query: Mapping[str, object],
        entries: TypeAdapter[list[_Value]],
        *,
        size: int | None = None,
    ) -> Iterator[_Value]:
        """Yield the entries of a list; pages of `size` entries, at most 1,000, are requested when
        needed.
        """
        size = min(size or _PAGE_SIZE, _PAGE_SIZE)
        cursor: str | None = ""
        while cursor is not None:
            parameters = {**query, "limit": size, "cursor": cursor or None}
            page = self.read(path, parameters, _PAGE)
            try:
                yield from entries.validate_python(page.items)
            except ValidationError:
                raise self._unexpected() from None
            # A page that points to itself would never end.
            if page.next == cursor:
                raise self._unexpected()
            cursor = page.next

    @contextmanager
    def chunks(self, path: str) -> Iterator[Iterator[bytes]]:
        """Open the answer of a route in pieces, for large ones."""
        with self._request(path, None) as response:
            yield self._chunks(response)

    def _read(self, path: str, document: bytes | None, max_bytes: int) -> bytes:
        body = bytearray()
        with self._request(path, document) as response:
            for chunk in self._chunks(response):
                body += chunk
                if len(body) > max_bytes:
                    raise SpoolError(
                        f"{self.url}: an answer of more than {max_bytes} bytes; ask for less"
                    )
        return bytes(body)

    @contextmanager
    def _request(
        self,
        path: str,
        document: bytes | None,
        *,
        method: str | None = None,
    ) -> Iterator[HTTPResponse]:
        headers = _HEADERS
        if method is not None:
            headers = {**_HEADERS, "Content-Type": "application/octet-stream"}
        elif document is None:
            method = "GET"
        else:
            method = "POST"
            headers = {**_HEADERS, "Content-Type": "application/json"}
        try:
            with self.client.request(method, path, headers, document) as response:
                self._check(response, path.partition("?")[0])
                yield response
        except ConnectionFailedError as error:
            raise ConnectionFailedError(
                f"{self.url}: {error}; check that roofwatch api runs there, then try again"
            ) from None

    def _check(self, response: HTTPResponse, path: str) -> None:
        if response.status == 200:
            return
        body = response.read(_MAX_REASON_BYTES)
        reason = _problem(body).get("detail") or body.decode(errors="replace").strip()
        message = f"HTTP {response.status}: {reason or 'no reason given'}"
        # The other address was not asked for the token.
        if 300 <= response.status < 400:
            location = response.headers.get("Location")
            message = f"redirects to {location}; the token is not sent there, use it as --url"
        elif response.status == 401:
            message += f"; the token is read from {TOKEN_VARIABLE}"
        # An unknown resource names itself; an unknown route is a wrong or older server.
        elif response.status == 404 and (not reason or str(reason).startswith(_NO_ROUTE)):
            message = (
                f"knows no {path}: another server, or older than roofwatch {__version__}; update it"
            )
        elif "Retry-After" in response.headers:
            message += f"; after {response.headers['Retry-After']} s"
        kind: type[Exception] = SpoolError
        if response.status == 410:
            kind = AgedError
        elif response.status == 409:
            kind = ConflictingStateError
        raise kind(self.client.clean(f"{self.url}: {message}"))

    def _chunks(self, response: HTTPResponse) -> Iterator[bytes]:
        length = response.headers.get("Content-Length", "")
        size_bytes = 0
        try:
            while chunk := response.read(_CHUNK_BYTES):
                yield chunk
                size_bytes += len(chunk)
        except (OSError, HTTPException) as error:
            raise ConnectionFailedError(
                self.client.clean(f"the connection broke: {error}")
            ) from None
        # A proxy may end a connection as if the answer were complete.
        if length.isdecimal() and size_bytes < int(length):
            raise ConnectionFailedError("the connection broke within the answer")

    def _parse(self, body: bytes, kind: TypeAdapter[_Value]) -> _Value:
        try:
            return kind.validate_json(body)
        except ValidationError:
            raise self._unexpected() from None

    def _unexpected(self) -> SpoolError:
        expected = f"does not answer as roofwatch api {__version__} does"
        return SpoolError(f"{self.url}: {expected}; check --url, or update the older of the two")

    # --- the methods of `DatabaseSource`

    def list_projects(self) -> Sequence[str]:
        return list(self.pages("/v1/projects", {}, _NAMES))

    def list_runs(
        self,
        project: str,
        limit: int | None,
        *,
        is_quarantined: bool = False,
    ) -> Sequence[RunSummary]:
        query = {"project": project, "quarantined": is_quarantined}
        return list(islice(self.pages("/v1/runs", query, RUNS, size=limit), limit))

    def read_series(
        self, chosen: SeriesFilter, *, since: datetime | None = None
    ) -> Sequence[Series]:
        """Read series in the order of their keys, of runs that started then or later."""
        query = asdict(chosen) | {"since": map_optional(datetime.isoformat, since)}
        return list(self.pages("/v1/series/points", query, _SERIES))

    def list_counted_runs(self, project: str) -> Sequence[tuple[str, datetime]]:
        """List id and start of the runs of all series of a project, the oldest first."""
        return self._post("list_counted_runs", to_json({"project": project}), _COUNTED_RUNS)

    def list_regressions(
        self,
        project: str,
        state: RegressionState | None = None,
        triage: TriageState | None = None,
    ) -> Sequence[TriagedRegression]:
        query = {"project": project, "state": state, "triage": triage}
        return list(self.pages("/v1/regressions", query, _REGRESSIONS))

    def list_acceptances(self, project: str) -> Sequence[PullRequestAcceptance]:
        return list(self.pages("/v1/acceptances", {"project": project}, _ACCEPTANCES))

    def send_acceptance(self, project: str, acceptance: PullRequestAcceptance) -> None:
        """Store what was accepted in a pull request; a repetition changes nothing."""
        document = to_json(acceptance)
        self.post("/v1/acceptances", {"project": project}, document, TypeAdapter(object))

    def resolve_revisions(
        self,
        project: str,
        base: str,
        head: str,
        runner_class: str | None = None,
    ) -> tuple[UUID, UUID]:
        query = {
            "project": project,
            "base": base,
            "head": head,
            "runner_class": runner_class,
        }
        run_ids = self.read("/v1/comparison/runs", query, _COMPARED_RUNS)
        return run_ids.base_run_id, run_ids.head_run_id

    def load_record(self, run_id: UUID) -> RunRecord:
        document = self.get(f"/v1/runs/{run_id}/record", max_bytes=MAX_RECORD_BYTES)
        return RunRecord.from_json(document, name=f"run {run_id} of {self.url}")

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        query = {
            "project": project,
            "base": run_id,
            "head": run_id,
            "noise_floor": True,
        }
        return self.read("/v1/comparison/runs", query, _COMPARED_RUNS).noise_floor

    def list_step_shares(self, project: str, runner_class: str) -> Sequence[StepShare]:
        parameters = to_json({"project": project, "runner_class": runner_class})
        return self._post("list_step_shares", parameters, _STEP_SHARES)

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        return self._post(question.name, question.to_json(*args, **kwargs), question.answer)

    def list_artefacts(self, run_id: UUID) -> Sequence[StoredArtefact]:
        return list(self.pages(f"/v1/runs/{run_id}/artefacts", {}, _ARTEFACTS))

    def fetch_artefact(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        with self.chunks(f"/v1/runs/{run_id}/artefacts/{artefact.sha256}") as content:
            ArtefactFolder(path.parent).receive(artefact, content, path)

    def read_artefact(self, run_id: UUID, sha256: str) -> bytes:
        content = self.get(f"/v1/runs/{run_id}/artefacts/{sha256}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise SpoolError(
                f"{self.url}: content {sha256[:12]}… of run {run_id} is incomplete; try again"
            )
        return content


def _encode(query: Mapping[str, object]) -> str:
    texts: dict[str, str] = {}
    for name, value in query.items():
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif value is not None:
            texts[name] = str(value)
    return urlencode(texts)


def _problem(body: bytes) -> dict[str, Any]:
    """Parse a problem document; empty if the body is not one."""
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    # JSON of another service need not be an object.
    return problem if isinstance(problem, dict) else {}
