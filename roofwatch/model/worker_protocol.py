"""Messages between the collector and its worker processes: one JSON document per line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from roofwatch.model.case_key import kernel_of
from roofwatch.model.check_report import CheckReport, Layout
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Ceiling, Configuration, Environment, Outcome
from roofwatch.model.measurement import Autotuning, Block, CacheState, CaseRecord, MemoryUse, Timer
from roofwatch.model.proofs import CaseProof
from roofwatch.model.provenance import Origin
from roofwatch.model.regime import Regime
from roofwatch.model.results import CaseProfile, StaticFacts, TensorError
from roofwatch.model.source_line import SourceLine
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.timing_method import ChosenMethod, SamplingPlan, TimingMethod
from roofwatch.model.tuning import ConfiguredCode
from roofwatch.model.worker_mode import Mode


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# --- the first message to a worker, and what its reply describes


class RankPlace(_Message):
    """One of several workers that do every job together."""

    index: int
    count: int
    rendezvous: Path
    """File through which they find each other."""


class WorkerSettings(_Message):
    source: SuiteSource
    mode: Mode = Mode.DEVICE
    device: str | None = None
    """`cpu` or `cuda`; None takes a GPU if torch sees one."""
    thread_count: int | None = None
    """Torch threads; None leaves torch's default."""
    rank: RankPlace | None = None
    memory_share: float = 1.0
    """Share of the machine's memory, on a CPU; an allocation beyond it fails."""
    cache_folder: Path | None = None
    """Cache of Triton and TorchInductor; None takes the user's."""


class ImplementationInfo(_Message):
    name: str
    language: Literal["torch", "triton", "cuda"]
    directions: tuple[Literal["fwd", "bwd"], ...]
    is_compiled: bool
    unsupported_targets: dict[str, str]
    configs: tuple[Configuration, ...] = ()
    source_lines: tuple[SourceLine, ...] = ()


CaseKind = Literal["declared", "edge", "stand_in"]
"""An edge is an odd, single or empty size; a stand-in is a declared case at small lengths."""


class CheckableCase(_Message):
    case_id: str
    kind: CaseKind
    direction: Literal["fwd", "bwd"]
    tags: tuple[str, ...]
    stand_in_id: str
    """Case to check instead in Triton's interpreter."""
    rank_count: int


class KernelInfo(_Message):
    name: str
    family: str
    formula: str
    source: str
    cases: tuple[CaseRecord, ...]
    implementations: tuple[ImplementationInfo, ...]
    checkable: tuple[CheckableCase, ...] = ()
    """Each case once, with its first kind."""
    rank_dimension: str | None = None

    @property
    def edge_count(self) -> int:
        """Number of cases that are checked but never timed."""
        return sum(case.kind == "edge" for case in self.checkable)

    def rank_count(self, case: CaseRecord) -> int:
        """Number of workers that do the case's jobs together."""
        if self.rank_dimension is None:
            return 1
        return int(case.shape[self.rank_dimension])


class LoadedModule(_Message):
    """A module or shared library of the measured project that a worker has loaded."""

    module: str
    file: str
    origin: Origin
    size_bytes: int
    modified_ns: int


class SuiteInfo(_Message):
    """A loaded suite."""

    device: str
    kernels: tuple[KernelInfo, ...]


# --- jobs


@dataclass(frozen=True, order=True)
class Subject:
    """A case and one of its implementations."""

    case_id: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.case_id} {self.implementation}"

    @property
    def named(self) -> dict[str, str]:
        return {"case_id": self.case_id, "implementation": self.implementation}


class DescribeSources(_Message):
    job: Literal["describe_sources"] = "describe_sources"
    kernels: tuple[str, ...] | None = None
    """None for all."""
    of_implementations: bool = False
    """Also digest what each implementation uses."""


class DescribeEnvironment(_Message):
    job: Literal["describe_environment"] = "describe_environment"


class MeasureCeilings(_Message):
    job: Literal["measure_ceilings"] = "measure_ceilings"
    dtypes: tuple[str, ...]
    timer: Timer


class ChooseTiming(_Message):
    """Find a timer and cache state that work here."""

    job: Literal["choose_timing"] = "choose_timing"
    timer: Timer | None = None
    cache: CacheState | None = None


class CaseJob(_Message):
    """A job on one case and implementation."""

    case_id: str
    implementation: str
    rank_count: int = 1
    """Number of processes that do it together."""
    configuration: Configuration = {}
    """Further arguments of the launcher."""
    pinned: tuple[Autotuning, ...] = ()
    """What autotuned functions use instead of a choice of their own."""

    def __hash__(self) -> int:
        # a configuration is a dictionary, which has no hash; few jobs share all of these
        return hash((type(self), self.case_id, self.implementation))

    @property
    def subject(self) -> Subject:
        return Subject(self.case_id, self.implementation)

    @property
    def group(self) -> str:
        """Jobs of one group share work: the implementations of a case its inputs, reference and
        baseline.
        """
        return self.case_id


class CheckAccuracy(CaseJob):
    job: Literal["check_accuracy"] = "check_accuracy"
    layout: Layout | None = None
    regime: Regime | None = None
    with_regimes: bool = False
    """Measure the accuracy with other values too, if the declared ones pass."""
    is_exact: bool = False
    """The case may be an edge or a stand-in. Otherwise, Triton's interpreter checks the stand-in of
    the case.
    """


class CompileStatic(CaseJob):
    job: Literal["compile_static"] = "compile_static"
    targets: tuple[str, ...]
    time_limit_s: float | None = None
    """After which the rest is not compiled, so that there is a partial answer."""

    @property
    def group(self) -> str:
        """The kernel, whose cases share code that is compiled once."""
        return kernel_of(self.case_id)


class CompileAhead(CaseJob):
    """Fill the compilers' caches with what a call needs on this machine's GPU."""

    job: Literal["compile_ahead"] = "compile_ahead"
    target: str

    @property
    def group(self) -> str:
        return kernel_of(self.case_id)


class CompileConfigurations(CaseJob):
    """Compile a case in given configurations, or in all of its spec or its autotuner."""

    job: Literal["compile_configurations"] = "compile_configurations"
    target: str
    configurations: tuple[Configuration, ...] = ()


class ProveCase(CaseJob):
    job: Literal["prove_case"] = "prove_case"
    targets: tuple[str, ...]
    """The first that the kernels compile for counts."""

    @property
    def group(self) -> str:
        return kernel_of(self.case_id)


class PrepareCall(CaseJob):
    """Call once, so that torch.compile and the autotuner are done with it in this process."""

    job: Literal["prepare_call"] = "prepare_call"


class TimeBlock(CaseJob):
    job: Literal["time_block"] = "time_block"
    plan: SamplingPlan
    method: TimingMethod | None = None
    launches_per_sample: int | None = None


class ProfileCalls(CaseJob):
    """Make some calls under a profiler, in a process that has timed nothing."""

    job: Literal["profile_calls"] = "profile_calls"


Job = (
    DescribeSources
    | DescribeEnvironment
    | MeasureCeilings
    | ChooseTiming
    | CheckAccuracy
    | CompileStatic
    | CompileAhead
    | CompileConfigurations
    | ProveCase
    | PrepareCall
    | TimeBlock
    | ProfileCalls
)


# --- replies


class Failure(_Message):
    """How a kernel failed."""

    outcome: Outcome
    message: str
    traceback: str | None = None


class TimedBlock(_Message):
    block: Block
    launches_per_sample: int
    method: TimingMethod
    memory: MemoryUse | None = None
    """None on a CPU."""
    autotuning: tuple[Autotuning, ...] = ()
    began_ns: int
    """Start of the first sample on the monotonic clock, which all processes of a machine share."""
    ended_ns: int
    warm_up_ns: int = 0
    """Wall time of untimed launches."""

    @property
    def timed_ns(self) -> int:
        """Wall time of sampling, including the work around each launch."""
        return self.ended_ns - self.began_ns


class Checked(_Message):
    report: CheckReport
    layouts: tuple[Layout, ...] = ()
    """Layouts to check next."""
    regimes: tuple[Regime, ...] = ()
    """Other values to check next."""
    errors: tuple[TensorError, ...] = ()
    """With these values, if the job asked for them."""


class Reply(_Message):
    """One field is set, besides `loaded` and those that belong to another one."""

    suite: SuiteInfo | None = None
    """The first message of a worker."""
    error: str | None = None
    """Why the suite cannot be loaded, or no timer be chosen."""
    source_digests: dict[str, str] | None = None
    """By kernel; with `host_digests`."""
    host_digests: dict[str, str] | None = None
    implementation_digests: dict[str, str] = Field(default_factory=dict)
    """By `kernel/implementation`."""
    environment: Environment | None = None
    device_uuid: str | None = None
    """UUID of torch's GPU; stored in no record."""
    ceilings: tuple[Ceiling, ...] | None = None
    chosen: ChosenMethod | None = None
    checked: Checked | None = None
    static_facts: tuple[StaticFacts, ...] | None = None
    configured: tuple[ConfiguredCode, ...] | None = None
    proof: CaseProof | None = None
    autotuning: tuple[Autotuning, ...] = ()
    """Choices of a call that was prepared."""
    block: TimedBlock | None = None
    profile: CaseProfile | None = None
    failure: Failure | None = None
    loaded: tuple[LoadedModule, ...] = ()
    """What was loaded since the previous reply."""
    tracing_ns: int = 0
    """Time spent to find it."""


def machine_error(problem: str, failure: Failure | None, device: str) -> CollectorError:
    """Make a one-line error with the worker's reason and a way out."""
    reason: str = "unknown reason"
    if failure is not None:
        reason = next(iter(failure.message.splitlines()), failure.outcome)
    way_out = "check the GPU with nvidia-smi or rocm-smi, or measure without it: --device cpu"
    if device == "cpu":
        way_out = "check the memory and limits of this machine"
    return CollectorError(f"{problem}: {reason}; {way_out}")
