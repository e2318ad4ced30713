"""The machine in a record: environment, ceilings, device state, telemetry."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    model_validator,
)

from roofwatch.model.case_key import CaseKey

Name = Annotated[str, Field(min_length=1, max_length=500)]
Message = Annotated[str, Field(max_length=4_000)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
PositiveNs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# what Postgres and JSON readers elsewhere can hold
_MAX_INTEGER = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=_MAX_INTEGER)]
Integer = Annotated[int, Field(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]
Configuration = dict[str, str | Integer | float | bool | None]
"""Constants and compile options of a function, by name."""


def _to_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is outside the years 1 to 9999 in UTC") from None


UtcDatetime = Annotated[AwareDatetime, AfterValidator(_to_utc)]
"""A time with a zone, converted to UTC."""


DOCUMENTATION_URL = "https://roofwatch.github.io/roofwatch/"


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
    """Faster than the hardware allows."""

    @property
    def is_failure(self) -> bool:
        return self not in {Outcome.OK, Outcome.UNSUPPORTED}

    @property
    def url(self) -> str:
        """Page that explains the outcome and what to do."""
        return f"{DOCUMENTATION_URL}how-to/outcomes.html#{self}"


_NO_NAMES: set[str] = set()


class Part(BaseModel):
    # fields of a newer minor version are kept and count in the content hash
    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    def model_post_init(self, _context: Any, /) -> None:
        # pydantic keeps the names of the given fields, in a set that is larger than most parts;
        # nothing reads them, and a large record has a hundred thousand parts
        object.__setattr__(self, "__pydantic_fields_set__", _NO_NAMES)


class CaseResult(Part):
    """What was found out about one case and implementation."""

    case_id: Name
    implementation: Name

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation


_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}
"""By compute capability, which lacks the last digit of the target."""


class Environment(Part):
    device_kind: Literal["cpu", "cuda", "hip", "unknown"]
    """`unknown` only of an import."""
    device_name: Name
    device_memory_bytes: Count | None
    """None if another tool measured, as of all counts here."""
    device_count: Count = 1
    power_limit_w: float | None = None
    driver_version: str | None = None
    compute_capability: str | None = None
    cpu_name: str
    core_count: Count | None
    thread_count: Count | None
    """Torch threads on the CPU."""
    os: str
    python_version: str
    torch_version: str
    triton_version: str | None = None
    cuda_version: str | None = None
    compile_knobs: dict[str, str] = Field(default_factory=dict)
    """Environment variables that change results, for example `TRITON_DEFAULT_FP_FUSION`."""
    clock_mode: Literal["free", "locked"] = "free"
    locked_sm_clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    is_persistence_on: bool | None = None
    """NVML's persistence mode."""
    is_ecc_on: bool | None = None
    is_mig_on: bool | None = None
    """The device is a MIG slice, which shares clock and power with others."""
    imported_from: str | None = None
    """The tool that measured, if the record was imported from its file."""

    @property
    def is_imported(self) -> bool:
        """Whether another tool measured: its file names no driver, toolchain or telemetry."""
        return self.imported_from is not None

    @property
    def compile_target(self) -> str | None:
        """The compiler's target for this device, such as `sm_90`; None of a CPU or if unknown."""
        if self.compute_capability is None or self.device_kind == "cpu":
            return None
        if self.device_kind == "hip":
            return _AMD_TARGETS.get(self.compute_capability)
        return f"sm_{self.compute_capability.replace('.', '')}"

    @property
    def runner_class(self) -> str:
        """What must be equal for times to compare: device model, memory, power limit and clock
        mode; on a CPU the threads. Of an import, the tool and the device that its file names.

        Driver and toolchain stay with each run: a commit measured with both connects the two.
        """
        if self.imported_from is not None:
            return f"{self.device_name}, imported from {self.imported_from}"
        memory = f"{(self.device_memory_bytes or 0) / 2**30:.0f} GiB"
        if self.device_kind == "cpu":
            if self.thread_count == 1:
                threads = "1 thread"
            else:
                threads = f"{self.thread_count} threads"
            return f"{self.device_name}, {threads}, {memory}"
        power = "power limit unknown"
        if self.power_limit_w is not None:
            power = f"{self.power_limit_w:.0f} W"
        parts = [self.device_name, memory, power]
        if self.clock_mode == "locked":
            parts.append(f"clock locked at {self.locked_sm_clock_mhz or 0:.0f} MHz")
        return ", ".join(parts)


_Offset = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Reading = _Offset | None
# a wrong column of a long run has a hundred thousand errors, which take more memory than it does
_Column = Annotated[tuple[_Reading, ...], FailFast()]


class Ceiling(Part):
    """A limit of the device: the best of several measurements in this run,
    or from the datasheet.
    """

    resource: Literal["memory", "compute"]
    level: Literal["dram", "cache"] | None = None
    """For memory: whether the working set exceeds the last-level cache or fits into it."""
    dtype: str | None = None
    """For compute: dtype of the operands."""
    per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Bytes/s for memory, FLOP/s for compute."""
    up_to_bytes: Count | None = None
    """For the cache: the largest working set."""
    method: str
    source: Literal["measured", "datasheet"] = "measured"
    """Only measured ceilings are used for verdicts."""

    @property
    def kind(self) -> tuple[str | None, ...]:
        """What it limits, and how it was found."""
        return self.source, self.resource, self.level, self.dtype


def highest_ceilings(ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """The highest ceiling of each kind: equal devices have equal limits, and each is measured from
    below.
    """
    highest: dict[tuple[str | None, ...], Ceiling] = {}
    for ceiling in ceilings:
        highest_so_far = highest.get(ceiling.kind)
        if highest_so_far is None or ceiling.per_s > highest_so_far.per_s:
            highest[ceiling.kind] = ceiling
    return tuple(highest.values())


class DeviceState(Part):
    """Device readings during one block of samples."""

    reading_count: Count
    sm_clock_mhz: _Reading = None
    """Median."""
    memory_clock_mhz: _Reading = None
    """Median."""
    power_w: _Reading = None
    """Mean."""
    temperature_c: _Reading = None
    """Highest."""
    memory_temperature_c: _Reading = None
    """Highest of the device's memory."""
    energy_per_launch_j: _Reading = None
    """From the energy counter, including cache flushes."""
    clock_event_reasons: tuple[Name, ...] = ()
    """Everything that reduced the clock during the block, by NVML's names in lower case."""
    degraded_by: tuple[Name, ...] = ()
    """Why the block is less reliable: clock event reasons that are faults, or for example
    `foreign_process`.
    """


class Telemetry(Part):
    """All device readings of a run, by column."""

    status: Literal["ok", "unavailable", "not_permitted", "unsupported"]
    message: Message | None = None
    """Why readings are missing."""
    started_at: UtcDatetime
    health: dict[Name, float] = Field(default_factory=dict)
    """The device before the run: performance state, ECC errors and remapped rows since the driver
    was loaded, PCIe generation and width, NVLink links."""
    offset_ms: Annotated[tuple[_Offset, ...], FailFast()] = ()
    """Time of each reading since `started_at`, on a monotonic clock. An empty reading separates the
    parts of a resumed run."""
    sm_clock_mhz: _Column = ()
    memory_clock_mhz: _Column = ()
    power_w: _Column = ()
    temperature_c: _Column = ()
    memory_temperature_c: _Column = ()
    energy_j: _Column = ()
    """Since the first reading; in a resumed run, only of its last part."""
    clock_event_reasons: Annotated[tuple[tuple[Name, ...], ...], FailFast()] = ()
    foreign_process_count: Annotated[tuple[Count | None, ...], FailFast()] = ()

    @model_validator(mode="after")
    def _columns_of_one_length(self) -> Self:
        for name, value in self:
            if isinstance(value, tuple) and value and len(value) != len(self.offset_ms):
                raise ValueError(
                    f"telemetry: {len(self.offset_ms)} readings with {len(value)} of {name}"
                )
        return self
