"""The tables of files that belong to runs. Equal files are kept once, whichever runs they belong to."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, func
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import RunRow
from roofwatch.db.schema.table import Base

__all__ = ["ArtefactChunkRow", "ArtefactContentRow", "Base", "RunArtefactRow"]


class ArtefactContentRow(Base):
    """A file by what is in it."""

    __tablename__ = "artefact_content"
    __table_args__ = (
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
        CheckConstraint("size_bytes >= 0", name="size_bytes_not_negative"),
    )

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ArtefactChunkRow(Base):
    """A piece of a file as a zstd frame of its own, so that one piece is all that is ever held of it."""

    __tablename__ = "artefact_chunk"
    __table_args__ = (CheckConstraint("position >= 0", name="position_not_negative"),)

    sha256: Mapped[str] = mapped_column(ForeignKey(ArtefactContentRow.sha256, ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    packed: Mapped[bytes] = mapped_column(LargeBinary)


class RunArtefactRow(Base):
    """What a run's record names. `content_sha256` is NULL until the content came in for this very run: that another
    run has it does not show it to who merely knows its sha256.
    """

    __tablename__ = "run_artefact"
    __table_args__ = (
        Index(None, "content_sha256"),
        CheckConstraint("content_sha256 = sha256", name="content_is_what_is_named"),
        CheckConstraint("size_bytes >= 0", name="size_bytes_not_negative"),
    )

    run_id: Mapped[UUID] = mapped_column(ForeignKey(RunRow.run_id, ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    kind: Mapped[str]
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    content_sha256: Mapped[str | None] = mapped_column(ForeignKey(ArtefactContentRow.sha256))
