"""What was seen of the device while it was measured: clocks, power, temperature, and what slowed it down."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from roofwatch.collector.record.part import Count, Message, Name, Part

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
    started_at: AwareDatetime
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
