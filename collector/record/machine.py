"""What a run was measured on: the machine, and the limits of its device."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roofwatch.collector.record.part import Count, Name, Part


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
