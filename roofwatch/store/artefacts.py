"""Files that belong to runs: named in a record, stored with it, and found again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.files import reason_of
from roofwatch.collector.record.record import Artefact, RunRecord
from roofwatch.collector.redaction import Redaction
from roofwatch.store.downloading import OfferedArtefact, download, list_offered
from roofwatch.store.server import Server, server_to_read

if TYPE_CHECKING:  # a machine that only measures has no SQLAlchemy
    from sqlalchemy import Engine


class ArtefactSource(Protocol):
    """Where files of stored runs come from."""

    def list(self, run_id: UUID) -> Sequence[OfferedArtefact]:
        """What the record of a run names. Raises StoreError or SpoolError where there is no such run."""

    def fetch(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        """Write one to a path, whole or not at all."""


@contextmanager
def source_of_artefacts(url: str | None) -> Iterator[ArtefactSource]:
    """The server of a URL, or of the settings; else the store that these name (`server_to_read`)."""
    server = server_to_read(url)
    if server is not None:
        yield _Server(server)
        return
    from roofwatch.arguments import open_configured_store

    with open_configured_store() as engine:
        yield _Store(engine)


def name_artefacts(
    record: RunRecord, path: Path, files: Sequence[Path], *, kind: str | None = None, redaction: Redaction | None
) -> RunRecord:
    """Put copies of files beside a record's file, and the record with their names, in the place of those it had.

    Args:
        record: Of the run that they belong to; not written here.
        path: Of the record's file.
        files: Their copies are told apart by their names.
        kind: What they are; by the ending of each name where it is left out.
        redaction: What the copies may tell; None for files that were written without what must be left out.

    Raises:
        CollectorError: one cannot be read, kept, or redacted.
    """
    beside = ArtefactFolder.beside(path)
    new = [beside.add(file, kind=kind, redaction=redaction) for file in files]
    names = {artefact.name for artefact in new}
    if len(names) != len(new):
        raise RecordError(f"{path}: two of the files share one name; rename one")
    kept = [artefact for artefact in record.artefacts if artefact.name not in names]
    return record.model_copy(update={"artefacts": (*kept, *new)})


def store_artefacts(engine: Engine, run_id: UUID, artefacts: Sequence[Artefact], file: Path) -> list[str]:
    """Store what a record names, lies beside its file and is not stored yet; a sentence for each that is lacking.

    Raises:
        StoreError: the database failed, or a file is not what the record names.
    """
    from sqlalchemy.orm import Session

    from roofwatch.db.artefacts import list_artefacts, store_artefact

    if not artefacts:
        return []
    with Session(engine) as session:
        lacking = {one.sha256 for one in list_artefacts(session, run_id) if not one.is_stored}
    beside = ArtefactFolder.beside(file)
    missed = []
    for artefact in artefacts:
        if artefact.sha256 not in lacking:
            continue
        found = beside.find(artefact)
        if found is None:
            missed.append(f"{file}: {artefact.name} does not lie in {beside.folder}; the run is stored without it")
            continue
        with found.open("rb") as content:
            store_artefact(engine, run_id, artefact.sha256, content)
    return missed


def fetch_artefacts(source: ArtefactSource, run_id: UUID, names: Sequence[str], folder: Path) -> list[Path]:
    """Write files of a run into a folder; where they are.

    Args:
        source: Has them.
        run_id: Of a run that it has.
        names: Of those that are wanted; none for all of which the content is stored.
        folder: Made if it is not there.

    Raises:
        RecordError: one is not to be had, or a file of its name is there already.
        SpoolError: the server failed.
        StoreError: the store failed.
    """
    chosen = _choose(source.list(run_id), names, run_id)
    paths = [folder / artefact.name for artefact in chosen]
    for path in paths:
        if path.exists():
            raise RecordError(f"{path}: there is such a file already; name another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be made: {reason_of(error)}") from None
    for artefact, path in zip(chosen, paths, strict=True):
        source.fetch(run_id, artefact, path)
    return paths


def _choose(offered: Sequence[OfferedArtefact], names: Sequence[str], run_id: UUID) -> list[Artefact]:
    known = {one.name: one for one in offered}
    for name in names:
        if name not in known:
            raise RecordError(f"{name}: run {run_id} names no such file; it names {', '.join(known) or 'none'}")
        if not known[name].is_stored:
            raise RecordError(f"{name}: nobody has sent its content yet; push or ingest the record with its artefacts")
    chosen = [known[name] for name in names] if names else [one for one in offered if one.is_stored]
    # a server is not trusted with where files go: a name of another form is refused here
    return [Artefact(name=one.name, kind=one.kind, sha256=one.sha256, size_bytes=one.size_bytes) for one in chosen]


@dataclass(frozen=True)
class _Server:
    server: Server

    def list(self, run_id: UUID) -> Sequence[OfferedArtefact]:
        return list_offered(self.server, run_id)

    def fetch(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        download(self.server, run_id, artefact, path)


@dataclass(frozen=True)
class _Store:
    engine: Engine

    def list(self, run_id: UUID) -> Sequence[OfferedArtefact]:
        from sqlalchemy.orm import Session

        from roofwatch.db.artefacts import list_artefacts
        from roofwatch.db.errors import StoreError
        from roofwatch.db.regressions.analysis_requests import read_run_state

        with Session(self.engine) as session:
            if read_run_state(session, run_id) is None:
                raise StoreError(f"run {run_id}: not in this database; ingest its record file first, or name --url")
            return [OfferedArtefact(**vars(found)) for found in list_artefacts(session, run_id)]

    def fetch(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        from roofwatch.db.artefacts import read_artefact

        ArtefactFolder(path.parent).receive(artefact, read_artefact(self.engine, run_id, artefact.sha256), path)
