"""What a profiler saw of the calls of one case: which kernels they launched, and where the device's time went."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofwatch.collector.record.part import Count, Name, Part

MOST_ROWS = 32
"""Of a profile, the longest in all first; what the others took is told."""
MOST_NAME = 500
"""Characters of a name that are kept: template arguments make some of them far longer."""

_Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Dimensions = Annotated[tuple[Count, ...], Field(max_length=3)]


class ProfiledActivity(Part):
    """All activities of one kind and name on one device."""

    kind: Literal["kernel", "memcpy", "memset", "operator"]
    """An operator where the device is the CPU: torch's own, without what it called inside."""
    name: Name
    """As the device knows it, or torch, cut to 500 characters."""
    device: Name
    """Its number as the profiler gives it, or `cpu`."""
    count: _Positive
    """Over all calls that were profiled."""
    total_ns: Count
    max_ns: Count | None = None
    """Of the longest; None of operators."""
    bytes: Count | None = None
    """Copied or filled, over all calls; None of kernels and operators."""
    grid: _Dimensions = ()
    """Of the first launch; empty where it is not known."""
    block: _Dimensions = ()
    registers: Count | None = None
    """Per thread, of the first launch."""
    shared_bytes: Count | None = None
    """Per block, of the first launch."""
    estimated_occupancy: Annotated[float, Field(ge=0, le=1)] | None = None
    """By torch's estimate, weighted by time; short kernels honestly have 0."""
    configuration_count: Count | None = None
    """Launches that differ in grid, block or shared memory."""

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count


class CaseProfile(Part):
    """Some calls of one case and implementation, made back to back on a hot cache with a profiler attached: its times
    compare with no measurement's.
    """

    case_id: Name
    implementation: Name
    source: Literal["torch_profiler"] = "torch_profiler"
    call_count: _Positive
    span_ns: Count
    """From the start of the first activity to the end of the last."""
    busy_ns: Count
    """Of it, how long any was under way: the union of all."""
    launch_delay_ns: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Median time from the call of a launch to the start of its kernel; None where there is none."""
    rows: Annotated[tuple[ProfiledActivity, ...], Field(max_length=MOST_ROWS)] = ()
    """The longest in all first."""
    left_out_count: Count = 0
    """Rows beyond these."""
    left_out_ns: Count = 0
    """What they took in all."""

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @model_validator(mode="after")
    def _busy_within_the_span(self) -> Self:
        if self.busy_ns > self.span_ns:
            raise ValueError(f"{self.case_id} {self.implementation}: busy {self.busy_ns} of {self.span_ns} ns")
        return self
