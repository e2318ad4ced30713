"""The RunRecord: everything that one run measured, in one versioned document.

The collector writes it; storing, comparing and reporting read it. An unknown major version is refused.
"""

from __future__ import annotations

import hashlib
import tempfile
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import UUID

import orjson
from pydantic import AfterValidator, Field, ValidationError, model_validator

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.files import (
    SUFFIX,
    TooLargeError,
    atomic_write,
    compress,
    make_folder,
    read_document,
    reason_of,
)
from roofwatch.collector.record.machine import Ceiling, Count, Environment, Name, Part, Sha, Telemetry, UtcDatetime
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.results import Accuracy, CaseProfile, Counters, StaticFacts

MAX_ARTEFACT_BYTES = 256 * 2**20
"""Of one file: the store and the server take no larger one."""

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+@=,-]{0,199}$"
"""A name is that of a file in any folder, of any system: no path, no blank, nothing that a shell or a page reads."""


class ArtefactKind(StrEnum):
    """What this version makes. A record of a newer one may name others."""

    TRACE = "trace"
    """Of torch.profiler, as JSON that may be packed with gzip."""
    NCU_REPORT = "ncu_report"
    """Of Nsight Compute: its own format, or its raw page as CSV."""
    NSYS_EXPORT = "nsys_export"
    """Of Nsight Systems: an sqlite export."""
    DISASSEMBLY = "disassembly"
    HTML = "html"
    OTHER = "other"


class Artefact(Part):
    """One file; beside the record it lies in the folder `artefacts`, under its sha256."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Count


MAX_LINE = 10_000_000


def _inside(path: str) -> str:
    """A path that can only lead to a file of the repository, whoever wrote it."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or ":" in path or {"", ".", "..", ".git"} & set(parts):
        raise ValueError("a source file is named by its path from the root of its repository, with / between names")
    return path


SourceFile = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)]


class SourceLine(Part):
    """The first line of a function that computes a kernel."""

    kernel: Name
    implementation: Name
    function: Name
    """As its `def` names it."""
    file: SourceFile
    """From the root of the repository, with `/` between names."""
    line: Annotated[int, Field(ge=1, le=MAX_LINE)]
    is_jitted: bool = False
    """Triton compiles it; else it is what is called."""


class SkipReason(StrEnum):
    """What this version finds. A record of a newer one may name others."""

    SAME_SOURCES = "same_sources"
    """No module that it is made from changed."""


class SkippedKernel(Part):
    kernel: Name
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
    """A `SkipReason`, or what a newer version knows."""


SCHEMA_MAJOR = 1
SCHEMA_VERSION = "1.0"
MAX_DEPTH = 32
"""Arrays and objects in each other: a record has seven, the rest is for fields of newer versions."""
MAX_RECORD_BYTES = 512 * 2**20


class Side(StrEnum):
    BASE = "base"
    HEAD = "head"


class Commit(Part):
    sha: Sha
    parents: tuple[Sha, ...] = ()
    first_parent_count: Count
    """Commits from the root along first parents: the order of commits on a branch."""
    committed_at: UtcDatetime
    author: Annotated[str, Field(max_length=500)] = ""
    subject: Annotated[str, Field(max_length=1_000)] = ""
    branch: Annotated[str, Field(max_length=500)] | None = None
    is_dirty: bool = False
    """The work tree differed from the commit, so the numbers are not the commit's alone."""


class Pairing(Part):
    """Two records with one pair_id were measured in one job, their blocks interleaved on one device."""

    pair_id: UUID
    side: Side


class RunRecord(Part):
    schema_version: Annotated[str, Field(pattern=r"^\d+\.\d+$")] = SCHEMA_VERSION
    run_id: UUID
    project: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.][\w./-]*$")]
    commit: Commit
    started_at: UtcDatetime
    finished_at: UtcDatetime
    harness_version: Name
    """Version of what measured: a change of method moves numbers, so it is part of what must be equal to compare."""
    environment: Environment
    preset: Name | None = None
    """How long was sampled, by name, for example `survey`: blocks of other lengths have other noise. None where no name
    stands for it, or the record is of an older harness.
    """
    pairing: Pairing | None = None
    ceilings: tuple[Ceiling, ...] = ()
    cases: tuple[CaseRecord, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    accuracies: tuple[Accuracy, ...] = ()
    static_facts: tuple[StaticFacts, ...] = ()
    counters: tuple[Counters, ...] = ()
    profiles: tuple[CaseProfile, ...] = ()
    """Which kernels the calls of a case launched, where that was asked for."""
    telemetry: Telemetry | None = None
    """None where nobody watched the device: a CPU, or a record of an older harness."""
    spent_ns: dict[Name, Count] = Field(default_factory=dict)
    """Where the run's wall time went, by activity, for example `timing`."""
    artefacts: tuple[Artefact, ...] = ()
    """Files that belong to the run, such as traces."""
    source_lines: tuple[SourceLine, ...] = ()
    """Where the functions of each implementation stand, as far as that is in the suite's repository."""
    skipped: tuple[SkippedKernel, ...] = ()
    """Kernels that were left out because the change that is measured cannot touch them."""

    @model_validator(mode="after")
    def _every_result_has_its_case_once(self) -> Self:
        known = {case.case_id for case in self.cases}
        if len(known) != len(self.cases):
            raise ValueError("a case is listed twice")
        for kind, keys in (
            ("measurement", [(m.case_id, m.implementation) for m in self.measurements]),
            ("accuracy", [(a.case_id, a.implementation) for a in self.accuracies]),
            (
                "static facts",
                [(f.case_id, f.implementation, f.function, f.target) for f in self.static_facts],
            ),
            (
                "counters",
                [(c.case_id, c.implementation, c.function, c.launch_index) for c in self.counters],
            ),
            ("profile", [(p.case_id, p.implementation) for p in self.profiles]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two {kind} entries share one key")
            strangers = {key[0] for key in keys} - known
            if strangers:
                raise ValueError(f"{kind} of a case that is not listed: {min(strangers)}")
        return self

    @model_validator(mode="after")
    def _every_artefact_has_a_name_of_its_own(self) -> Self:
        if len({artefact.name for artefact in self.artefacts}) != len(self.artefacts):
            raise ValueError("two artefacts share one name")
        return self

    @property
    def content_hash(self) -> str:
        """sha256 of what the document says: tells whether a run that is sent twice was changed in between. Fields at
        their defaults are left out, so that a later version, which knows more fields, finds the same.
        """
        return hashlib.sha256(orjson.dumps(self.to_dict(), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The document with fields at their defaults left out, but for its version."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"schema_version": self.schema_version}

    def case(self, case_id: str) -> CaseRecord:
        return next(case for case in self.cases if case.case_id == case_id)

    def to_json(self) -> bytes:
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, document: bytes, *, name: str) -> Self:
        """Validate a document.

        Args:
            document: JSON.
            name: Of the file or request, for the error.

        Raises:
            RecordError: not JSON, not a record, of an unknown major version, or with values that cannot be.
        """
        if len(document) > MAX_RECORD_BYTES:
            raise RecordError(f"{name}: {len(document)} bytes; a record has at most {MAX_RECORD_BYTES}")
        try:
            parsed = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            raise RecordError(
                f"{name}: not a complete JSON document ({error}); measure again or copy it again"
            ) from None
        return cls.from_parsed(parsed, name=name)

    @classmethod
    def from_parsed(cls, parsed: object, *, name: str) -> Self:
        """Validate a document that was parsed; otherwise as `from_json`."""
        if not isinstance(parsed, dict) or "schema_version" not in parsed or "run_id" not in parsed:
            raise RecordError(f"{name}: not a roofwatch record: it has no schema_version and run_id")
        version = str(parsed["schema_version"])
        if version.split(".")[0] != str(SCHEMA_MAJOR):
            raise RecordError(
                f"{name}: schema version {version[:20]} is not known here (this roofwatch reads {SCHEMA_MAJOR}.x); "
                "read it with a roofwatch of that version"
            )
        if _is_deeper(parsed, MAX_DEPTH):
            raise RecordError(
                f"{name}: more than {MAX_DEPTH} arrays and objects in each other; "
                "it is no record that any roofwatch wrote"
            )
        try:
            return cls.model_validate(parsed)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(step) for step in first["loc"]) or "the record"
            raise RecordError(
                f"{name}: {where[:200]}: {first['msg'][:300]} ({error.error_count()} problem(s) in all)"
            ) from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record file, compressed or not: its content tells, whatever its name.

        Raises:
            RecordError: it is not there, cannot be read, or is not a record.
        """
        try:
            with path.open("rb") as file:
                document = read_document(file, max_bytes=MAX_RECORD_BYTES)
        except TooLargeError as error:
            raise RecordError(f"{path}: {error}, which is the most that a record has") from None
        except ValueError as error:
            raise RecordError(f"{path}: {error}; measure again or copy it again") from None
        except OSError as error:
            raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.from_json(document, name=str(path))

    def write(self, path: Path) -> None:
        """Write the record so that a reader finds all of it or nothing, even after a power cut; compressed where the
        name ends in `.gz`.

        Raises:
            RecordError: the disk is full or the folder cannot be written; the file that was there before is
                unharmed, and this record was saved in the temporary folder if there was room, which the message says.
        """
        document = compress(self.to_json()) if path.suffix == SUFFIX else self.to_json()
        try:
            make_folder(path.parent)
            atomic_write(path, document)
        except OSError as error:
            raise RecordError(
                f"{path}: cannot be written: {reason_of(error)}; {self._rescue(path, document)}"
            ) from None

    def _rescue(self, path: Path, document: bytes) -> str:
        ending = f".json{SUFFIX}" if path.suffix == SUFFIX else ".json"
        rescue = Path(tempfile.gettempdir()) / f"roofwatch-{self.run_id}{ending}"
        try:
            atomic_write(rescue, document)
        except OSError as error:
            return f"it could not be saved as {rescue} either ({reason_of(error)}): free some space and run again"
        return f"the run is saved as {rescue}: free some space and move it there"


def _is_deeper(document: object, max_depth: int) -> bool:
    """Whether arrays and objects lie deeper in each other, found level by level: recursion would overflow."""
    level: list[Any] = [document]
    for _ in range(max_depth + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return True


def json_schema() -> dict[str, Any]:
    """JSON Schema of the record, as published in `the documentation`."""
    schema = RunRecord.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"roofwatch RunRecord {SCHEMA_VERSION}"
    return schema


def utc_now() -> datetime:
    """The current time, with its zone."""
    from datetime import UTC

    return datetime.now(UTC)
