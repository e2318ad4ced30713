"""Results other than times: accuracy, facts about machine code, hardware counters, profiles,
imported values.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofwatch.model.machine import (
    CaseResult,
    Configuration,
    Count,
    Message,
    Name,
    Outcome,
    Part,
)
from roofwatch.model.metrics import Better, imported_key
from roofwatch.model.regime import Regime


class TensorError(Part):
    """Difference of one output or gradient from the reference."""

    tensor: Name
    """`out`, or `grad_<input>`."""
    max_abs_error: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """RMS of the error / RMS of the reference."""
    baseline_rmse_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The same for the torch implementation in the same precision."""
    passed: bool
    regime: Regime | None = None
    """The values that were tried; None for those that the case declares."""


class Accuracy(CaseResult):
    """The check of one case and implementation against the float64 reference,
    made before timing.
    """

    executor: Literal["device", "interpreter"]
    """The run's device, or Triton's interpreter on a machine without a GPU."""
    outcome: Outcome
    message: Message | None = None
    tensors: tuple[TensorError, ...] = ()
    regimes: tuple[TensorError, ...] = ()
    """Errors with other values, for the first case of each dtype and direction. They do not change
    the outcome.
    """

    @model_validator(mode="after")
    def _ok_only_if_all_passed(self) -> Self:
        if len({tensor.tensor for tensor in self.tensors}) != len(self.tensors):
            raise ValueError(f"{self.case_id} {self.implementation}: a tensor is listed twice")
        regimes = {(tensor.tensor, tensor.regime) for tensor in self.regimes}
        if len(regimes) != len(self.regimes):
            raise ValueError(f"{self.case_id} {self.implementation}: a regime is listed twice")
        is_apart = all(tensor.regime is None for tensor in self.tensors)
        if not is_apart or any(tensor.regime is None for tensor in self.regimes):
            raise ValueError(
                f"{self.case_id} {self.implementation}: `regimes`, and not `tensors`, has errors "
                f"with a regime"
            )
        if self.outcome is Outcome.OK and not (
            self.tensors and all(tensor.passed for tensor in self.tensors)
        ):
            raise ValueError(
                f"{self.case_id} {self.implementation}: outcome ok, but not every tensor passed"
            )
        return self

    @property
    def worst(self) -> TensorError | None:
        """The tensor with the largest relative error."""
        return max(self.tensors, key=lambda tensor: tensor.rmse_ratio, default=None)


_PositiveNs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CodeEstimate(Part):
    """What a cycle model says about one launch: estimated from machine code, not measured."""

    predicted_ns: _PositiveNs
    variants_ns: tuple[_PositiveNs, ...] = ()
    """The time under each of a fixed list of assumptions; the prediction is the first."""
    limit: Name
    """What binds: a pipe such as `issue` or `tensor`, `memory`, `L2`, `atomics`, or `waits`."""
    bounds_ns: dict[Name, _Amount] = Field(default_factory=dict)
    """Lower bound of the time by what binds."""
    element_count: Count
    """Elements of the largest tensor; without tensors, of the loads and stores."""
    instructions_per_element: _Amount
    """Of a thread, over the whole launch."""
    hot_instructions_per_element: _Amount = 0.0
    """The part in the loop that runs most instructions."""
    requested_bytes: _Amount = 0.0
    """Global loads and stores, caches aside."""
    sector_bytes: _Amount = 0.0
    """The same in whole sectors of the memory, more where neighbours lie apart; 0 in records that
    lack it.
    """
    atomics_per_element: _Amount = 0.0
    local_bytes_moved: _Amount = 0.0
    """Loads and stores of local memory."""
    has_unknown_trips: bool = False
    """A loop's number of iterations depends on data."""
    has_trips_of_tiles: bool = False
    """Such loops go through a length in steps of a tile, so another tile has other trips."""
    has_unknown_strides: bool = False
    """How far apart the elements of an access lie depends on data."""

    @property
    def low_ns(self) -> float:
        return min((self.predicted_ns, *self.variants_ns))

    @property
    def high_ns(self) -> float:
        return max((self.predicted_ns, *self.variants_ns))


class StaticFacts(CaseResult):
    """Properties of one compiled function for one target. They are deterministic: any difference is
    real.
    """

    function: Name
    """With `#2`, `#3`, … if one call compiles it in several ways."""
    target: Name
    outcome: Outcome
    message: Message | None = None
    configuration: Configuration = Field(default_factory=dict)
    """constexprs and compile options such as num_warps."""
    toolchain: dict[str, str] = Field(default_factory=dict)
    """Compiler versions: `triton`, and `ptxas`, `llvm` or `nvrtc`."""
    thread_count: Count | None = None
    """Per block."""
    registers: Count | None = None
    """Per thread: NVIDIA's 32-bit registers, or AMD's vector registers including accumulation
    registers.
    """
    accumulation_registers: Count | None = None
    """AMD's AGPRs, a part of `registers`."""
    scalar_registers: Count | None = None
    """AMD's SGPRs, per wavefront."""
    spilled_registers: Count | None = None
    """AMD's VGPR and SGPR spills; unknown on NVIDIA."""
    spill_store_count: Count | None = None
    """Instructions that store to local memory: spills, and arrays with a variable index."""
    spill_load_count: Count | None = None
    local_bytes: Count | None = None
    """Per thread: stack and spills on NVIDIA, scratch on AMD."""
    shared_bytes: Count | None = None
    """Per block, static and dynamic; LDS on AMD."""
    static_shared_bytes: Count | None = None
    """The static part."""
    tensor_memory_columns: Count | None = None
    """Tensor memory of a Blackwell block, of 512 columns."""
    theoretical_occupancy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Resident warps / warp slots."""
    occupancy_limits: tuple[Name, ...] = ()
    """What limits occupancy: any of `registers`, `shared memory`, `warps`, `blocks`."""
    instruction_count: Count | None = None
    instructions: dict[str, Count] = Field(default_factory=dict)
    """Number of instructions by kind, for example `tensor.HGMMA` or `global_load.128`."""
    compile_ns: dict[str, Count] = Field(default_factory=dict)
    """Compile time by stage, for example `ptx`; varies between runs."""
    code_bytes: Count | None = None
    code_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """sha256 of the machine code without line information, so that comments do not change it."""
    estimate: CodeEstimate | None = None
    """None for a target without a table of rates, or a launch whose grid is not known."""

    @model_validator(mode="after")
    def _facts_only_if_ok(self) -> Self:
        if (self.outcome is Outcome.OK) != (self.code_hash is not None):
            raise ValueError(
                f"{self.case_id} {self.function} {self.target}: outcome {self.outcome} and code "
                f"hash disagree"
            )
        return self


class ProfilerFinding(Part):
    """Advice of a profiler's rule about one kernel."""

    rule: Name
    message: Message
    estimated_speedup: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the time that can be saved, by the profiler's estimate."""
    is_estimate_of_a_part: bool = False
    """The estimate covers only the part of the kernel that the rule examines."""


class Counters(CaseResult):
    """Hardware counters of one kernel launch, read in a separate run; its times compare with no
    measurement.
    """

    function: Name
    """Name of the kernel on the device."""
    launch_index: Count = 0
    """Number of the launch within the call, from 0."""
    values: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """By name with unit, for example `dram_bytes`; shares are from 0 to 1."""
    findings: tuple[ProfilerFinding, ...] = ()


CULPRIT_SHARE = 0.3
"""Share of a step from which a function is named as where to look first."""
DATA_LOADER_MARK = "enumerate(DataLoader)"
"""How torch begins the annotations of a DataLoader's iterations."""
MOST_ROWS = 32
MOST_NAME = 500
"""Maximum length of a name; template arguments can be far longer."""

_Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Dimensions = Annotated[tuple[Count, ...], Field(max_length=3)]


class ProfiledActivity(Part):
    """All activities with one kind and name on one device."""

    kind: Literal["kernel", "memcpy", "memset", "operator"]
    """An operator on a CPU: torch's own, without nested calls."""
    name: Name
    device: Name
    """Number of the device, or `cpu`."""
    count: _Positive
    """Over all profiled calls."""
    total_ns: Count
    max_ns: Count | None = None
    """None for operators."""
    call_ns: tuple[Count, ...] = ()
    """Total of each profiled call; empty if unknown."""
    bytes: Count | None = None
    """Copied or filled, over all calls."""
    grid: _Dimensions = ()
    """Grid of the first launch, like the block, registers and shared memory."""
    block: _Dimensions = ()
    registers: Count | None = None
    """Per thread."""
    shared_bytes: Count | None = None
    """Per block."""
    estimated_occupancy: Annotated[float, Field(ge=0, le=1)] | None = None
    """torch's estimate, weighted by time; 0 for short kernels."""

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count

    @property
    def has_lasting_name(self) -> bool:
        """False for regions and graphs of torch.compile, which are numbered, and differ in every
        run.
        """
        return self.kind != "operator" or re.fullmatch(r"\w+::\w+", self.name) is not None


class CaseProfile(CaseResult):
    """Calls of one case and implementation under a profiler, on a hot cache; its times compare with
    no measurement.
    """

    call_count: _Positive
    span_ns: Count
    """From the start of the first activity to the end of the last."""
    busy_ns: Count
    """Time during which at least one activity ran."""
    launch_delay_ns: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Median time from a launch to the start of its kernel."""
    flop_count: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """FLOP that a call of a workload in eager torch executed, as torch.utils.flop_counter counts
    them.
    """
    operator_bytes: Annotated[dict[Name, Count], Field(max_length=MOST_ROWS)] = Field(
        default_factory=dict
    )
    """What torch's operators read and write in one call, by name; empty for compiled code."""
    elementwise_names: tuple[Name, ...] = ()
    """Of these operators, the ones that compute each element on its own."""
    rows: Annotated[tuple[ProfiledActivity, ...], Field(max_length=MOST_ROWS)] = ()
    """Longest total time first."""
    left_out_count: Count = 0
    """Number of further rows."""
    left_out_ns: Count = 0
    """Total time of further rows."""

    @model_validator(mode="after")
    def _busy_within_the_span(self) -> Self:
        if self.busy_ns > self.span_ns:
            raise ValueError(
                f"{self.case_id} {self.implementation}: busy {self.busy_ns} of {self.span_ns} ns"
            )
        return self


_Number = Annotated[float, Field(allow_inf_nan=False)] | None
_Label = Annotated[str, Field(max_length=500, pattern=r"^[^<>\x00-\x1f]*$")]
"""Part of a metric's name, which is shown as it is, also in HTML."""


class ImportedValue(CaseResult):
    """A number from another tool's file, which compares with that tool's; or one derived from a
    workload's time.
    """

    metric: _Label
    statistic: _Label
    """For example `median` or `p99`; `sample` for the median of the file's samples, `value` if it
    names none.
    """
    unit: _Label
    better: Better
    outcome: Outcome
    message: Message | None = None
    value: _Number = None
    """In the file's unit; None unless the outcome is `ok`."""
    low: _Number = None
    """First quartile of the samples, if the file has several."""
    high: _Number = None
    """Third quartile."""
    sample_count: Count | None = None
    is_control: bool = False
    """A row of a library, measured beside the code of the project."""
    code_hash: str | None = None
    """`CodeIdentity.text` of the kernel, if the repository was given."""

    @property
    def key(self) -> str:
        """Metric of the series."""
        if self.statistic == "value":
            title = self.metric
        else:
            title = f"{self.metric} {self.statistic}"
        return imported_key(title, self.unit, self.better)

    @model_validator(mode="after")
    def _a_value_only_if_ok(self) -> Self:
        if (self.outcome is Outcome.OK) != (self.value is not None):
            raise ValueError(
                f"{self.case_id} {self.key}: outcome {self.outcome} with value {self.value}"
            )
        return self
