"""Small files of runs, several in one statement; `roofwatch.db.artefacts` reads large ones in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

import zstandard
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from roofwatch.db.artefacts import CHUNK_BYTES
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.runs import ArtefactChunkRow, RunArtefactRow


def read_contents(session: Session, files: Sequence[tuple[UUID, str]]) -> list[bytes]:
    """The whole content of each file.

    Args:
        session: Of the store.
        files: Run id and sha256 of each. They are held whole: the caller knows from the record that they are small.

    Raises:
        StoreError: a run has no such content, or it is damaged.
    """
    chunks = (
        select(RunArtefactRow.run_id, RunArtefactRow.sha256, ArtefactChunkRow.position, ArtefactChunkRow.packed)
        .join(ArtefactChunkRow, ArtefactChunkRow.sha256 == RunArtefactRow.content_sha256)
        .where(tuple_(RunArtefactRow.run_id, RunArtefactRow.sha256).in_(files))
        .order_by(ArtefactChunkRow.position)
    )
    # two names of one run may have the same content
    packed: dict[tuple[UUID, str], dict[int, bytes]] = {}
    for run_id, sha256, position, chunk in session.execute(chunks):
        packed.setdefault((run_id, sha256), {})[position] = chunk
    return [_whole(run_id, sha256, [*packed.get((run_id, sha256), {}).values()]) for run_id, sha256 in files]


def _whole(run_id: UUID, sha256: str, packed: Sequence[bytes]) -> bytes:
    if not packed:
        raise StoreError(f"run {run_id}: no content {sha256[:12]}… is stored for it")
    unpacking = zstandard.ZstdDecompressor()
    try:
        content = b"".join(unpacking.decompress(chunk, max_output_size=CHUNK_BYTES) for chunk in packed)
    except zstandard.ZstdError:
        content = b""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreError(f"artefact {sha256[:12]}…: what is stored is not whole any more; restore it from a backup")
    return content
