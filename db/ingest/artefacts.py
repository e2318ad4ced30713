"""Files of runs, stored and read in chunks; equal contents are stored once."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import IO
from uuid import UUID

import zstandard
from sqlalchemy import Connection, Engine, delete, exists, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from roofwatch.db.engine.session import WAIT_FOR_DISK, first_line
from roofwatch.db.errors import IngestError, StoreError
from roofwatch.db.schema.runs import ArtefactChunkRow, ArtefactContentRow, RunArtefactRow
from roofwatch.db.schema.subjects import RunId
from roofwatch.model.record import Artefact
from roofwatch.model.stored_results import StoredArtefact

CHUNK_BYTES = 2**20
# zstd's default
_LEVEL = 3


def list_artefacts(session: Session, run_id: RunId) -> list[StoredArtefact]:
    """Files that the record of a run names, in its order; empty if there is no such run."""
    query = (
        select(RunArtefactRow)
        .where(RunArtefactRow.run_id == run_id)
        .order_by(RunArtefactRow.position)
    )
    artefacts: list[StoredArtefact] = []
    for row in session.scalars(query):
        fields = {name: getattr(row, name) for name in Artefact.model_fields}
        artefacts.append(StoredArtefact(**fields, is_stored=row.content_sha256 is not None))
    return artefacts


def read_artefact(engine: Engine, run_id: UUID, sha256: str) -> Iterator[bytes]:
    """Read the content of a run's file in chunks. No connection is held between chunks.

    Raises:
        StoreError: the run has no such content, or it is damaged.
    """
    with Session(engine) as session:
        sizes = {
            artefact.sha256: artefact.size_bytes
            for artefact in list_artefacts(session, run_id)
            if artefact.is_stored
        }
    if sha256 not in sizes:
        raise StoreError(f"run {run_id}: no content {sha256[:12]}… is stored for it")
    return _read_content(engine, sha256, sizes[sha256])


def store_artefact(engine: Engine, run_id: UUID, sha256: str, content: IO[bytes]) -> bool:
    """Store the content of a file that the record of a stored run names, in one transaction; False
    if the run had it.

    Raises:
        IngestError: the record names no file with this sha256, or the content differs.
        StoreError: the database failed.
    """
    try:
        with engine.begin() as connection:
            return _store(connection, run_id, sha256, content)
    except DBAPIError as error:
        subject = f"artefact {sha256[:12]}… of run {run_id}"
        raise StoreError(
            f"{subject}: the database failed: {first_line(error.orig)}; try again"
        ) from None


def link_contents(connection: Connection, run_id: UUID, contents: Sequence[str]) -> None:
    """Link a run with contents that are stored."""
    connection.execute(
        update(RunArtefactRow)
        .where(RunArtefactRow.run_id == run_id, RunArtefactRow.sha256.in_(contents))
        .values(content_sha256=RunArtefactRow.sha256)
    )


def drop_unlinked(connection: Connection) -> int:
    """Delete contents without a run, and return their number. Contents that are being linked are
    skipped.
    """
    unlinked = ~exists().where(RunArtefactRow.content_sha256 == ArtefactContentRow.sha256)
    free = select(ArtefactContentRow.sha256).where(unlinked).with_for_update(skip_locked=True)
    return connection.execute(
        delete(ArtefactContentRow).where(ArtefactContentRow.sha256.in_(free))
    ).rowcount


def _store(connection: Connection, run_id: UUID, sha256: str, content: IO[bytes]) -> bool:
    connection.execute(text(f"SELECT {WAIT_FOR_DISK}"))
    query = (
        # locked, so that the run cannot be removed while its file is being stored
        select(RunArtefactRow.size_bytes, RunArtefactRow.content_sha256)
        .where(RunArtefactRow.run_id == run_id, RunArtefactRow.sha256 == sha256)
        .with_for_update()
    )
    named = connection.execute(query).first()
    if named is None:
        raise IngestError(f"run {run_id}: its record names no file with sha256 {sha256[:12]}…")
    row = {"sha256": sha256, "size_bytes": named.size_bytes}
    # waits here for a concurrent writer of the same content
    inserted = connection.scalar(
        upsert(ArtefactContentRow)
        .values(row)
        .on_conflict_do_nothing()
        .returning(ArtefactContentRow.sha256)
    )
    digest, size_bytes = hashlib.sha256(), 0
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    position = 0
    while chunk := content.read(CHUNK_BYTES):
        digest.update(chunk)
        size_bytes += len(chunk)
        # a client may send more than it said: do not store what will be refused
        if size_bytes > named.size_bytes:
            break
        # another run may have stored the same content already
        if inserted is not None:
            packed = {"sha256": sha256, "position": position, "packed": compressor.compress(chunk)}
            connection.execute(insert(ArtefactChunkRow), packed)
        position += 1
    if size_bytes != named.size_bytes or digest.hexdigest() != sha256:
        raise IngestError(
            f"run {run_id}: the content is not the file with sha256 {sha256[:12]}… and "
            f"{named.size_bytes} bytes that "
            "its record names"
        )
    link_contents(connection, run_id, [sha256])
    return named.content_sha256 is None


def _read_content(engine: Engine, sha256: str, size_bytes: int) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor()
    digest, read_bytes = hashlib.sha256(), 0
    position = 0
    # a connection per chunk: a slow reader must not hold one
    while read_bytes < size_bytes:
        query = select(ArtefactChunkRow.packed).where(
            ArtefactChunkRow.sha256 == sha256, ArtefactChunkRow.position == position
        )
        with engine.connect() as connection:
            packed = connection.scalar(query)
        try:
            chunk = b""
            if packed is not None:
                chunk = decompressor.decompress(packed, max_output_size=CHUNK_BYTES)
        except zstandard.ZstdError:
            # reported below, as what is missing is
            chunk = b""
        if not chunk:
            break
        digest.update(chunk)
        read_bytes += len(chunk)
        position += 1
        yield chunk
    # the reader has the chunks by now, so it learns of damage by an error at the end
    if read_bytes != size_bytes or digest.hexdigest() != sha256:
        raise StoreError(
            f"artefact {sha256[:12]}…: the stored content is damaged; restore it from a backup"
        )
