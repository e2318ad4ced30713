"""What an export consists of: lines of JSON, each of one kind, the first and the last about the whole.

    header                what this is
    run, aged_run, ...    records in the order in which they were stored
    triage, audit, trusted_repository, ...   what people did
    alert, bisection      what people were told, and what was measured to name a commit
    manifest              how many lines of each kind there are, and the sha256 of all that is before it

Tokens are in none of them.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import orjson
from pydantic import AwareDatetime, Base64Bytes, Field, ValidationError

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.record.part import Outcome
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.alert_lines import AlertLine
from roofwatch.db.maintenance.bisection_lines import BisectionLine
from roofwatch.db.maintenance.line import Hash, Line, ProjectName, Words
from roofwatch.db.values import Verdict


class Header(Line):
    kind: Literal["header"] = "header"
    format: Literal["roofwatch-export/1"] = "roofwatch-export/1"
    made_at: AwareDatetime
    schema_revision: Words


class Run(Line):
    """A record, with what the store knows of it beside. What was removed of it since is named, with when."""

    kind: Literal["run"] = "run"
    is_quarantined: bool
    content_hash: Hash
    ingested_at: AwareDatetime
    telemetry_pruned_at: AwareDatetime | None = None
    record: dict[str, Any]


class Summary(Line):
    """What is left of a measurement whose samples have aged out: the values of its row, and of its series."""

    case_id: Words
    implementation: Words
    timer: Timer
    cache: CacheState
    outcome: Outcome
    message: Words | None
    median_ns: float | None
    below_ns: float | None
    above_ns: float | None
    sample_count: int | None
    block_count: int | None
    utilisation: float | None
    joules_per_launch: float | None
    is_memory_bound: bool | None
    host_ns: float | None = None
    """This and the next are not in lines that an older version wrote."""
    peak_allocated_bytes: float | None = None
    launch_count: Annotated[int, Field(ge=0)] = 0
    """Launches that were timed."""
    is_degraded: bool = False
    """In a block of it the device was held back, or shared."""


class AgedRun(Run):
    """A run whose samples have aged out: its record has no measurements, what is left of them stands beside it."""

    kind: Literal["aged_run"] = "aged_run"  # type: ignore[assignment]  # another kind of line, with the fields of a run
    samples_pruned_at: AwareDatetime
    unread_fields: dict[str, Any]
    summaries: list[Summary]


class ArtefactLine(Line):
    """A piece of a file that belongs to a run; the pieces of one follow each other."""

    kind: Literal["artefact"] = "artefact"
    run_id: UUID
    sha256: Hash
    position: Annotated[int, Field(ge=0)]
    is_last: bool
    content: Base64Bytes


class TriageLine(Line):
    kind: Literal["triage"] = "triage"
    regression_id: UUID
    project: ProjectName
    sha: Words
    kernel: Words
    verdict: Verdict
    series: Annotated[list[Words], Field(max_length=100_000)]
    is_found: bool
    newest_place: Annotated[int, Field(ge=0)]
    state: TriageState
    person: Words | None
    reason: Words | None
    changed_at: AwareDatetime | None


class AuditLine(Line):
    kind: Literal["audit"] = "audit"
    at: AwareDatetime
    actor: Words
    person: Words | None
    action: Words
    project: Words | None
    subject: Words
    before: Words | None
    after: Words | None
    reason: Words | None


class TrustedRepositoryLine(Line):
    kind: Literal["trusted_repository"] = "trusted_repository"
    repository: Words
    project: Words
    refs: Annotated[list[Words], Field(min_length=1, max_length=1_000)]
    created_at: AwareDatetime


class Manifest(Line):
    kind: Literal["manifest"] = "manifest"
    counts: dict[str, int]
    sha256: Hash


AnyLine = (
    Header
    | Run
    | AgedRun
    | ArtefactLine
    | TriageLine
    | AlertLine
    | BisectionLine
    | AuditLine
    | TrustedRepositoryLine
    | Manifest
)

_LINES: dict[str, type[AnyLine]] = {line.model_fields["kind"].default: line for line in get_args(AnyLine)}


class Tally:
    """Counts and hashes lines, as they are written or read."""

    def __init__(self) -> None:
        self._sha256 = sha256()
        self._counts: Counter[str] = Counter()

    def add(self, line: bytes, kind: str) -> None:
        self._sha256.update(line)
        self._counts[kind] += 1

    def manifest(self) -> Manifest:
        return Manifest(counts=dict(sorted(self._counts.items())), sha256=self._sha256.hexdigest())


def to_bytes(line: AnyLine) -> bytes:
    return orjson.dumps(line.model_dump(mode="json")) + b"\n"


def kind_of(line: bytes) -> str:
    """As it stands at the beginning of every line that was written by us; empty where none does."""
    for kind in _LINES:
        if line.startswith(b'{"kind":"%s",' % kind.encode()):
            return kind
    return ""


def parse(line: bytes, *, number: int) -> AnyLine:
    """Read a line, which anybody may have written.

    Args:
        line: JSON.
        number: Of the line, for the error.

    Raises:
        StoreError: not a line of an export.
    """
    kind = kind_of(line)
    if not kind:
        raise StoreError(f"line {number}: not a line of an export; export again, or copy the file again")
    try:
        return _LINES[kind].model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError, RecursionError) as error:
        first = error.errors(include_url=False, include_input=False)[0] if isinstance(error, ValidationError) else None
        reason = str(error) if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise StoreError(f"line {number}: {kind}: {reason[:300]}; this file was not written by an export") from None


def run_line(head: Run, document: bytes) -> bytes:
    """A run whose record is at hand as JSON, which is not parsed again."""
    said = orjson.dumps(head.model_dump(mode="json", exclude={"record"}))
    return said[:-1] + b',"record":' + document + b"}\n"
