"""The spool: records on disk that wait until a server acknowledges them and has their artefacts.

Any number of processes may add and deliver records. A record is locked while it is sent; the lock ends with the
process. A record may be sent twice: to the server it is the same one, with the same ID and content hash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from roofwatch.collector.errors import RecordError, SpoolError
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.files import atomic_write, compress, make_folder, reason_of, sync_folder
from roofwatch.collector.record.record import Artefact, RunRecord

_SUFFIX = ".json.gz"
_REASON_SUFFIX = ".reason.txt"
_ARTEFACTS_SUFFIX = ".artefacts"


@dataclass(frozen=True)
class Acknowledged:
    """The server has a record."""

    run_id: UUID
    content_hash: str
    missing_artefacts: tuple[str, ...] = ()
    """sha256 of each artefact that the server does not have."""


@dataclass(frozen=True)
class Refused:
    """The server will never accept this record or file."""

    reason: str


@dataclass(frozen=True)
class Unavailable:
    """The record or file was not accepted now and stays in the spool."""

    reason: str
    retry_after_s: float | None = None
    """Wait that the server asked for."""
    is_retried: bool = True
    """Try again in this delivery."""


Answer = Acknowledged | Refused | Unavailable

Send = Callable[[RunRecord], Answer]
"""Sends one record. Raises SpoolError if the server accepts no record from this sender."""

SendArtefact = Callable[[RunRecord, Artefact, Path], Refused | Unavailable | None]
"""Sends a file of an acknowledged record; returns None once the server has it."""


@dataclass(frozen=True)
class Backoff:
    """When to try again.

    Args:
        attempts: Rounds over all waiting records.
        first_s: Longest wait after the first round; doubles with each round.
        longest_s: Upper limit of a wait. If the server asks for more, the delivery ends.

    Source: "full jitter", Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
    """

    attempts: int = 6
    first_s: float = 1.0
    longest_s: float = 60.0

    def wait_s(self, attempt: int, retry_after_s: float, draw: Callable[[], float]) -> float | None:
        """Wait after an attempt, from 0; None to give up."""
        if attempt + 1 >= self.attempts or retry_after_s > self.longest_s:
            return None
        return retry_after_s + draw() * min(self.longest_s, self.first_s * 2.0**attempt)


@dataclass(frozen=True)
class Delivery:
    """Names of records by what happened to them, with the reason."""

    sent: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    """Still in the spool."""
    incomplete: tuple[tuple[str, str], ...] = ()
    """Sent, but an artefact is missing or was refused."""


class Spool:
    """A folder of records to send, created with its first record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._refused = folder / "refused"

    def submit(self, record: RunRecord, artefacts: ArtefactFolder | None = None) -> Path:
        """Add a record; it survives a power cut once this returns.

        Args:
            record: The record to send.
            artefacts: Folder with the record's artefacts.

        Raises:
            SpoolError: it cannot be written.
        """
        path = self.folder / f"{record.run_id}-{record.content_hash[:12]}{_SUFFIX}"
        try:
            make_folder(self.folder)
            if artefacts is not None:
                _artefacts_of(path).copy_from(artefacts, record.artefacts)
            atomic_write(path, compress(record.to_json()))
        except OSError as error:
            raise SpoolError(f"{path}: cannot be written: {reason_of(error)}") from None
        return path

    @property
    def waiting(self) -> list[Path]:
        """Record files to send.

        Raises:
            SpoolError: the folder cannot be read.
        """
        try:
            return sorted(path for path in self.folder.iterdir() if path.name.endswith(_SUFFIX))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SpoolError(f"{self.folder}: cannot be read: {reason_of(error)}") from None

    def deliver(
        self,
        send: Send,
        *,
        send_artefact: SendArtefact | None = None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> Delivery:
        """Send all waiting records. A record that fails does not hold up the others.

        Args:
            send: Sends a record.
            send_artefact: Sends an artefact; without it, a record whose artefacts the server lacks stays.
            backoff: When to try again.
            sleep: Waits for a number of seconds.
            draw: Returns a random number from 0 to 1.

        Raises:
            SpoolError: the server accepts no record from this sender, for example because the token is wrong.
        """
        backoff = backoff or Backoff()
        sent: list[str] = []
        refused: list[tuple[str, str]] = []
        incomplete: list[tuple[str, str]] = []
        left: dict[str, Unavailable] = {}
        for attempt in range(backoff.attempts):
            retry_after_s = 0.0
            for path in sorted(self.waiting, key=lambda path: path.name in left):
                name = path.name
                if name in left and not left[name].is_retried:
                    continue
                answer = self._deliver_one(path, send, send_artefact, incomplete)
                left.pop(name, None)
                if isinstance(answer, Acknowledged):
                    sent.append(name)
                elif isinstance(answer, Refused):
                    refused.append((name, answer.reason))
                elif answer is not None:
                    left[name] = answer
                    if answer.retry_after_s is not None:
                        retry_after_s = answer.retry_after_s
                        break
            wait_s = backoff.wait_s(attempt, retry_after_s, draw)
            if wait_s is None or not any(answer.is_retried for answer in left.values()):
                break
            sleep(wait_s)
        waiting = [path.name for path in self.waiting]
        not_tried = Unavailable("not tried, or another process is sending it")
        reasons = tuple((name, left.get(name, not_tried).reason) for name in waiting)
        return Delivery(tuple(sent), tuple(refused), reasons, tuple(incomplete))

    def _deliver_one(
        self, path: Path, send: Send, send_artefact: SendArtefact | None, incomplete: list[tuple[str, str]]
    ) -> Answer | None:
        """Send one record and take it out of the spool; None if another process handles it."""
        try:
            with _locked(path) as is_ours:
                if not is_ours:
                    return None
                record = RunRecord.read(path)
                answer = send(record)
                if isinstance(answer, Acknowledged):
                    if (answer.run_id, answer.content_hash) != (record.run_id, record.content_hash):
                        return Unavailable(f"the server acknowledged another record, {answer.run_id}")
                    failures: list[str] = []
                    postponed = _send_artefacts(record, answer, _artefacts_of(path), send_artefact, failures)
                    if postponed is not None:
                        return postponed
                    incomplete += [(path.name, reason) for reason in failures]
                    self._remove(path)
                elif isinstance(answer, Refused):
                    self._put_aside(path, record, answer.reason)
                return answer
        except RecordError as error:
            return Unavailable(str(error), is_retried=False)
        except OSError as error:
            return Unavailable(f"cannot be opened or removed: {reason_of(error)}", is_retried=False)

    def _remove(self, path: Path) -> None:
        _artefacts_of(path).remove()  # before the record: a record that is sent again needs none of them
        path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _put_aside(self, path: Path, record: RunRecord, reason: str) -> None:
        """Move a record and its artefacts to `refused`. A crash in between leaves everything in one of both places."""
        self._refused.mkdir(exist_ok=True)
        target, artefacts = self._refused / path.name, _artefacts_of(path)
        atomic_write(self._refused / f"{path.name}{_REASON_SUFFIX}", f"{reason}\n".encode())
        _artefacts_of(target).copy_from(artefacts, record.artefacts)
        path.replace(target)
        sync_folder(self._refused)
        sync_folder(self.folder)
        artefacts.remove()


def _send_artefacts(
    record: RunRecord,
    acknowledged: Acknowledged,
    files: ArtefactFolder,
    send: SendArtefact | None,
    failures: list[str],
) -> Unavailable | None:
    """Send missing artefacts; return why to try again later, and collect what will never succeed in `failures`."""
    for artefact in record.artefacts:
        if artefact.sha256 not in acknowledged.missing_artefacts:
            continue
        file = files.find(artefact)
        if file is None:
            failures.append(f"{artefact.name}: the file is missing")
            continue
        if send is None:
            return Unavailable(f"{artefact.name}: artefacts cannot be sent here")
        answer = send(record, artefact, file)
        if isinstance(answer, Unavailable):
            return answer
        if answer is not None:
            failures.append(f"{artefact.name}: {answer.reason}")
    return None


def _artefacts_of(path: Path) -> ArtefactFolder:
    return ArtefactFolder(path.with_name(f"{path.name}{_ARTEFACTS_SUFFIX}"))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a record file; False if another process holds or has removed it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        yield is_ours
