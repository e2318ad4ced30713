"""Records on their way from one machine that measures, each push of them written down."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from sqlalchemy import Engine

from bench.ledger import stored_as
from bench.service import Service
from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.spool import Spool
from roofwatch.collector.record.record import RunRecord


class Push:
    """One `roofwatch push`, whose words go into a file, and how it ended after them.

    Args:
        client: Runs.
        words: What it writes to.
    """

    def __init__(self, client: Popen[bytes], words: Path) -> None:
        self._client = client
        self._words = words
        self._began_s = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._client.poll() is None

    @property
    def is_done(self) -> bool:
        """Whether it ended by itself and says that all is sent."""
        return self._client.poll() == 0

    def wait(self, timeout_s: float) -> None:
        """Let it come to its end; one that takes longer is ended."""
        try:
            self._client.wait(timeout_s)
        except TimeoutExpired:
            self.end()
        else:
            self._note("ended")

    def end(self) -> None:
        """End one that waits for its next try: the next push goes on where it was."""
        if self.is_running:
            self._client.terminate()
            self._client.wait()
            self._note("ended by SIGTERM")
        else:
            self._note("ended")

    def kill(self) -> None:
        self._client.kill()
        self._client.wait()
        self._note("killed")

    def _note(self, how: str) -> None:
        with self._words.open("a") as file:
            file.write(f"{how} after {time.monotonic() - self._began_s:.1f} s, status {self._client.returncode}\n")


@dataclass(frozen=True)
class Shipment:
    """Two records of one machine."""

    folder: Path
    waiting: RunRecord
    """In the spool from the beginning."""
    filed: RunRecord
    """A file, which the client puts into the spool itself."""
    words: list[Path] = field(default_factory=list)
    """What each push of it said."""

    @property
    def records(self) -> tuple[RunRecord, RunRecord]:
        return self.waiting, self.filed

    @property
    def spool(self) -> Spool:
        return Spool(self.folder / "spool")

    def is_in_spool(self, record: RunRecord) -> bool:
        return any(self.spool.folder.glob(f"{record.run_id}-*.json.gz"))

    def push(self, service: Service, *, most_file_bytes: int | None = None) -> Push:
        """Begin to send what is in the spool and in the files."""
        self.words.append(self.folder / f"push-{len(self.words):04}.txt")
        arguments = ("push", self.folder / "files", "--spool", self.spool.folder, "--url", service.url)
        client = service.client(*arguments, folder=self.folder, output=self.words[-1], most_file_bytes=most_file_bytes)
        return Push(client, self.words[-1])

    def whereabouts(self, engine: Engine, record: RunRecord) -> str:
        """Where a record is, in the spool, aside and in the store, and what its pushes said, for a person."""
        kind = "in the spool from the beginning" if record is self.waiting else "a file"
        aside = self.spool.folder / "refused"
        return "\n".join(
            (
                f"run {record.run_id}, {kind}, of {self.folder}:",
                f"  stored: {stored_as(engine, record)}",
                f"  in the spool: {_found(self.spool.folder, record)}",
                f"  put aside: {_found(aside, record)}",
                *(f"    {one.read_text().strip()}" for one in aside.glob(f"{record.run_id}-*.reason.txt")),
                f"  pushes: {len(self.words)}",
                *(f"    {path.name}: {_in_one_line(path)}" for path in self.words),
            )
        )


def _found(folder: Path, record: RunRecord) -> str:
    """The record's files there, and whether they can be read."""
    found = []
    for path in sorted(folder.glob(f"{record.run_id}-*.json.gz")):
        try:
            is_same = RunRecord.read(path).content_hash == record.content_hash
        except RecordError as error:
            found.append(str(error))
        else:
            found.append(f"{path.name}, {'whole' if is_same else 'with other content'}")
    return "; ".join(found) or "no"


def _in_one_line(path: Path) -> str:
    return " | ".join(path.read_text(errors="replace").split("\n")).strip(" |")
