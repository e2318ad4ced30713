"""Answers that a server gave before, with their tags: it says whether they still hold, and sends only what does not."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.outbox.files import atomic_file, read_document

_LEVEL = 1
_MOST_BYTES = 2**28
_MOST_UNPACKED_BYTES = 2**30


@dataclass(frozen=True)
class KnownAnswer:
    tag: str
    """As the server wrote it."""
    body: bytes


@dataclass(frozen=True)
class KnownAnswers:
    """A folder of answers, which only its owner may read. What cannot be kept or read is asked for again.

    Whoever may no longer see something does not get it from here: the server is asked each time, with the token of the
    time.
    """

    folder: Path
    most_bytes: int = _MOST_BYTES
    """On the disk, together; the oldest go first."""

    def find(self, url: str, asked: str) -> KnownAnswer | None:
        """What a server answered to a question; None where that is not known."""
        try:
            with self._file(url, asked).open("rb") as file:
                document = read_document(file, max_bytes=_MOST_UNPACKED_BYTES)
        except (OSError, ValueError):
            return None
        tag, _, body = document.partition(b"\n")
        return KnownAnswer(tag.decode(errors="replace"), body)

    def keep(self, url: str, asked: str, tag: str, body: bytes) -> None:
        """Remember an answer, in the place of what was answered to the same question before."""
        file = self._file(url, asked)
        with contextlib.suppress(OSError):  # on a full disk, or one that cannot be written, nothing is remembered
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(file, mode=0o600) as kept:
                kept.write(gzip.compress(tag.encode() + b"\n" + body, _LEVEL))
            self._make_room()

    def _file(self, url: str, asked: str) -> Path:
        return self.folder / hashlib.sha256(f"{url.rstrip('/')}\n{asked}".encode()).hexdigest()

    def _make_room(self) -> None:
        found = [(file, file.stat()) for file in self.folder.iterdir()]
        size_bytes = sum(status.st_size for _, status in found)
        for file, status in sorted(found, key=lambda each: each[1].st_mtime_ns):
            if size_bytes <= self.most_bytes:
                return
            file.unlink(missing_ok=True)
            size_bytes -= status.st_size
