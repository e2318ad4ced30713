"""The journal of a run that is not finished: what came back so far, on the disk before the run goes on.

Each line is a checksum and a JSON document, written at once and synced. A process that is killed, or a machine that
loses power, leaves at most one line torn, which its checksum tells. The first line is the header, which binds the
journal to what is measured; each other one is an entry. A journal is for one process at a time, and gone once the
record is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson
from pydantic import BaseModel, ValidationError

from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.files import make_folder, reason_of, sync_folder
from roofwatch.collector.outbox.journal_entries import Entry, Header, MeasuredSuite, differences
from roofwatch.collector.record.machine import Telemetry

_CHECKSUM_LENGTH = 16
_RESULTS = frozenset({"ceilings", "accuracy", "compiled", "timed", "profile", "share"})
_WAY_ON = "--resume goes on from there, --discard removes it"


def journal_path(destination: Path) -> Path:
    """Where the journal of a run lies whose record goes to `destination`."""
    return destination.with_name(f"{destination.name}.journal")


class Journal:
    """An open journal. Made by `begin` or `resume`; threads may append at once.

    Args:
        path: The file.
        fd: Of the file, locked.
        header: Its first line.
        entries: Those that it holds.
    """

    def __init__(self, path: Path, fd: int, header: Header, entries: tuple[Entry, ...]) -> None:
        self.path = path
        self.header = header
        self._fd = fd
        self._entries = list(entries)
        self._size_bytes = os.fstat(fd).st_size
        self._is_sound = True
        self._lock = threading.Lock()

    @classmethod
    def begin(cls, path: Path, header: Header) -> Self:
        """Make a journal.

        Raises:
            JournalError: there is one, another process writes to it, or it cannot be written.
        """
        fd = _open_locked(path)
        with _closed_on_error(fd):
            if result_count := _result_count(_sound_lines(fd)):
                raise JournalError(f"{path}: an unfinished run with {result_count} results is there: {_WAY_ON}")
            return cls._made(path, fd, header)

    @classmethod
    def resume(cls, path: Path, header: Header) -> Self:
        """Open a journal to go on with; without one, make it. The ids and the start of the run are those it has.

        Raises:
            JournalError: it belongs to another run, which the message explains; another process writes to it; or it
                cannot be read.
        """
        fd = _open_locked(path)
        with _closed_on_error(fd):
            lines = list(_sound_lines(fd))
            if not lines:
                return cls._made(path, fd, header)
            before, entries = _parsed(path, lines)
            reasons = list(differences(before, header))
            if reasons and not _result_count(lines):
                return cls._made(path, fd, header)
            if reasons:
                raise JournalError(
                    f"{path}: cannot go on from it, {'; '.join(reasons)}: measure that again, or --discard it"
                )
            os.ftruncate(fd, _end_of_last_line(fd))
            return cls(path, fd, before, entries)

    @classmethod
    def _made(cls, path: Path, fd: int, header: Header) -> Self:
        os.ftruncate(fd, 0)  # of a process that ended before its first line was whole, or its first result was there
        journal = cls(path, fd, header, ())
        journal._append_line(header)
        sync_folder(path.parent)
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it. What holds no result is not worth going on from, and removed."""
        if self._fd >= 0 and not self.result_count:
            self.remove()
        self.close()

    @property
    def result_count(self) -> int:
        """So many are on the disk; 0 once it is closed."""
        with self._lock:
            # not what this process remembers: an interrupt may come when a result was written and not yet noted
            return 0 if self._fd < 0 else _result_count(_sound_lines(self._fd))

    def log(self, side: str = "run") -> SuiteLog:
        """The part of one side."""
        return SuiteLog(self, side)

    def entries(self, side: str) -> tuple[Entry, ...]:
        """What came back for one side so far."""
        with self._lock:
            return tuple(entry for entry in self._entries if entry.side == side)

    @property
    def seen(self) -> tuple[Telemetry, ...]:
        """What was seen of the device so far, which two sides share."""
        with self._lock:
            return tuple(entry.seen for entry in self._entries if entry.seen is not None)

    def append(self, entry: Entry) -> None:
        """Put an entry on the disk.

        Raises:
            JournalError: it cannot be written; what was written before is unharmed.
        """
        with self._lock:
            self._append_line(entry)
            self._entries.append(entry)

    def remove(self) -> None:
        """The record is there: the journal is not needed any more."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let another process go on; safe to call again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append_line(self, line: BaseModel) -> None:
        if not self._is_sound:
            raise JournalError(f"{self.path}: could not be written a moment ago")
        document = line.model_dump_json(exclude_defaults=True).encode()
        left = memoryview(_checksum(document) + b" " + document + b"\n")
        size_bytes = self._size_bytes + len(left)
        self._is_sound = False  # until it is whole: a line after half of one would be lost with it
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size_bytes)
            raise JournalError(f"{self.path}: cannot be written: {reason_of(error)}") from None
        self._size_bytes, self._is_sound = size_bytes, True


@dataclass(frozen=True)
class SuiteLog:
    """The part of a journal that belongs to one side."""

    journal: Journal
    side: str

    @property
    def suite(self) -> MeasuredSuite:
        return self.journal.header.suites[self.side]

    @property
    def past(self) -> tuple[Entry, ...]:
        return self.journal.entries(self.side)

    def append(self, spent_ns: Mapping[str, int], seen: Telemetry | None = None, **came_back: Any) -> None:
        """Put on the disk what came back: one field of `Entry`."""
        self.journal.append(Entry(side=self.side, spent_ns=dict(spent_ns), seen=seen, **came_back))


def discard(path: Path) -> None:
    """Remove a journal, if there is one.

    Raises:
        JournalError: another process writes to it.
    """
    if not path.exists():
        return
    fd = _open_locked(path)
    path.unlink(missing_ok=True)
    os.close(fd)


def read_header(path: Path) -> Header | None:
    """What a journal belongs to; None where there is none, or none of this version."""
    try:
        with path.open("rb") as file:
            line = next(_sound(file), None)
    except OSError:
        return None
    try:
        return None if line is None else Header.model_validate_json(line)
    except ValidationError:
        return None


def _parsed(path: Path, lines: list[bytes]) -> tuple[Header, tuple[Entry, ...]]:
    try:
        return Header.model_validate_json(lines[0]), tuple(Entry.model_validate_json(line) for line in lines[1:])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise JournalError(
            f"{path}: damaged, or written by another version of roofwatch ({where}: {first['msg']}): go on with that "
            "one, or --discard what was measured"
        ) from None


def _open_locked(path: Path) -> int:
    """Open a file, made if need be, and lock it while it is still the one of that name."""
    while True:
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None
        with _closed_on_error(fd):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalError(
                    f"{path}: another run is writing there; wait for it, or name another --output"
                ) from None
            if _is_still(path, fd):
                return fd
        os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    """Whether nobody removed the file between its opening and its locking."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _closed_on_error(fd: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


def _sound_lines(fd: int) -> Iterator[bytes]:
    """The documents of all lines that are as they were written."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        yield from _sound(file)


def _sound(file: IO[bytes]) -> Iterator[bytes]:
    for line in file:
        checksum, _, document = line.rstrip(b"\n").partition(b" ")
        if line.endswith(b"\n") and checksum == _checksum(document):
            yield document


def _result_count(lines: Iterable[bytes]) -> int:
    """Entries that took time to come by: a machine that was described, and nothing more, is nothing to go on from."""
    return sum(not _RESULTS.isdisjoint(orjson.loads(line)) for line in islice(lines, 1, None))


def _end_of_last_line(fd: int) -> int:
    """Where the last line ends that has an end."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return sum(len(line) for line in file if line.endswith(b"\n"))


def _checksum(document: bytes) -> bytes:
    return hashlib.sha256(document).hexdigest()[:_CHECKSUM_LENGTH].encode()
