"""Files of runs as a server has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from pydantic import TypeAdapter

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.record.record import Artefact
from roofwatch.store.server import Server

_FILES_AT_ONCE = 1_000


@dataclass(frozen=True)
class OfferedArtefact:
    """A file as the server lists it."""

    name: str
    kind: str
    sha256: str
    size_bytes: int
    is_stored: bool


_OFFERED = TypeAdapter(list[OfferedArtefact])


def list_offered(server: Server, run_id: UUID) -> list[OfferedArtefact]:
    """What the record of a run names, as a server knows it.

    Raises:
        SpoolError: the server cannot be asked, or knows no such run.
    """
    return list(server.pages(f"/v1/runs/{run_id}/artefacts", {}, _OFFERED, size=_FILES_AT_ONCE))


def download(server: Server, run_id: UUID, artefact: Artefact, path: Path) -> None:
    """Write a file of a run to a path, whole or not at all.

    Raises:
        SpoolError: the server cannot be asked, or the connection broke.
        RecordError: what came is not what the record names, or it cannot be written.
    """
    with server.chunks(f"/v1/runs/{run_id}/artefacts/{artefact.sha256}") as content:
        ArtefactFolder(path.parent).receive(artefact, content, path)
