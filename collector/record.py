"""The RunRecord: everything that one run measured, in one versioned document. It is the contract between the runner
that measures and everything that keeps, judges and shows.

A newer minor version is read and what this version does not know is kept; an unknown major version is refused by
name. A file is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import UUID

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from collector.errors import RecordError
from collector.metrics import METRICS
from collector.whole_file import reason_of, write_whole

SCHEMA_MAJOR = 1
SCHEMA_VERSION = "1.1"
MAX_RECORD_BYTES = 512 * 2**20

Name = Annotated[str, Field(min_length=1, max_length=500)]
Message = Annotated[str, Field(max_length=4_000)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
PositiveNs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# what Postgres and JSON readers elsewhere can hold
_MAX_INTEGER = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=_MAX_INTEGER)]
Integer = Annotated[int, Field(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]


class Outcome(StrEnum):
    """How a measurement ended. Only `ok` carries samples; a failure is never a number."""

    OK = "ok"
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    """Faster than the roof allows."""


class Timer(StrEnum):
    PERF_COUNTER = "perf_counter"
    CUDA_EVENT = "cuda_event"


class CacheState(StrEnum):
    HOT = "hot"
    COLD = "cold"


class Side(StrEnum):
    BASE = "base"
    HEAD = "head"


class _Part(BaseModel):
    # unknown fields of a newer minor version are kept, never dropped
    model_config = ConfigDict(frozen=True, extra="allow")


class Commit(_Part):
    sha: Sha
    parents: tuple[Sha, ...] = ()
    first_parent_count: Count
    """Commits from the root along first parents: the order of commits on a branch."""
    committed_at: AwareDatetime
    author: Annotated[str, Field(max_length=500)] = ""
    subject: Annotated[str, Field(max_length=1_000)] = ""
    branch: Annotated[str, Field(max_length=500)] | None = None
    is_dirty: bool = False
    """The work tree differed from the commit, so the numbers are not the commit's alone."""


class Environment(_Part):
    device_kind: Literal["cpu", "cuda", "hip"]
    device_name: Name
    device_memory_bytes: Count
    device_count: Count = 1
    power_limit_w: float | None = None
    driver_version: str | None = None
    compute_capability: str | None = None
    cpu_name: str
    core_count: Count
    thread_count: Count
    """Threads that torch may use on the CPU."""
    os: str
    python_version: str
    torch_version: str
    triton_version: str | None = None
    cuda_version: str | None = None
    compile_knobs: dict[str, str] = Field(default_factory=dict)
    """Compiler settings that were set and change results, for example `TRITON_DEFAULT_FP_FUSION`."""

    @property
    def runner_class(self) -> str:
        """What must be equal for two numbers to compare: device model and memory, power limit, driver major; on the
        CPU, where there is no driver, the threads.
        """
        memory = f"{self.device_memory_bytes / 2**30:.0f} GiB"
        if self.device_kind == "cpu":
            threads = f"{self.thread_count} thread{'' if self.thread_count == 1 else 's'}"
            return f"{self.device_name}, {threads}, {memory}"
        power = "power limit unknown" if self.power_limit_w is None else f"{self.power_limit_w:.0f} W"
        driver = (self.driver_version or "unknown").split(".")[0]
        return f"{self.device_name}, {memory}, {power}, driver {driver}"


class Ceiling(_Part):
    """A limit of the device, measured in this run: the best of several tries."""

    resource: Literal["memory", "compute"]
    level: Literal["dram", "cache"] | None = None
    """For memory: a working set that exceeds the last-level cache, or fits into it."""
    dtype: str | None = None
    """For compute: of the operands."""
    per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Bytes/s for memory, FLOP/s for compute."""
    up_to_bytes: Count | None = None
    """For the cache: the largest working set that it may hold."""
    method: str


class CaseRecord(_Part):
    case_id: Name
    kernel: Name
    family: Name = "other"
    shape: dict[str, Count | Annotated[str, Field(min_length=1, max_length=100)]]
    """Lengths by dimension; a word where cases differ in kind, for example `routing: zipf`."""
    dtype: Name
    direction: Literal["fwd", "bwd"]
    flop_count: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    memory_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bus_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Of a collective: bytes that each link must carry, the size times the field's factor; None for other kernels."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    """Words to select it by, such as `quick` or `70b`."""


class Block(_Part):
    """Samples taken back to back in one process. Blocks of a pair share their position in the list."""

    started_at: AwareDatetime
    samples_ns: Annotated[tuple[PositiveNs, ...], Field(min_length=1)]

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)


class Measurement(_Part):
    """All samples of one case and implementation in one run, or how it failed."""

    case_id: Name
    implementation: Name
    outcome: Outcome
    message: Message | None = None
    timer: Timer
    cache: CacheState
    launches_per_sample: Annotated[int, Field(ge=1)] = 1
    """A sample is the mean of this many launches, more than one where a launch is too short for the timer."""
    blocks: tuple[Block, ...] = ()
    bound: Literal["memory", "compute"] | None = None
    """The ceiling that limits the case first."""
    utilisation: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Least possible time at the binding ceiling / median time."""

    @model_validator(mode="after")
    def _timed_only_if_ok(self) -> Self:
        if (self.outcome is Outcome.OK) != bool(self.blocks):
            raise ValueError(
                f"{self.case_id} {self.implementation}: outcome {self.outcome} with {len(self.blocks)} blocks"
            )
        if self.outcome is not Outcome.OK and self.utilisation is not None:
            raise ValueError(f"{self.case_id} {self.implementation}: outcome {self.outcome} with a utilisation")
        return self

    @property
    def samples_ns(self) -> tuple[float, ...]:
        return tuple(sample for block in self.blocks for sample in block.samples_ns)

    @property
    def median_ns(self) -> float | None:
        """Median of all samples; None unless the outcome is `ok`."""
        return statistics.median(self.samples_ns) if self.blocks else None

    @property
    def quartiles_ns(self) -> tuple[float, float] | None:
        """First and third quartile of all samples; None unless the outcome is `ok`."""
        samples = self.samples_ns
        if not samples:
            return None
        if len(samples) == 1:
            return samples[0], samples[0]
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return low, high


class TensorError(_Part):
    """How far one output or gradient lies from the reference."""

    tensor: Name
    """`out`, or `grad_<input>`."""
    max_abs_error: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """RMS of the error / RMS of the reference."""
    baseline_rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The same of the eager implementation in the same precision; None if it was not asked or is what was checked."""
    passed: bool


class Accuracy(_Part):
    """The check of one case and implementation against the float64 reference, made before it is timed."""

    case_id: Name
    implementation: Name
    executor: Literal["device", "interpreter"]
    """Where it ran: on the run's device, or (numerics of Triton code without a GPU) in Triton's interpreter."""
    outcome: Outcome
    message: Message | None = None
    tensors: tuple[TensorError, ...] = ()

    @model_validator(mode="after")
    def _ok_only_if_all_passed(self) -> Self:
        if len({tensor.tensor for tensor in self.tensors}) != len(self.tensors):
            raise ValueError(f"{self.case_id} {self.implementation}: a tensor is listed twice")
        if self.outcome is Outcome.OK and not (self.tensors and all(tensor.passed for tensor in self.tensors)):
            raise ValueError(f"{self.case_id} {self.implementation}: outcome ok, but not every tensor passed")
        return self

    @property
    def worst(self) -> TensorError | None:
        """The tensor with the largest relative error; None where nothing was compared."""
        return max(self.tensors, key=lambda tensor: tensor.rmse_ratio, default=None)


class StaticFacts(_Part):
    """What the compiler made of one jitted function for one target. Deterministic: any difference is real."""

    case_id: Name
    implementation: Name
    function: Name
    """Name of the jitted body, with `#2`, `#3`, … where one call of the implementation compiles it several ways."""
    target: Name
    outcome: Outcome
    message: Message | None = None
    configuration: dict[str, str | Integer | float | bool | None] = Field(default_factory=dict)
    """constexprs and compile options such as num_warps."""
    toolchain: dict[str, str] = Field(default_factory=dict)
    """What compiled it, by name: `triton`, and `ptxas` or `llvm` or `nvrtc`."""
    thread_count: Count | None = None
    """Per block."""
    registers: Count | None = None
    """Per thread: NVIDIA's 32-bit registers, AMD's vector registers, those of accumulation among them."""
    accumulation_registers: Count | None = None
    """AMD's AGPRs, a part of `registers`."""
    scalar_registers: Count | None = None
    """AMD's SGPRs, per wavefront."""
    spilled_registers: Count | None = None
    """AMD's VGPR and SGPR spills; None on NVIDIA, whose cubin tells only the bytes."""
    spill_store_count: Count | None = None
    """Instructions that store to local memory: spills, and arrays that are indexed by what is not constant."""
    spill_load_count: Count | None = None
    local_bytes: Count | None = None
    """Per thread, in device memory: stack and spills on NVIDIA, scratch on AMD."""
    shared_bytes: Count | None = None
    """Per block, static and dynamic; LDS on AMD."""
    static_shared_bytes: Count | None = None
    """The part of it that the code declares, and no launch can change."""
    tensor_memory_columns: Count | None = None
    """Of a Blackwell multiprocessor's tensor memory."""
    theoretical_occupancy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Warps that can be resident / warps that there are slots for."""
    occupancy_limits: tuple[Name, ...] = ()
    """What allows no further block: any of `registers`, `shared memory`, `warps`, `blocks`."""
    instruction_count: Count | None = None
    instructions: dict[str, Count] = Field(default_factory=dict)
    """How many there are in the code of each kind, for example `tensor.HGMMA` or `global_load.128`."""
    compile_ns: dict[str, Count] = Field(default_factory=dict)
    """Time of each stage, for example `ptx`; unlike the rest not the same in every run."""
    code_bytes: Count | None = None
    code_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """sha256 of the machine code compiled without line information: comments and moves leave it equal."""

    @model_validator(mode="after")
    def _facts_only_if_ok(self) -> Self:
        if (self.outcome is Outcome.OK) != (self.code_hash is not None):
            raise ValueError(
                f"{self.case_id} {self.function} {self.target}: outcome {self.outcome} and code hash disagree"
            )
        return self


class Pairing(_Part):
    """Two records with one pair_id were measured in one job, their blocks interleaved on one device."""

    pair_id: UUID
    side: Side


class RunRecord(_Part):
    schema_version: Annotated[str, Field(pattern=r"^\d+\.\d+$")] = SCHEMA_VERSION
    run_id: UUID
    project: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.][\w./-]*$")]
    commit: Commit
    started_at: AwareDatetime
    finished_at: AwareDatetime
    harness_version: Name
    """Version of what measured: a change of method moves numbers, so it is part of what must be equal to compare."""
    environment: Environment
    pairing: Pairing | None = None
    ceilings: tuple[Ceiling, ...] = ()
    cases: tuple[CaseRecord, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    accuracies: tuple[Accuracy, ...] = ()
    static_facts: tuple[StaticFacts, ...] = ()

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
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two {kind} entries share one key")
            strangers = {key[0] for key in keys} - known
            if strangers:
                raise ValueError(f"{kind} of a case that is not listed: {min(strangers)}")
        return self

    @property
    def content_hash(self) -> str:
        """sha256 of what the document says: tells whether a run that is sent twice was changed in between. Fields at
        their defaults are left out, so that a later version, which knows more fields, finds the same.
        """
        said = self.model_dump(mode="json", exclude_defaults=True) | {"schema_version": self.schema_version}
        return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def case(self, case_id: str) -> CaseRecord:
        return next(case for case in self.cases if case.case_id == case_id)

    def to_json(self) -> bytes:
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    def unread_fields(self) -> dict[str, Any]:
        """Fields that a newer minor version wrote and this one only keeps, by their path."""
        return dict(_extras(self, ""))

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
        if not isinstance(parsed, dict) or "schema_version" not in parsed or "run_id" not in parsed:
            raise RecordError(f"{name}: not a roofwatch record: it has no schema_version and run_id")
        version = str(parsed["schema_version"])
        if version.split(".")[0] != str(SCHEMA_MAJOR):
            raise RecordError(
                f"{name}: schema version {version[:20]} is not known here (this roofwatch reads {SCHEMA_MAJOR}.x); "
                "read it with a roofwatch of that version"
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
        """Read a record file.

        Raises:
            RecordError: it is not there, cannot be read, or is not a record.
        """
        try:
            document = path.read_bytes()
        except OSError as error:
            raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.from_json(document, name=str(path))

    def write(self, path: Path) -> None:
        """Write the record so that a reader finds all of it or nothing, even after a power cut.

        Raises:
            RecordError: the disk is full or the folder cannot be written; the file that was there before is
                unharmed, and this record was saved in the temporary folder if there was room, which the message says.
        """
        document = self.to_json()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, document)
        except OSError as error:
            raise RecordError(f"{path}: cannot be written: {reason_of(error)}; {self._rescue(document)}") from None

    def _rescue(self, document: bytes) -> str:
        rescue = Path(tempfile.gettempdir()) / f"roofwatch-{self.run_id}.json"
        try:
            write_whole(rescue, document)
        except OSError as error:
            return f"it could not be saved as {rescue} either ({reason_of(error)}): free some space and run again"
        return f"the run is saved as {rescue}: free some space and move it there"


def json_schema() -> dict[str, Any]:
    """JSON Schema of the record, as published in `docs/record.schema.json`."""
    schema = RunRecord.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"roofwatch RunRecord {SCHEMA_VERSION}"
    return schema


def measured_values(measurement: Measurement, case: CaseRecord) -> dict[str, float]:
    """The measured metrics of a measurement, by metric key; empty unless its outcome is `ok`."""
    median_ns = measurement.median_ns
    if median_ns is None:
        return {}
    values = {"median_ns": median_ns}
    if case.flop_count:
        values["flop_per_s"] = case.flop_count / median_ns * 1e9
    if case.memory_bytes:
        values["memory_bytes_per_s"] = case.memory_bytes / median_ns * 1e9
    if case.bus_bytes:
        values["bus_bytes_per_s"] = case.bus_bytes / median_ns * 1e9
    if measurement.utilisation is not None:
        values["utilisation"] = measurement.utilisation
    assert values.keys() <= METRICS.keys()
    return values


def _extras(part: BaseModel, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in (part.model_extra or {}).items():
        yield prefix + name, value
    for name in type(part).model_fields:
        value = getattr(part, name)
        for step, child in enumerate(value) if isinstance(value, tuple) else ((None, value),):
            if isinstance(child, BaseModel):
                yield from _extras(child, f"{prefix}{name}{'' if step is None else f'.{step}'}.")


def utc_now() -> datetime:
    """The current time, with its zone."""
    from datetime import UTC

    return datetime.now(UTC)
