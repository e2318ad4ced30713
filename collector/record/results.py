"""Results other than times: accuracy, facts of machine code, hardware counters, profiles."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofwatch.collector.record.machine import Count, Integer, Message, Name, Outcome, Part


class TensorError(Part):
    """How far one output or gradient lies from the reference."""

    tensor: Name
    """`out`, or `grad_<input>`."""
    max_abs_error: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """RMS of the error / RMS of the reference."""
    baseline_rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The same of the eager implementation in the same precision; None if it was not asked or is what was checked."""
    passed: bool


class Accuracy(Part):
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


class StaticFacts(Part):
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


class ProfilerFinding(Part):
    """What a rule of the profiler says about one kernel."""

    rule: Name
    message: Message
    estimated_speedup: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the time that following it may save, by the profiler's own estimate."""
    is_estimate_of_a_part: bool = False
    """The estimate is of the part of the kernel that the rule looks at, not of the kernel's time."""


class Counters(Part):
    """Hardware counters of one kernel launch, read by a profiler in a run of its own: its durations compare with no
    measurement's.
    """

    case_id: Name
    implementation: Name
    function: Name
    """Name of the kernel as the device knows it."""
    launch_index: Count = 0
    """Which of the call's launches, from 0."""
    source: Literal["ncu"] = "ncu"
    values: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """By name with its unit, for example `dram_bytes`; shares are from 0 to 1."""
    findings: tuple[ProfilerFinding, ...] = ()


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
