"""Files of runs as a server has them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import orjson
from pydantic import TypeAdapter, ValidationError

from collector.artefact import Artefact
from collector.errors import SpoolError
from collector.keeping.artefact_folder import ArtefactFolder
from collector.keeping.http_line import Answered, HttpLine
from roofwatch import __version__

_CHUNK_BYTES = 2**20
_MAX_LIST_BYTES = 2**24
_MAX_REASON_BYTES = 2**16
_HEADERS = {"User-Agent": f"roofwatch/{__version__}"}
_FOUND = 200


@dataclass(frozen=True)
class OfferedArtefact:
    """A file as the server lists it."""

    name: str
    kind: str
    sha256: str
    size_bytes: int
    is_stored: bool


_OFFERED = TypeAdapter(list[OfferedArtefact])


def list_offered(line: HttpLine, run_id: UUID) -> list[OfferedArtefact]:
    """What the record of a run names, as a server knows it.

    Raises:
        SpoolError: the server cannot be asked, or knows no such run.
    """
    offered: list[OfferedArtefact] = []
    cursor: str | None = ""
    while cursor is not None:
        path = f"/v1/runs/{run_id}/artefacts?limit=1000" + (f"&cursor={cursor}" if cursor else "")
        with line.ask("GET", path, _HEADERS) as answered:
            _check(line, answered)
            document = answered.read(_MAX_LIST_BYTES)
        try:
            page = orjson.loads(document)
            offered += _OFFERED.validate_python(page["items"])
            cursor = page["next"]
        except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError):
            raise SpoolError(f"{line.url}: does not answer as roofwatch api does; check --url") from None
    return offered


def download(line: HttpLine, run_id: UUID, artefact: Artefact, path: Path) -> None:
    """Write a file of a run to a path, whole or not at all.

    Raises:
        SpoolError: the server cannot be asked, or the connection broke.
        RecordError: what came is not what the record names, or it cannot be written.
    """
    with line.ask("GET", f"/v1/runs/{run_id}/artefacts/{artefact.sha256}", _HEADERS) as answered:
        _check(line, answered)
        ArtefactFolder(path.parent).receive(artefact, _chunks(line, answered), path)


def _chunks(line: HttpLine, answered: Answered) -> Iterator[bytes]:
    try:
        while chunk := answered.body.read(_CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise SpoolError(line.said(f"{line.url}: the connection broke: {error}; ask again")) from None


def _check(line: HttpLine, answered: Answered) -> None:
    if answered.status != _FOUND:
        body = answered.read(_MAX_REASON_BYTES).decode(errors="replace")
        raise SpoolError(line.said(f"{line.url}: HTTP {answered.status}: {body}"))
