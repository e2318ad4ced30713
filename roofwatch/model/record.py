"""The RunRecord: everything that one run measured, in one versioned document."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import UUID

import orjson
from pydantic import BaseModel, Field, ValidationError, model_validator

from roofwatch.model.code_identity import RunCode
from roofwatch.model.errors import NotARecordError, RecordError
from roofwatch.model.files import (
    SUFFIX,
    TooLargeError,
    atomic_write,
    compress,
    make_folder,
    read_document,
    reason_of,
)
from roofwatch.model.machine import (
    Ceiling,
    Count,
    Environment,
    Name,
    Part,
    Sha,
    Telemetry,
    UtcDatetime,
)
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.proofs import OperatorCost, OverflowProof
from roofwatch.model.provenance import ForeignCodeError, LoadedFile
from roofwatch.model.results import Accuracy, CaseProfile, Counters, ImportedValue, StaticFacts
from roofwatch.model.source_line import SourceFile, SourceLine

SCHEMA_MAJOR = 1
SCHEMA_VERSION = "1.0"

MAX_RECORD_BYTES = 512 * 2**20
MAX_DEPTH = 32
"""Nested arrays and objects; a record has seven, the rest is for fields of newer versions."""
MAX_ARTEFACT_BYTES = 256 * 2**20

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+@=,-]{0,199}$"
"""A file name that is safe on any system, in a shell and in a page."""


class ArtefactKind(StrEnum):
    """Kinds that this version writes; newer versions may have others."""

    TRACE = "trace"
    """JSON from torch.profiler, possibly compressed with gzip."""
    NCU_REPORT = "ncu_report"
    """From Nsight Compute: its own format, or its raw page as CSV."""
    NSYS_EXPORT = "nsys_export"
    """An SQLite export from Nsight Systems."""
    DISASSEMBLY = "disassembly"
    HTML = "html"
    OTHER = "other"


class Artefact(Part):
    """One file, stored under its sha256 in the folder `artefacts` beside the record."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Count


class Side(StrEnum):
    BASE = "base"
    HEAD = "head"


class MergedPullRequest(Part):
    """A commit of a branch that brought a pull request in."""

    first_parent_count: Count
    """Of that commit."""
    number: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """Of the pull or merge request, as the commit's message names it."""
    head_sha: Sha | None = None
    """What was merged; None if it was squashed."""


class Commit(Part):
    sha: Sha
    parents: tuple[Sha, ...] = ()
    first_parent_count: Count
    """Number of commits from the root along first parents; orders the commits of a branch."""
    committed_at: UtcDatetime
    author: Annotated[str, Field(max_length=500)] = ""
    subject: Annotated[str, Field(max_length=1_000)] = ""
    branch: Annotated[str, Field(max_length=500)] | None = None
    is_dirty: bool = False
    """The work tree differed from the commit."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    """Git tags at this commit when it was measured."""
    merged: Annotated[tuple[MergedPullRequest, ...], Field(max_length=200)] = ()
    """Pull requests among the newest 100 commits of the branch, the newest first."""


class PairMember(Part):
    """Two records with one pair_id were measured in one job,
    with interleaved blocks on one device.
    """

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
    """Version of the measuring code; times of different versions are not comparable."""
    environment: Environment
    machine: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")] | None = None
    """The physical machine: a hash of project, host and GPU, which names neither; None if it is
    unknown or redacted.
    """
    preset: Name | None = None
    """Name of the sampling preset; None for other settings."""
    pairing: PairMember | None = None
    ceilings: tuple[Ceiling, ...] = ()
    cases: tuple[CaseRecord, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    accuracies: tuple[Accuracy, ...] = ()
    static_facts: tuple[StaticFacts, ...] = ()
    overflow_proofs: tuple[OverflowProof, ...] = ()
    operator_costs: tuple[OperatorCost, ...] = ()
    counters: tuple[Counters, ...] = ()
    profiles: tuple[CaseProfile, ...] = ()
    imported: tuple[ImportedValue, ...] = ()
    telemetry: Telemetry | None = None
    """None if the device was not monitored, for example a CPU."""
    spent_ns: dict[Name, Count] = Field(default_factory=dict)
    """Wall time by activity, for example `timing`."""
    artefacts: tuple[Artefact, ...] = ()
    suite: SourceFile | None = None
    """Benchmark file or folder; None for the bundled suite and outside a repository."""
    source_lines: tuple[SourceLine, ...] = ()
    """Functions of each implementation in the suite's repository."""
    source_digests: dict[Name, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict)
    """Digest of all code and data that a kernel may use, by kernel; comments do not count."""
    host_digests: dict[Name, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict)
    """The same without the functions that Triton compiles, by kernel."""
    implementation_digests: dict[Name, Annotated[str, Field(max_length=200)]] = Field(
        default_factory=dict
    )
    """Of a pair: digest of what each implementation may use, by `kernel/implementation`."""
    is_partial: bool = False
    """Measuring stopped at its time limit, before every case had its blocks."""
    skipped: tuple[Name, ...] = ()
    """Kernels that the measured change cannot affect."""
    provenance: tuple[LoadedFile, ...] = ()
    """Modules and shared libraries of the project that were loaded."""
    requirements: dict[Name, Annotated[str, Field(max_length=2_000)]] = Field(default_factory=dict)
    """Packages that the commit requires, with what its files say of their versions."""
    is_isolated: bool = False
    """It was measured in an environment made of its requirements."""

    @model_validator(mode="after")
    def _every_result_has_its_case_once(self) -> Self:
        case_ids = {case.case_id for case in self.cases}
        if len(case_ids) != len(self.cases):
            raise ValueError("a case is listed twice")
        for kind, keys in (
            ("measurement", [m.case_key for m in self.measurements]),
            ("accuracy", [a.case_key for a in self.accuracies]),
            (
                "static facts",
                [(f.case_id, f.implementation, f.function, f.target) for f in self.static_facts],
            ),
            (
                "counters",
                [(c.case_id, c.implementation, c.function, c.launch_index) for c in self.counters],
            ),
            ("overflow proof", [p.case_key for p in self.overflow_proofs]),
            ("operator cost", [c.case_key for c in self.operator_costs]),
            ("profile", [p.case_key for p in self.profiles]),
            ("imported", [(v.case_id, v.implementation, v.key) for v in self.imported]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two {kind} entries share one key")
            unknown = {key[0] for key in keys} - case_ids
            if unknown:
                raise ValueError(f"{kind} of a case that is not listed: {min(unknown)}")
        if len({artefact.name for artefact in self.artefacts}) != len(self.artefacts):
            raise ValueError("two artefacts share one name")
        return self

    @property
    def foreign_code(self) -> LoadedFile | None:
        """A loaded file that is not of the commit, so that nothing here is its result."""
        return next((file for file in self.provenance if file.origin.is_foreign), None)

    def require_own_code(self) -> None:
        """Refuse results that are not those of the commit.

        Raises:
            ForeignCodeError: a file of the project was loaded from elsewhere.
        """
        if self.foreign_code is not None:
            raise ForeignCodeError(self.foreign_code)

    @property
    def run_code(self) -> RunCode:
        """What the run measured, to compare with the other side of its pair."""
        return RunCode(
            implementation_digests=self.implementation_digests,
            requirements=self.requirements,
            environment=self.environment,
        )

    @property
    def content_hash(self) -> str:
        """sha256 of the content without default values, so that versions with more fields find the
        same hash.
        """
        digest = hashlib.sha256()
        for part in self.sorted_json():
            digest.update(part)
        return digest.hexdigest()

    def sorted_json(self) -> Iterator[bytes]:
        """Yield `to_dict` as JSON with sorted keys in parts: the whole text of a large record would
        take as much memory as the record.
        """
        lists = {name for name in _ENTRIES if getattr(self, name)}
        others = self.model_dump(mode="json", exclude_defaults=True, exclude=set(_ENTRIES))
        others["schema_version"] = self.schema_version
        separator = b"{"
        for name in sorted({*lists, *others}):
            yield separator + orjson.dumps(name) + b":"
            separator = b","
            if name not in lists:
                yield orjson.dumps(others[name], option=orjson.OPT_SORT_KEYS)
                continue
            for position, entry in enumerate(getattr(self, name)):
                values = entry.model_dump(mode="json", exclude_defaults=True)
                text = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
                yield (b"," if position else b"[") + text
            yield b"]"
        yield b"}"

    def to_dict(self) -> dict[str, Any]:
        """The content as JSON values, without default values except the schema version."""
        return self.model_dump(mode="json", exclude_defaults=True) | {
            "schema_version": self.schema_version
        }

    @property
    def sm_clock_mhz(self) -> float | None:
        """The highest SM clock of a block; None if unknown."""
        clocks_mhz = {0.0}
        for measurement in self.measurements:
            states = [block.device_state for block in measurement.blocks if block.device_state]
            clocks_mhz.update(state.sm_clock_mhz or 0.0 for state in states)
        return max(clocks_mhz) or None

    def case(self, case_id: str) -> CaseRecord:
        return next(case for case in self.cases if case.case_id == case_id)

    def to_json(self) -> bytes:
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, document: bytes, *, name: str) -> Self:
        """Validate a JSON document; errors begin with the name of its file or request.

        Raises:
            RecordError: not JSON, not a record, of an unknown major version, or with invalid
            values.
        """
        if len(document) > MAX_RECORD_BYTES:
            raise RecordError(
                f"{name}: {len(document)} bytes; a record has at most {MAX_RECORD_BYTES}"
            )
        try:
            parsed = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            raise RecordError(
                f"{name}: not a complete JSON document ({error}); measure again or copy it again"
            ) from None
        return cls.from_parsed(parsed, name=name)

    @classmethod
    def from_parsed(cls, parsed: object, *, name: str) -> Self:
        """Validate a parsed document, as `from_json` does.

        Entries of its lists are replaced by their models one by one, so that a large document is
        not in memory twice.
        """
        if not isinstance(parsed, dict) or "schema_version" not in parsed or "run_id" not in parsed:
            raise NotARecordError(
                f"{name}: not a roofwatch record: it has no schema_version and run_id"
            )
        version = str(parsed["schema_version"])
        if version.split(".")[0] != str(SCHEMA_MAJOR):
            raise RecordError(
                f"{name}: schema version {version[:20]} is not known here (this roofwatch reads "
                f"{SCHEMA_MAJOR}.x); "
                "read it with a roofwatch of that version"
            )
        if is_deeper(parsed, MAX_DEPTH):
            raise RecordError(
                f"{name}: more than {MAX_DEPTH} nested arrays and objects; not written by roofwatch"
            )
        for field, model in _ENTRIES.items():
            entries = parsed.get(field)
            if not isinstance(entries, list):
                continue
            for position, entry in enumerate(entries):
                try:
                    entries[position] = model.model_validate(entry)
                except ValidationError as error:
                    raise _to_record_error(name, error, field, position) from None
        try:
            return cls.model_validate(parsed)
        except ValidationError as error:
            raise _to_record_error(name, error) from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record file, compressed or not, whatever its name.

        Raises:
            RecordError: it cannot be read, or is not a record.
        """
        try:
            with path.open("rb") as file:
                document = read_document(file, max_bytes=MAX_RECORD_BYTES)
        except TooLargeError as error:
            raise RecordError(f"{path}: {error}, the maximum size of a record") from None
        except ValueError as error:
            raise RecordError(f"{path}: {error}; measure again or copy it again") from None
        except OSError as error:
            raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.from_json(document, name=str(path))

    def write(self, path: Path) -> None:
        """Write the record atomically; compressed if the name ends in `.gz`.

        Raises:
            RecordError: it cannot be written; the old file is unchanged.
        """
        try:
            make_folder(path.parent)
            document = self.to_json()
            if path.suffix == SUFFIX:
                document = compress(document)
            atomic_write(path, document)
        except OSError as error:
            raise RecordError(f"{path}: cannot be written: {reason_of(error)}") from None


_ENTRIES: dict[str, type[BaseModel]] = {
    "cases": CaseRecord,
    "measurements": Measurement,
    "accuracies": Accuracy,
    "static_facts": StaticFacts,
    "counters": Counters,
    "profiles": CaseProfile,
    "imported": ImportedValue,
    "source_lines": SourceLine,
}
"""Fields of a record that are long lists, and what is in them."""
_SCALARS = frozenset({int, float, bool, str, type(None)})


def _to_record_error(name: str, error: ValidationError, *path: str | int) -> RecordError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in (*path, *first["loc"])) or "the record"
    extent = "this entry" if path else "all"
    count = f"{error.error_count()} problem(s) in {extent}"
    return RecordError(f"{name}: {where[:200]}: {first['msg'][:300]} ({count})")


def is_deeper(document: object, max_depth: int) -> bool:
    """Whether arrays and objects are nested deeper; level by level, as recursion would overflow."""
    level: list[Any] = [document]
    for _ in range(max_depth + 1):
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return False
        level = []
        for container in containers:
            if isinstance(container, dict):
                level += container.values()
            # most of a record is lists of numbers, which nest nothing
            elif not _SCALARS.issuperset(map(type, container)):
                level += container
    return True


def json_schema() -> dict[str, Any]:
    """JSON Schema of the record."""
    schema = RunRecord.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"roofwatch RunRecord {SCHEMA_VERSION}"
    return schema


def utc_now() -> datetime:
    return datetime.now(UTC)
