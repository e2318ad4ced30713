"""A folder of redacted files that belong to runs, each under its sha256: `artefacts` beside the records."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import orjson

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.files import make_folder, reason_of, sync_folder
from roofwatch.collector.profiling.profile_file import head_of, is_packed, read_bytes
from roofwatch.collector.profiling.redacted import Redacted, redact_profile
from roofwatch.collector.record.record import MAX_ARTEFACT_BYTES, Artefact, ArtefactKind, RunRecord
from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError, redact, without_author

_MAX_PROBED_BYTES = 512 * 2**20


def redact_file(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a copy of a record or of a profiler's file.

    Raises:
        ProfileError: the file cannot be read, is cut short, or is none that is known.
        RecordError: it is a record that this version cannot read, or the copy of one cannot be written.
        RedactionError: nothing can be taken out of its kind, or the copy cannot be written.
    """
    record = _record(source)
    if record is None:
        return redact_profile(source, target, redaction)
    told = without_author(redact(record, redaction), redaction)
    told.write(target)
    return Redacted("roofwatch-record", int(told != record), ())


def _record(path: Path) -> RunRecord | None:
    head = head_of(path).lstrip()
    if not head.startswith(b"{") and not is_packed(path):
        return None
    content = read_bytes(path)
    # a trace of some size is not parsed for this: a record says what it is in its last fields too
    if b'"run_id"' not in content or b'"schema_version"' not in content or len(content) > _MAX_PROBED_BYTES:
        return None
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or "run_id" not in document or "traceEvents" in document:
        return None
    return RunRecord.from_json(content, name=str(path))


FOLDER_NAME = "artefacts"

_CHUNK_BYTES = 2**20
_MAX_LINE_CHARACTERS = 2**20
_MAX_NAME = 200
_PROFILES = frozenset({ArtefactKind.TRACE, ArtefactKind.NCU_REPORT, ArtefactKind.NSYS_EXPORT})
_KIND_OF_ENDING = {
    ".json": ArtefactKind.TRACE,
    ".json.gz": ArtefactKind.TRACE,
    ".ncu-rep": ArtefactKind.NCU_REPORT,
    ".csv": ArtefactKind.NCU_REPORT,
    ".sqlite": ArtefactKind.NSYS_EXPORT,
    ".html": ArtefactKind.HTML,
    **dict.fromkeys((".sass", ".ptx", ".s", ".asm", ".amdgcn", ".ttgir", ".llir"), ArtefactKind.DISASSEMBLY),
}


def kind_of(path: Path) -> ArtefactKind:
    """What a file probably is, by the ending of its name."""
    name = path.name.lower()
    return next((kind for ending, kind in _KIND_OF_ENDING.items() if name.endswith(ending)), ArtefactKind.OTHER)


def artefact_name(name: str) -> str:
    """The name of a file as a record may hold it."""
    harmless = re.sub(r"[^A-Za-z0-9_.+@=,-]", "_", name)
    return (harmless if re.match(r"[A-Za-z0-9_]", harmless) else f"_{harmless}")[-_MAX_NAME:]


class ArtefactFolder:
    """Made when the first file is put into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def beside(cls, record: Path) -> ArtefactFolder:
        """That of the records in the folder of a record's file."""
        return cls(record.parent / FOLDER_NAME)

    def find(self, artefact: Artefact) -> Path | None:
        """The file, if it is there in the length that the record gives it; what is in it is for the store to see."""
        path = self.folder / artefact.sha256
        try:
            return path if path.stat().st_size == artefact.size_bytes else None
        except OSError:
            return None

    def add(self, source: Path, *, kind: str | None = None, redaction: Redaction | None = None) -> Artefact:
        """Put a copy of a file in.

        Args:
            source: The file.
            kind: What it is; by its name's ending where it is left out.
            redaction: What the copy and its name may tell; None for a file that was written without what must be left
                out.

        Raises:
            RecordError: it cannot be read or written, or is too large.
            ProfileError: it is not of its kind.
            RedactionError: nothing can be taken out of its kind.
        """
        kind = kind or kind_of(source)
        try:
            make_folder(self.folder)
            with tempfile.TemporaryDirectory(prefix=".adding-", dir=self.folder) as scratch:
                copy = Path(scratch) / source.name
                if redaction is None or redaction.kept >= EVERYTHING:
                    shutil.copyfile(source, copy)
                elif kind in _PROFILES:
                    redact_file(source, copy, redaction)
                else:
                    _redact_text(source, copy, redaction)
                sha256, size_bytes = _digest(copy)
                if size_bytes > MAX_ARTEFACT_BYTES:
                    raise RecordError(
                        f"{source}: {size_bytes} bytes; an artefact has at most {MAX_ARTEFACT_BYTES}: record a shorter "
                        "time, or pack it"
                    )
                self._take(copy, sha256)
        except OSError as error:
            raise RecordError(f"{source}: cannot be kept in {self.folder}: {reason_of(error)}") from None
        name = artefact_name(source.name if redaction is None else redaction.text(source.name))
        return Artefact(name=name, kind=kind, sha256=sha256, size_bytes=size_bytes)

    def copy_from(self, other: ArtefactFolder, artefacts: Iterable[Artefact]) -> None:
        """Put in what another folder has of these.

        Raises:
            OSError: one cannot be read or written; nothing half-written is left.
        """
        for artefact in artefacts:
            found = other.find(artefact)
            if found is not None and self.find(artefact) is None:
                make_folder(self.folder)
                with tempfile.TemporaryDirectory(prefix=".adding-", dir=self.folder) as scratch:
                    copy = Path(scratch) / artefact.sha256
                    shutil.copyfile(found, copy)
                    self._take(copy, artefact.sha256)

    def receive(self, artefact: Artefact, content: Iterable[bytes], path: Path) -> None:
        """Write what came from elsewhere to a path, once it is known to be what the record names.

        Raises:
            RecordError: it is something else, or cannot be written; what was at the path is unharmed.
        """
        digest, size_bytes = hashlib.sha256(), 0
        try:
            with tempfile.TemporaryDirectory(prefix=".receiving-", dir=self.folder) as scratch:
                copy = Path(scratch) / artefact.sha256
                with copy.open("wb") as file:
                    for chunk in content:
                        size_bytes += len(chunk)
                        if size_bytes > artefact.size_bytes:
                            break
                        digest.update(chunk)
                        file.write(chunk)
                if size_bytes != artefact.size_bytes or digest.hexdigest() != artefact.sha256:
                    raise RecordError(f"{artefact.name}: what came is not what its record names; ask again")
                copy.replace(path)
        except OSError as error:
            raise RecordError(f"{path}: cannot be written: {reason_of(error)}") from None

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, copy: Path, sha256: str) -> None:
        fd = os.open(copy, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        copy.replace(self.folder / sha256)
        sync_folder(self.folder)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _redact_text(source: Path, target: Path, redaction: Redaction) -> None:
    """Line by line, however long the text."""
    try:
        with source.open(encoding="utf-8", newline="") as text, target.open("w", encoding="utf-8", newline="") as told:
            for line in _lines(text):
                told.write(redaction.text(line))
    except UnicodeDecodeError:
        raise RedactionError(
            f"{source}: not text, so nothing can be taken out of it; if it may be shown as it is: --keep all"
        ) from None


def _lines(text: IO[str]) -> Iterable[str]:
    while line := text.readline(_MAX_LINE_CHARACTERS):
        yield line
