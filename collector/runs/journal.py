"""The journal of an unfinished run: every result so far, one JSON document per line.

Each line is on disk before the run goes on. A resumed run drops a line that a crash cut short, and
skips damaged lines. The first line is the header, which says what is measured. One process writes
at a time.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError

from roofwatch.collector.runs.run_plan import HARNESS_VERSION, RunPlan
from roofwatch.collector.suite import SuiteAt, digest_of_suite
from roofwatch.model.errors import JournalError
from roofwatch.model.files import is_locked, make_folder, reason_of, sync_folder
from roofwatch.model.machine import Ceiling, Environment, Telemetry
from roofwatch.model.proofs import CaseProof
from roofwatch.model.provenance import LoadedFile
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.model.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.model.worker_protocol import Failure, Subject, TimedBlock

ALONE = "run"
"""Side of a run that measures one commit."""

_PLAN = TypeAdapter(RunPlan)


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Line):
    """What a journal belongs to."""

    format: Literal[3] = 3
    started_at: AwareDatetime
    facts: dict[str, Any]
    """What must be equal to resume the run, by name."""
    run_ids: dict[str, UUID]
    """By side."""
    pair_id: UUID | None = None


def make_header(suites: Mapping[str, SuiteAt], plan: RunPlan, *, is_spread: bool = False) -> Header:
    """Make the header of a new run of suites by side; it may be spread over a cluster.

    Raises:
        GitError: the repository of a suite cannot be read.
    """
    facts = {
        "roofwatch": HARNESS_VERSION,
        "is_spread": is_spread,
        **_PLAN.dump_python(plan, mode="json"),
    }
    for side, suite in suites.items():
        of_side = ""
        if side != ALONE:
            of_side = f" of the {side}"
        facts |= {
            f"the project{of_side}": suite.project,
            f"the commit{of_side}": suite.commit.sha[:12],
        }
        # its files and uncommitted changes
        facts[f"the hash of the suite's files{of_side}"] = digest_of_suite(suite.source)[:12]
    pair_id = None
    if len(suites) > 1:
        pair_id = uuid.uuid4()
    return Header(
        started_at=utc_now(),
        facts=facts,
        run_ids={side: uuid.uuid4() for side in suites},
        pair_id=pair_id,
    )


class TimedStep(_Line):
    """A block, or the failure that replaced it."""

    case_id: str
    implementation: str
    blocks_before: int
    """Number of earlier blocks that still count."""
    taken: TimedBlock | None = None
    failure: Failure | None = None


class Entry(_Line):
    """One result. Besides `side`, `spent_ns`, `seen` and `loaded`, one field is set."""

    side: str = ALONE
    spent_ns: dict[str, int] = {}
    """Wall time of the side so far, by activity."""
    seen: Telemetry | None = None
    """Device readings since the previous entry of any side."""
    loaded: tuple[LoadedFile, ...] = ()
    """Files of the project that workers have loaded since the previous entry of the side."""
    environment: Environment | None = None
    ceilings: tuple[Ceiling, ...] | None = None
    accuracy: Accuracy | None = None
    compiled: tuple[StaticFacts, ...] = ()
    """Of one case and implementation."""
    proof: CaseProof | None = None
    timed: TimedStep | None = None
    profile: CaseProfile | None = None
    share: RunRecord | None = None
    """Record from another machine of a distributed run."""

    @property
    def is_result(self) -> bool:
        return self.environment is None

    @property
    def subject(self) -> Subject | None:
        """What the result is of; None for facts of the machine."""
        overflow = None
        if self.proof is not None:
            overflow = self.proof.overflow
        results = (self.accuracy, *self.compiled[:1], overflow, self.timed, self.profile)
        for result in results:
            if result is not None:
                return Subject(result.case_id, result.implementation)
        return None


class Journal:
    """An open, locked journal, created if missing. A resumed run keeps the header of the file.

    Raises:
        JournalError: the file holds another run or results that may not be overwritten, or it
        cannot be used.
    """

    def __init__(self, path: Path, header: Header, *, is_resumed: bool = False) -> None:
        self.path = path
        self.header = header
        self._entries: list[Entry] = []
        self.damaged_lines: tuple[int, ...] = ()
        """Numbers of the lines that were skipped; their results are measured again."""
        self._file = _open_locked(path)
        try:
            self._load(is_resumed=is_resumed)
        except BaseException:
            self._file.close()
            raise

    def _load(self, *, is_resumed: bool) -> None:
        """Take up the entries of an interrupted run, or begin an empty file."""
        header, entries, size_bytes, damaged_lines = _read(self.path, self._file)
        result_count = sum(entry.is_result for entry in entries)
        if header is None or not result_count:
            self._file.truncate(0)
            self._write(self.header)
            sync_folder(self.path.parent)
            return
        if not is_resumed:
            raise JournalError(
                f"{self.path}: holds an unfinished run with {result_count} results: --resume "
                f"continues it; "
                "delete the file to start again"
            )
        if reasons := list(changes(header.facts, self.header.facts)):
            raise JournalError(
                f"{self.path}: cannot be resumed: {'; '.join(reasons)}; undo that, or delete the "
                f"file"
            )
        self._file.truncate(size_bytes)
        self.header = header
        self._entries = entries
        self.damaged_lines = damaged_lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the journal; remove it if it holds no result."""
        if not self._file.closed and not self.result_count:
            self.remove()
        self.close()

    @property
    def result_count(self) -> int:
        return sum(entry.is_result for entry in self._entries)

    def entries(self, side: str = ALONE) -> tuple[Entry, ...]:
        """Entries of one side so far."""
        return tuple(entry for entry in self._entries if entry.side == side)

    @property
    def seen(self) -> tuple[Telemetry, ...]:
        """Device readings so far, of both sides."""
        return tuple(entry.seen for entry in self._entries if entry.seen is not None)

    def append(self, entry: Entry) -> None:
        """Write an entry to disk.

        Raises:
            JournalError: it cannot be written; earlier entries are unharmed.
        """
        self._entries.append(
            entry
        )  # before writing: an interrupt in between must not hide a written entry
        self._write(entry)

    def remove(self) -> None:
        """Delete the journal once the record is written."""
        self.path.unlink(missing_ok=True)
        self._entries.clear()
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write(self, line: BaseModel) -> None:
        """Write a whole line to the disk, or none of it."""
        size_bytes = self._file.seek(0, os.SEEK_END)
        unwritten = memoryview(line.model_dump_json(exclude_defaults=True).encode() + b"\n")
        try:
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size_bytes)
            raise JournalError(f"{self.path}: cannot be written: {reason_of(error)}") from None


def journal_path(record_path: Path) -> Path:
    """Path of the journal of a run whose record goes to `record_path`."""
    return record_path.with_name(f"{record_path.name}.journal")


def _open_locked(path: Path) -> IO[bytes]:
    """Open the journal, which one process at a time may write."""
    try:
        make_folder(path.parent)
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None
    if not is_locked(file, path):
        file.close()
        raise JournalError(
            f"{path}: another run is writing there; wait for it, or choose another --output"
        )
    return file


def _read(path: Path, file: IO[bytes]) -> tuple[Header | None, list[Entry], int, tuple[int, ...]]:
    """Header, entries, size in bytes up to an incomplete last line,
    and numbers of damaged lines.
    """
    file.seek(0)
    content = file.read()
    *lines, incomplete = content.split(b"\n")
    header = None
    entries = []
    damaged = []
    for number, line in enumerate(lines, start=1):
        try:
            if number == 1:
                header = Header.model_validate_json(line)
            else:
                entries.append(Entry.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] != "json_invalid":
                raise JournalError(
                    f"{path}: damaged, or written by another version of roofwatch "
                    f"({'.'.join(map(str, first['loc']))}: "
                    f"{first['msg']}): resume with that version, or delete the file"
                ) from None
            damaged.append(number)
    if header is None and entries:
        raise JournalError(
            f"{path}: its first line is damaged, so what it measured is unknown: delete it"
        )
    return header, entries, len(content) - len(incomplete), tuple(damaged)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Describe each value that differs."""
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"{name} was {before.get(name)} and is {now.get(name)} now"
