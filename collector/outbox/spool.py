"""The spool: records that no server has accepted yet, each a file, kept until a server acknowledges it by name and
has the artefacts that lie beside it.

Any number of processes may put records in and deliver them at once. A record that is being sent is locked, and the lock
ends with the process. A process that is killed at any moment leaves each record where it was, or where it was going;
what was sent twice is one record to the server, as its id and content are the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
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
    lacking: tuple[str, ...] = ()
    """The sha256 of each artefact that it does not have yet."""


@dataclass(frozen=True)
class Refused:
    """The server will never take this."""

    reason: str


@dataclass(frozen=True)
class Unavailable:
    """It may take it later."""

    reason: str
    retry_after_s: float | None = None
    """What the server asked to wait."""


@dataclass(frozen=True)
class Deferred:
    """It stays, and this delivery does not try it again: the server takes it from others, not from this sender. Or it
    is no record as it was read here: nobody has judged it, and another process, or another roofwatch, may read it. Or
    what became of it cannot be noted: the disk is full, say.
    """

    reason: str
    is_of_project: bool = False
    """The server would say the same of each record of its project."""


Answer = Acknowledged | Refused | Unavailable | Deferred

Send = Callable[[RunRecord], Answer]
"""Sends one record. Raises SpoolError where no record could be sent in this way, whatever it holds."""

SendArtefact = Callable[[RunRecord, Artefact, Path], Refused | Unavailable | Deferred | None]
"""Sends a file of an acknowledged record; None where the server has it."""


@dataclass(frozen=True)
class Backoff:
    """When to try again.

    Args:
        attempts: Rounds over all that is left.
        first_s: Longest wait after the first; it doubles with each.
        longest_s: No wait is longer. A server that asks for more is left alone until the next delivery.

    Source: "full jitter", any time up to the bound, spreads many clients best (Brooker, Exponential Backoff And Jitter,
    AWS Architecture Blog, 2015).
    """

    attempts: int = 6
    first_s: float = 1.0
    longest_s: float = 60.0

    def wait_s(self, attempt: int, asked_s: float | None, draw: Callable[[], float]) -> float | None:
        """How long to wait after an attempt, from 0; None to give up."""
        if attempt + 1 >= self.attempts or (asked_s or 0.0) > self.longest_s:
            return None
        # clients that were all told the same time come back spread over some more
        return (asked_s or 0.0) + draw() * min(self.longest_s, self.first_s * 2.0**attempt)


@dataclass(frozen=True)
class Delivery:
    """What became of the records."""

    sent: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """With the reason."""
    left: tuple[tuple[str, str], ...] = ()
    """Still in the spool, with the reason."""
    incomplete: tuple[tuple[str, str], ...] = ()
    """Sent, and an artefact of it never will be, with the reason."""


class Spool:
    """A folder of records to be sent.

    Args:
        folder: Made when the first record is put into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._refused = folder / "refused"

    def submit(self, record: RunRecord, artefacts: ArtefactFolder | None = None) -> Path:
        """Put a record in; it is there even after a power cut once this returns, and its artefacts before it.

        Args:
            record: To be sent.
            artefacts: Where those that it names lie.

        Raises:
            SpoolError: it cannot be written; nothing half-written is sent.
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
        """What is to be sent.

        Raises:
            SpoolError: the folder cannot be read: that is no reason to think that nothing waits.
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
        """Send what waits. A record that fails does not hold the others, and a project that may not be sent no other.

        Args:
            send: Sends one.
            send_artefact: Sends one; without it a record of which the server lacks an artefact stays.
            backoff: When to try again.
            sleep: Waits for so many seconds.
            draw: A number from 0 to 1.

        Raises:
            SpoolError: nothing can be sent in this way, for example because the server does not know the token.
        """
        backoff = backoff or Backoff()
        sent: list[str] = []
        refused: list[tuple[str, str]] = []
        incomplete: list[tuple[str, str]] = []
        stays: dict[str, str] = {}
        times_left: Counter[str] = Counter()
        send = _Passing(send)
        for attempt in range(backoff.attempts):
            left: dict[str, Unavailable] = {}
            # where a server asks each time to be left alone for one record, the others have their turn before it
            for path in sorted(self.waiting, key=lambda path: times_left[path.name]):
                if path.name in stays:
                    continue
                answer = self._deliver_one(path, send, send_artefact, incomplete)
                if isinstance(answer, Acknowledged):
                    sent.append(path.name)
                elif isinstance(answer, Refused):
                    refused.append((path.name, answer.reason))
                elif isinstance(answer, Deferred):
                    stays[path.name] = answer.reason
                elif answer is not None:
                    left[path.name] = answer
                    times_left[path.name] += 1
                    if answer.retry_after_s is not None:
                        break  # it asked to be left alone
            asked_s = max((answer.retry_after_s or 0.0 for answer in left.values()), default=0.0)
            wait_s = backoff.wait_s(attempt, asked_s, draw)
            if not left or wait_s is None:
                break
            sleep(wait_s)
        reasons = stays | {name: answer.reason for name, answer in left.items()}
        waiting = tuple((path.name, reasons.get(path.name, "not tried, or at hand elsewhere")) for path in self.waiting)
        return Delivery(tuple(sent), tuple(refused), waiting, tuple(incomplete))

    def _deliver_one(
        self, path: Path, send: Send, send_artefact: SendArtefact | None, incomplete: list[tuple[str, str]]
    ) -> Answer | None:
        """None where another process is at it, or was."""
        with contextlib.ExitStack() as held:
            try:
                if not held.enter_context(_claimed(path)):
                    return None
            except OSError as error:  # of another user, say
                return Deferred(f"cannot be opened: {reason_of(error)}")
            try:
                record = RunRecord.read(path)
            except RecordError as error:
                return Deferred(str(error))
            answer = send(record)
            if isinstance(answer, Acknowledged):
                if (answer.run_id, answer.content_hash) != (record.run_id, record.content_hash):
                    return Unavailable(f"the server acknowledged another record, {answer.run_id}")
                not_now, never = _send_artefacts(record, answer.lacking, _artefacts_of(path), send_artefact)
                if not_now is not None:
                    return not_now  # the record goes again with it: to the server it is the same one
                incomplete += [(path.name, reason) for reason in never]
            try:
                if isinstance(answer, Acknowledged):
                    self._remove(path)
                elif isinstance(answer, Refused):
                    self._put_aside(path, record, answer.reason)
            except OSError as error:
                became = "sent" if isinstance(answer, Acknowledged) else f"refused ({answer.reason})"
                return Deferred(f"{became}, and cannot be taken out of the spool: {reason_of(error)}")
            return answer

    def _remove(self, path: Path) -> None:
        # its files first: of a record that goes again the server says that it has them
        _artefacts_of(path).remove()
        path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _put_aside(self, path: Path, record: RunRecord, reason: str) -> None:
        """With its files and the reason. The record goes when all else is there, and its files stay until it has gone:
        whoever is stopped on the way leaves all of it in one of the two places.
        """
        self._refused.mkdir(exist_ok=True)
        aside, files = self._refused / path.name, _artefacts_of(path)
        atomic_write(self._refused / f"{path.name}{_REASON_SUFFIX}", f"{reason}\n".encode())
        _artefacts_of(aside).copy_from(files, record.artefacts)
        path.replace(aside)
        sync_folder(self._refused)
        sync_folder(self.folder)
        files.remove()


class _Passing:
    """Sends the records of one delivery, but for those of which the server would say what it said of another."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._by_project: dict[str, Deferred] = {}

    def __call__(self, record: RunRecord) -> Answer:
        known = self._by_project.get(record.project)
        if known is not None:
            return known
        answer = self._send(record)
        if isinstance(answer, Deferred) and answer.is_of_project:
            self._by_project[record.project] = answer
        return answer


def _send_artefacts(
    record: RunRecord, lacking: Collection[str], files: ArtefactFolder, send: SendArtefact | None
) -> tuple[Unavailable | Deferred | None, list[str]]:
    """Why the server does not take one now, and which it never will, with the reason."""
    never: list[str] = []
    for artefact in record.artefacts:
        if artefact.sha256 not in lacking:
            continue
        file = files.find(artefact)
        if file is None:
            never.append(f"{artefact.name}: did not lie beside the record")
        elif send is None:
            return Unavailable(f"{artefact.name}: there is no way here to send artefacts"), never
        else:
            said = send(record, artefact, file)
            if isinstance(said, Unavailable | Deferred):
                return said, never
            if said is not None:
                never.append(f"{artefact.name}: {said.reason}")
    return None, never


def _artefacts_of(path: Path) -> ArtefactFolder:
    """Of one record of the spool."""
    return ArtefactFolder(path.with_name(f"{path.name}{_ARTEFACTS_SUFFIX}"))


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Hold a file against other processes; False where one of them holds it, or has seen to it.

    Raises:
        OSError: it cannot be opened or locked.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.path.samestat(path.stat(), os.fstat(fd))
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        yield is_ours
    finally:
        os.close(fd)
