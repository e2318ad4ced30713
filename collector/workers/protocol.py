"""Messages between the collector and its worker processes: one JSON document per line."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from roofwatch.collector.accuracy.check_report import CheckReport, Layout
from roofwatch.collector.compile.sources import SuiteSources
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Ceiling, Environment, Outcome
from roofwatch.collector.record.measurement import Autotuning, Block, CacheState, CaseRecord, MemoryUse, Timer
from roofwatch.collector.record.record import SourceLine
from roofwatch.collector.record.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.timing.method import ChosenMethod, SamplingPlan, TimingMethod


class Mode(StrEnum):
    DEVICE = "device"
    """Runs kernels on the run's device, and compiles."""
    INTERPRETER = "interpreter"
    """Runs Triton code in its interpreter on the CPU, for accuracy alone: it is never timed."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RankPlace(_Message):
    """Which one a worker is of several that do every job together."""

    index: int
    count: int
    rendezvous: Path
    """File in which they find each other."""


class WorkerSettings(_Message):
    """First line that a worker reads."""

    mode: Mode
    source: SuiteSource
    device: str | None
    """None: a GPU where torch sees one, else the CPU."""
    thread_count: int | None
    rank: RankPlace | None = None
    """None: it works alone."""
    memory_share: float = 1.0
    """Of the machine's memory, where others work beside it."""
    cache_folder: str | None = None
    """Where Triton and TorchInductor keep what they compiled and tuned; None: where they always do."""


class ImplementationInfo(_Message):
    name: str
    language: Literal["torch", "triton", "cuda"]
    directions: tuple[Literal["fwd", "bwd"], ...]
    is_compiled: bool
    is_deterministic: bool
    unsupported_targets: dict[str, str]
    source_lines: tuple[SourceLine, ...] = ()
    """Where what is called stands, and what Triton compiles for it."""


class CaseKind(StrEnum):
    DECLARED = "declared"
    """As it is measured."""
    STAND_IN = "stand_in"
    """The same at small lengths, for a machine without a GPU."""
    EDGE = "edge"
    """An odd, single or empty size."""


class CheckableCase(_Message):
    """A case that the full check can take."""

    case_id: str
    kind: CaseKind
    direction: Literal["fwd", "bwd"]
    tags: tuple[str, ...]
    stand_in_id: str
    """What is checked in its place in Triton's interpreter."""
    rank_count: int


class KernelInfo(_Message):
    name: str
    family: str
    formula: str
    source: str
    cases: tuple[CaseRecord, ...]
    edge_ids: tuple[str, ...]
    """Cases that are checked and never timed."""
    implementations: tuple[ImplementationInfo, ...]
    checkable: tuple[CheckableCase, ...] = ()
    """Each case once, under the first kind that it is of."""
    rank_dimension: str | None = None

    def rank_count(self, case: CaseRecord) -> int:
        """Workers that do the case's jobs together."""
        return 1 if self.rank_dimension is None else int(case.shape[self.rank_dimension])


class SuiteInfo(_Message):
    """What a worker says once it has loaded its suite; `error` in place of kernels where it could not."""

    device: str
    kernels: tuple[KernelInfo, ...]
    error: str | None = None


class DescribeSources(_Message):
    job: Literal["describe_sources"] = "describe_sources"


class DescribeEnvironment(_Message):
    job: Literal["describe_environment"] = "describe_environment"


class MeasureCeilings(_Message):
    job: Literal["measure_ceilings"] = "measure_ceilings"
    dtypes: tuple[str, ...]
    timer: Timer | None = None
    """That of the run; what every device of its kind offers if left out."""


class ChooseTiming(_Message):
    """Find out which timer works here; by name, only that."""

    job: Literal["choose_timing"] = "choose_timing"
    timer: Timer | None = None
    cache: CacheState | None = None
    touched_bytes: tuple[float, ...] = ()
    """By a launch of each case that is to be timed; one of them must be possible. Empty where they are not known."""


class TimingChoice(_Message):
    """The method of a run, or why there is none."""

    chosen: ChosenMethod | None = None
    error: str | None = None


class CheckAccuracy(_Message):
    job: Literal["check_accuracy"] = "check_accuracy"
    case_id: str
    implementation: str


class FullCheck(_Message):
    """Check exactly this case, which may be an edge or a stand-in, and explain what is wrong."""

    job: Literal["full_check"] = "full_check"
    case_id: str
    implementation: str
    layout: Layout | None = None


class CompileStatic(_Message):
    job: Literal["compile_static"] = "compile_static"
    case_id: str
    implementation: str
    targets: tuple[str, ...]


class TimeBlock(_Message):
    job: Literal["time_block"] = "time_block"
    case_id: str
    implementation: str
    plan: SamplingPlan
    method: TimingMethod | None = None
    """What every device of its kind offers if left out."""
    launches_per_sample: int | None = None


class ProfileCalls(_Message):
    """Make some calls under a profiler: for a process that has timed nothing."""

    job: Literal["profile_calls"] = "profile_calls"
    case_id: str
    implementation: str


Job = (
    DescribeSources
    | DescribeEnvironment
    | MeasureCeilings
    | ChooseTiming
    | CheckAccuracy
    | FullCheck
    | CompileStatic
    | TimeBlock
    | ProfileCalls
)


class Failure(_Message):
    """A kernel failed: data, not an error of the collector."""

    outcome: Outcome
    message: str
    must_restart: bool = False
    """Whatever the outcome: what the process has of the device serves no other job any more."""


class MeasuredCeiling(_Message):
    """A ceiling, and when it was measured, by the monotonic clock."""

    ceiling: Ceiling
    began_ns: int
    ended_ns: int


class TimedBlock(_Message):
    block: Block
    launches_per_sample: int
    method: TimingMethod
    memory: MemoryUse | None = None
    """What a launch takes of the device's memory; None on a CPU."""
    autotuning: tuple[Autotuning, ...] = ()
    """What Triton's autotuner chose for the call."""
    began_ns: int
    """When the first sample began, by the monotonic clock, which all processes of a machine share."""
    ended_ns: int
    """When the last one had ended."""
    warm_up_ns: int = 0
    """Wall time of untimed launches."""

    @property
    def timed_ns(self) -> int:
        """Wall time of taking the samples, whatever is done around each launch included."""
        return self.ended_ns - self.began_ns


class FullyChecked(_Message):
    report: CheckReport
    layouts: tuple[Layout, ...]
    """To be checked next; none of an edge, nor where the case itself is wrong."""


class Reply(_Message):
    """Exactly one field is set, except that `environment` comes with the device's UUID."""

    suite_sources: SuiteSources | None = None
    environment: Environment | None = None
    device_uuid: str | None = None
    """Of the GPU that torch uses, as it gives it; of no interest outside of this machine, and in no record."""
    ceilings: tuple[MeasuredCeiling, ...] | None = None
    timing: TimingChoice | None = None
    accuracy: Accuracy | None = None
    fully_checked: FullyChecked | None = None
    static_facts: tuple[StaticFacts, ...] | None = None
    block: TimedBlock | None = None
    profile: CaseProfile | None = None
    failure: Failure | None = None


def explained(failure: Failure | None, limit: str) -> Failure | None:
    """Why a job failed; where it was not done in time, with the limit that it met, in words."""
    if failure is None or failure.outcome is not Outcome.TIMED_OUT:
        return failure
    return failure.model_copy(update={"message": f"{failure.message}: {limit}"})


def check_limit(timeout_s: float) -> str:
    """What a check of results has, and who may change it."""
    return (
        f"a check has {timeout_s:g} s to compile, to tune and to evaluate its reference; one that is slower and does "
        "not hang takes a larger --check-timeout"
    )


def compile_limit(timeout_s: float) -> str:
    """What compiling one case and implementation for all targets has, and who may change it."""
    return (
        f"one case has {timeout_s:g} s to compile for all targets, in every configuration of its autotuner; one that "
        "takes longer takes a larger --compile-timeout"
    )


def machine_error(what: str, failure: Failure | None, device: str) -> CollectorError:
    """One line: what cannot be done, why, and the way out.

    Args:
        what: That cannot be done.
        failure: What the worker said.
        device: That was to be measured.
    """
    why = "the worker did not say why" if failure is None else next(iter(failure.message.splitlines()), failure.outcome)
    way_out = (
        "see to the memory and the limits of this machine"
        if device == "cpu"
        else "see whether the GPU works and who uses it (nvidia-smi or rocm-smi), or measure without it: --device cpu"
    )
    return CollectorError(f"{what}: {why}; {way_out}")
