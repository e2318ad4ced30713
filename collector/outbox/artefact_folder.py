"""A folder of redacted files that belong to runs: `artefacts` beside the records, each file under
its sha256.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from roofwatch.collector.profiling.profile_file import head_of, read_bytes, redact_profile
from roofwatch.collector.profiling.redact import Redacted
from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError, redact
from roofwatch.collector.redaction_patterns import Kind
from roofwatch.model.errors import RecordError
from roofwatch.model.files import GZIP_MAGIC, make_folder, reason_of, sync_folder
from roofwatch.model.record import MAX_ARTEFACT_BYTES, Artefact, ArtefactKind, RunRecord

FOLDER_NAME = "artefacts"

_CHUNK_BYTES = 2**20
_MAX_NAME_LENGTH = 200
_PROFILES = frozenset({ArtefactKind.TRACE, ArtefactKind.NCU_REPORT, ArtefactKind.NSYS_EXPORT})
_KIND_OF_SUFFIX = {
    ".json": ArtefactKind.TRACE,
    ".json.gz": ArtefactKind.TRACE,
    ".ncu-rep": ArtefactKind.NCU_REPORT,
    ".csv": ArtefactKind.NCU_REPORT,
    ".sqlite": ArtefactKind.NSYS_EXPORT,
    ".html": ArtefactKind.HTML,
    **dict.fromkeys(
        (".sass", ".ptx", ".s", ".asm", ".amdgcn", ".ttgir", ".llir"), ArtefactKind.DISASSEMBLY
    ),
}


def kind_of(path: Path) -> ArtefactKind:
    """Guess the kind of a file from its name."""
    name = path.name.lower()
    for suffix, kind in _KIND_OF_SUFFIX.items():
        if name.endswith(suffix):
            return kind
    return ArtefactKind.OTHER


def artefact_name(name: str) -> str:
    """Turn a file name into one that is valid in a record."""
    safe = re.sub(r"[^A-Za-z0-9_.+@=,-]", "_", name)
    # a name must not look like an option or a hidden file
    if not re.match(r"[A-Za-z0-9_]", safe):
        safe = f"_{safe}"
    return safe[-_MAX_NAME_LENGTH:]


def redact_file(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a redacted copy of a record or a profiler's file.

    Raises:
        ProfileError: the file cannot be read, is cut short, or has an unknown format.
        RecordError: the record cannot be read, or its copy not written.
        RedactionError: the format cannot be redacted, or the copy cannot be written.
    """
    record = _read_record(source)
    if record is None:
        return redact_profile(source, target, redaction)
    redacted = redact(record, redaction)
    if not redaction.keeps(Kind.USER):
        commit = record.commit.model_copy(update={"author": ""})
        redacted = redacted.model_copy(update={"commit": commit})
    redacted.write(target)
    return Redacted(
        format="roofwatch-record",
        texts_changed=int(redacted != record),
        removed=(),
    )


def _read_record(path: Path) -> RunRecord | None:
    """Read a file if it is a record."""
    if not head_of(path).lstrip().startswith((b"{", GZIP_MAGIC)):
        return None
    content = read_bytes(path)
    # large traces are not parsed to find out
    has_record_fields = b'"run_id"' in content and b'"schema_version"' in content
    if not has_record_fields or b'"traceEvents"' in content:
        return None
    return RunRecord.from_json(content, name=str(path))


class ArtefactFolder:
    """The folder is created with its first file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def beside(cls, record: Path) -> "ArtefactFolder":
        """The artefact folder of a record file."""
        return cls(record.parent / FOLDER_NAME)

    def find(self, artefact: Artefact) -> Path | None:
        """Return the file if it exists and has the right length; its hash is not checked."""
        path = self.folder / artefact.sha256
        try:
            size_bytes = path.stat().st_size
        except OSError:
            return None
        return path if size_bytes == artefact.size_bytes else None

    def add(self, source: Path, redaction: Redaction | None = None) -> Artefact:
        """Add a copy of a file, of a kind guessed from its name, with content and name redacted if
        asked.

        Raises:
            RecordError: it cannot be read or written, or is too large.
            ProfileError: it does not have the format of its kind.
            RedactionError: files of its kind cannot be redacted.
        """
        kind = kind_of(source)
        try:
            with self._temporary_file(source.name) as copy:
                if redaction is None or redaction.kept_kinds >= EVERYTHING:
                    shutil.copyfile(source, copy)
                elif kind in _PROFILES:
                    redact_file(source, copy, redaction)
                else:
                    _redact_text(source, copy, redaction)
                with copy.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                size_bytes = copy.stat().st_size
                if size_bytes > MAX_ARTEFACT_BYTES:
                    raise RecordError(
                        f"{source}: {size_bytes} bytes; an artefact has at most "
                        f"{MAX_ARTEFACT_BYTES}: record a shorter "
                        "time, or compress it"
                    )
                self._move_in(copy, sha256)
        except OSError as error:
            raise RecordError(
                f"{source}: cannot be stored in {self.folder}: {reason_of(error)}"
            ) from None
        name = source.name
        if redaction is not None:
            name = redaction.text(name)
        return Artefact(
            name=artefact_name(name),
            kind=kind,
            sha256=sha256,
            size_bytes=size_bytes,
        )

    def copy_from(self, source: "ArtefactFolder", artefacts: Iterable[Artefact]) -> None:
        """Copy the given artefacts that another folder has.

        Raises:
            OSError: one cannot be read or written.
        """
        for artefact in artefacts:
            file = source.find(artefact)
            if file is not None and self.find(artefact) is None:
                with self._temporary_file(artefact.sha256) as copy:
                    shutil.copyfile(file, copy)
                    self._move_in(copy, artefact.sha256)

    def receive(self, artefact: Artefact, content: Iterable[bytes], path: Path) -> None:
        """Write downloaded content to a path if it has the artefact's size and hash.

        Raises:
            RecordError: it differs, or cannot be written; the file at the path is unchanged.
        """
        digest = hashlib.sha256()
        size_bytes = 0
        try:
            with self._temporary_file(artefact.sha256) as copy:
                with copy.open("wb") as file:
                    for chunk in content:
                        size_bytes += len(chunk)
                        if size_bytes > artefact.size_bytes:
                            break
                        digest.update(chunk)
                        file.write(chunk)
                if size_bytes != artefact.size_bytes or digest.hexdigest() != artefact.sha256:
                    raise RecordError(
                        f"{artefact.name}: the download differs from its record; try again"
                    )
                copy.replace(path)
        except OSError as error:
            raise RecordError(f"{path}: cannot be written: {reason_of(error)}") from None

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _temporary_file(self, name: str) -> Iterator[Path]:
        make_folder(self.folder)
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=self.folder) as scratch:
            yield Path(scratch) / name

    def _move_in(self, copy: Path, sha256: str) -> None:
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        copy.replace(self.folder / sha256)
        sync_folder(self.folder)


def _redact_text(source: Path, target: Path, redaction: Redaction) -> None:
    """Copy a text file line by line, redacted."""
    try:
        with (
            source.open(encoding="utf-8", newline="") as text,
            target.open("w", encoding="utf-8", newline="") as copy,
        ):
            while line := text.readline(_CHUNK_BYTES):
                copy.write(redaction.text(line))
    except UnicodeDecodeError:
        raise RedactionError(
            f"{source}: not a text file, so it cannot be redacted; --keep all keeps it unchanged"
        ) from None
