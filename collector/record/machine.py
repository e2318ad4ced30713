"""The machine in a record: environment, ceilings, device state, telemetry."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(min_length=1, max_length=500)]
Message = Annotated[str, Field(max_length=4_000)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
PositiveNs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# what Postgres and JSON readers elsewhere can hold
_MAX_INTEGER = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=_MAX_INTEGER)]
Integer = Annotated[int, Field(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]


def _to_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is outside the years 1 to 9999 in UTC") from None


UtcDatetime = Annotated[AwareDatetime, AfterValidator(_to_utc)]
"""A time with a zone, converted to UTC."""


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


class Part(BaseModel):
    # fields that a newer minor version added stay in the file and count in its content hash
    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class Environment(Part):
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
    clock_mode: Literal["free", "locked"] = "free"
    """Whether the device chose its clock, or was held at one while it was measured."""
    locked_sm_clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    is_persistence_on: bool | None = None
    """NVML's persistence mode; None where it is not known."""
    is_ecc_on: bool | None = None
    is_mig_on: bool | None = None
    """The device is a slice of one: its clock, power and neighbours are not its own."""

    @property
    def runner_class(self) -> str:
        """What must be equal for two numbers to compare: device model and memory, power limit, driver major and
        clock mode; on the CPU, where there is no driver, the threads.
        """
        memory = f"{self.device_memory_bytes / 2**30:.0f} GiB"
        if self.device_kind == "cpu":
            threads = f"{self.thread_count} thread{'' if self.thread_count == 1 else 's'}"
            return f"{self.device_name}, {threads}, {memory}"
        power = "power limit unknown" if self.power_limit_w is None else f"{self.power_limit_w:.0f} W"
        driver = (self.driver_version or "unknown").split(".")[0]
        clocks = f", clock locked at {self.locked_sm_clock_mhz or 0:.0f} MHz" if self.clock_mode == "locked" else ""
        return f"{self.device_name}, {memory}, {power}, driver {driver}{clocks}"


class Ceiling(Part):
    """A limit of the device: measured in this run, the best of several tries, or the vendor's word."""

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
    source: Literal["measured", "datasheet"] = "measured"
    """Only what was measured is judged by; the datasheet's stands beside it."""


_Reading = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class DeviceState(Part):
    """The readings that fall into one block of samples."""

    reading_count: Count
    sm_clock_mhz: _Reading = None
    """Median."""
    memory_clock_mhz: _Reading = None
    """Median."""
    power_w: _Reading = None
    """Mean."""
    temperature_c: _Reading = None
    """Highest."""
    energy_per_launch_j: _Reading = None
    """By the device's energy counter over the block, flushes of the cache among it."""
    clock_event_reasons: tuple[Name, ...] = ()
    """All that held the clock down at any time in the block, by NVML's present names in lower case."""
    degraded_by: tuple[Name, ...] = ()
    """Why the block says less about the kernel than others: the reasons above that are faults, and for example
    `foreign_process`."""


class Telemetry(Part):
    """All readings of a run, a column a quantity; the device is the run's."""

    status: Literal["ok", "unavailable", "not_permitted", "unsupported"]
    message: Message | None = None
    """Why there are no readings, or not all."""
    started_at: UtcDatetime
    offset_ms: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    """Of each reading, after `started_at`, by a clock that never goes back; parts of a run that was cut short lie as
    far apart as the wall clock says, and between them stands a reading of which nothing is known."""
    sm_clock_mhz: tuple[_Reading, ...] = ()
    memory_clock_mhz: tuple[_Reading, ...] = ()
    power_w: tuple[_Reading, ...] = ()
    temperature_c: tuple[_Reading, ...] = ()
    energy_j: tuple[_Reading, ...] = ()
    """Since the first reading; of a run that was cut short, without what was spent before it was gone on with."""
    clock_event_reasons: tuple[tuple[Name, ...], ...] = ()
    foreign_process_count: tuple[Count | None, ...] = ()
    at_ceilings: tuple[DeviceState, ...] = ()
    """While each ceiling that was measured was taken, in their order: a matmul's holds at the clock that it ran at."""

    @property
    def reading_count(self) -> int:
        """Those of which something is known."""
        columns = [
            column
            for column in (self.sm_clock_mhz, self.memory_clock_mhz, self.power_w, self.temperature_c, self.energy_j)
            if column
        ]
        known = sum(any(value is not None for value in row) for row in zip(*columns, strict=True))
        return known if columns else len(self.offset_ms)

    @model_validator(mode="after")
    def _columns_of_one_length(self) -> Self:
        for name, value in self:
            if name != "at_ceilings" and isinstance(value, tuple) and value and len(value) != len(self.offset_ms):
                raise ValueError(f"telemetry: {len(self.offset_ms)} readings with {len(value)} of {name}")
        return self
