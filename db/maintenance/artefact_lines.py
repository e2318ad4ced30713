"""Files that belong to runs, on their way out of one store and into another, a piece at a time."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Self

import zstandard
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from roofwatch.db.artefacts import CHUNK_BYTES, store_artefact
from roofwatch.db.errors import IngestError
from roofwatch.db.maintenance.archive import ArtefactLine
from roofwatch.db.schema.artefacts import ArtefactChunkRow, RunArtefactRow


def artefact_lines(session: Session) -> Iterator[ArtefactLine]:
    """All that is stored, by run and sha256; one piece is held at a time."""
    named = select(RunArtefactRow.run_id, RunArtefactRow.content_sha256).where(
        RunArtefactRow.content_sha256.is_not(None)
    )
    unpacking = zstandard.ZstdDecompressor()
    by_run = named.distinct().order_by(RunArtefactRow.run_id, RunArtefactRow.content_sha256)
    for run_id, sha256 in session.execute(by_run).all():
        of_content = ArtefactChunkRow.sha256 == sha256
        positions = session.scalars(select(ArtefactChunkRow.position).where(of_content)).all()
        for position in sorted(positions) or [0]:
            packed = session.scalar(
                select(ArtefactChunkRow.packed).where(of_content, ArtefactChunkRow.position == position)
            )
            chunk = b"" if packed is None else unpacking.decompress(packed, max_output_size=CHUNK_BYTES)
            yield ArtefactLine(
                run_id=run_id,
                sha256=sha256,
                position=position,
                is_last=position >= max(positions, default=0),
                content=base64.b64encode(chunk),
            )


class ArtefactTaker:
    """Puts the pieces of each file together again, and stores it once its last one came.

    Args:
        engine: Of a store with a current schema.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def take(self, line: ArtefactLine) -> bool | None:
        """Take a piece.

        Returns:
            None where more is to come; else whether the run lacked the file. One that its run does not name here, since
            another run of that id is stored, is left out.

        Raises:
            StoreError: the database failed.
        """
        if line.position == 0 or self._file is None:
            self._opened.close()
            self._file = self._opened.enter_context(TemporaryFile())  # noqa: SIM115  closed by the stack
        self._file.write(line.content)
        if not line.is_last:
            return None
        self._file.seek(0)
        try:
            return store_artefact(self._engine, line.run_id, line.sha256, self._file)
        except IngestError:
            return False
        finally:
            self._opened.close()
            self._file = None
