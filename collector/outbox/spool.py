"""The spool: records on disk that wait until a server acknowledges them and has their artefacts.

Any number of processes may add and deliver records. A record is locked while it is sent; the lock
ends with the process. A record may be sent twice: to the server it is the same one, with the same
ID and content hash.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import UUID

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.model.errors import RecordError, SpoolError
from roofwatch.model.files import (
    atomic_write,
    compress,
    is_locked,
    make_folder,
    reason_of,
    sync_folder,
)
from roofwatch.model.record import Artefact, RunRecord

_SUFFIX = ".json.gz"
_REASON_SUFFIX = ".reason.txt"
_ARTEFACTS_SUFFIX = ".artefacts"
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


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


class Sender(Protocol):
    """Sends to one server. Raises SpoolError if the server accepts nothing from this sender."""

    def send(self, record: RunRecord) -> Answer: ...

    def send_artefact(
        self,
        record: RunRecord,
        artefact: Artefact,
        file: Path,
    ) -> Refused | Unavailable | None:
        """Send a file of an acknowledged record; None once the server has it."""


@dataclass
class SpoolDelivery:
    """Names of records by what happened to them, with the reason."""

    sent: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    """Still in the spool."""
    incomplete: list[tuple[str, str]] = field(default_factory=list)
    """Sent, but an artefact is missing or was refused."""


class Spool:
    """A folder of records to send, created with its first record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._refused = folder / "refused"

    def submit(self, record: RunRecord, artefacts: ArtefactFolder | None = None) -> Path:
        """Add a record with its artefacts from a folder; it survives a power cut once this returns.

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
        sender: Sender,
        *,
        attempts: int = 6,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> SpoolDelivery:
        """Send all waiting records. A record that fails does not hold up the others.

        Between attempts it waits for a random time, whose upper limit doubles. If the server asks
        for a wait of more than a minute, the delivery ends.

        Raises:
            SpoolError: the server accepts no record from this sender, for example because the token
            is wrong.

        Source: "full jitter", Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
        """
        delivery = SpoolDelivery()
        failures: dict[str, Unavailable] = {}
        for attempt in range(attempts):
            retry_after_s = self._attempt(sender, delivery, failures)
            if attempt == attempts - 1 or retry_after_s > _LONGEST_WAIT_S:
                break
            if not any(failure.is_retried for failure in failures.values()):
                break
            longest_wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**attempt)
            sleep(retry_after_s + draw() * longest_wait_s)
        not_tried = Unavailable("not tried, or another process is sending it")
        for path in self.waiting:
            failure = failures.get(path.name, not_tried)
            delivery.left.append((path.name, failure.reason))
        return delivery

    def _attempt(
        self,
        sender: Sender,
        delivery: SpoolDelivery,
        failures: dict[str, Unavailable],
    ) -> float:
        """Send each waiting record once, those that failed before last; return the wait in seconds
        that the server asked for.
        """
        for path in sorted(self.waiting, key=lambda path: path.name in failures):
            if path.name in failures and not failures[path.name].is_retried:
                continue
            failures.pop(path.name, None)
            failure = self._deliver_record(path, sender, delivery)
            if failure is None:
                continue
            failures[path.name] = failure
            if failure.retry_after_s is not None:
                return failure.retry_after_s
        return 0.0

    def _deliver_record(
        self,
        path: Path,
        sender: Sender,
        delivery: SpoolDelivery,
    ) -> Unavailable | None:
        """Send one record and take it out of the spool, unless another process handles it; return
        why it stays.
        """
        try:
            with _locked(path) as is_ours:
                if not is_ours:
                    return None
                record = RunRecord.read(path)
                answer = sender.send(record)
                if isinstance(answer, Unavailable):
                    return answer
                if isinstance(answer, Refused):
                    self._put_aside(path, record, answer.reason)
                    delivery.refused.append((path.name, answer.reason))
                    return None
                # what the server does not have must not leave the spool
                if (answer.run_id, answer.content_hash) != (record.run_id, record.content_hash):
                    return Unavailable(f"the server acknowledged another record, {answer.run_id}")
                failures = _send_artefacts(
                    record=record,
                    acknowledged=answer,
                    files=_artefacts_of(path),
                    sender=sender,
                )
                if isinstance(failures, Unavailable):
                    return failures
                self._remove(path)
                delivery.sent.append(path.name)
                delivery.incomplete += [(path.name, reason) for reason in failures]
                return None
        except RecordError as error:
            return Unavailable(str(error), is_retried=False)
        except OSError as error:
            return Unavailable(f"cannot be opened or removed: {reason_of(error)}", is_retried=False)

    def _remove(self, path: Path) -> None:
        # before the record: a record that is sent again needs none of them
        _artefacts_of(path).remove()
        path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _put_aside(self, path: Path, record: RunRecord, reason: str) -> None:
        """Move a record and its artefacts to `refused`. A crash in between leaves everything in one
        of both places.
        """
        self._refused.mkdir(exist_ok=True)
        target = self._refused / path.name
        artefacts = _artefacts_of(path)
        reason_file = self._refused / f"{path.name}{_REASON_SUFFIX}"
        atomic_write(reason_file, f"{reason}\n".encode())
        _artefacts_of(target).copy_from(artefacts, record.artefacts)
        path.replace(target)
        sync_folder(self._refused)
        sync_folder(self.folder)
        artefacts.remove()


def _send_artefacts(
    record: RunRecord,
    acknowledged: Acknowledged,
    files: ArtefactFolder,
    sender: Sender,
) -> list[str] | Unavailable:
    """Send missing artefacts; return what will never succeed, or why to try again later."""
    failures = []
    for artefact in record.artefacts:
        if artefact.sha256 not in acknowledged.missing_artefacts:
            continue
        file = files.find(artefact)
        if file is None:
            failures.append(f"{artefact.name}: the file is missing")
            continue
        answer = sender.send_artefact(record, artefact, file)
        if isinstance(answer, Unavailable):
            return answer
        if answer is not None:
            failures.append(f"{artefact.name}: {answer.reason}")
    return failures


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
        yield is_locked(file, path)
