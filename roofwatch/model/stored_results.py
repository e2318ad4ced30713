"""What the queries return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import CommitRef, Pair, Series, SeriesKey
from roofwatch.model.machine import Ceiling, Configuration, Environment, Outcome
from roofwatch.model.provenance import LoadedFile
from roofwatch.model.record import Artefact, PairMember
from roofwatch.model.results import CaseProfile, Counters


@dataclass(frozen=True)
class RunSummary:
    run_id: str
    project: str
    commit: CommitRef
    runner_class: str
    device_name: str
    started_at: datetime
    finished_at: datetime
    harness_version: str
    is_dirty: bool
    outcome_counts: dict[str, int]
    """Measurements by outcome."""
    is_quarantined: bool = False
    """From an untrusted source: shown, but not counted."""
    is_pair_side: bool = False
    """One side of a pair: for a pull request or a calibration."""
    is_unreachable: bool = False
    """The branch was rewritten and no longer contains this commit."""


@dataclass(slots=True)
class MeasuredCase:
    """One measurement of a run; not frozen, which makes building the 4,000 of a large comparison
    twice as fast.
    """

    case_id: str
    kernel: str
    family: str
    shape: dict[str, int | str]
    dtype: str
    direction: str
    flop_count: float
    memory_bytes: float
    implementation: str
    timer: str
    cache: str
    """Cache state before each sample."""
    outcome: Outcome
    bound: str | None
    """`memory` or `compute`."""
    message: str | None
    median_ns: float | None
    low_ns: float | None
    """First quartile."""
    high_ns: float | None
    """Third quartile."""
    sample_count: int
    utilisation: float | None
    host_ns: float | None = None
    """Host time to issue a launch; None if the timer does not measure it."""
    peak_allocated_bytes: float | None = None
    ratio_to_reference: float | None = None
    """Time over that of the library's row in the same run."""
    accuracy_outcome: Outcome | None = None
    rmse_ratio: float | None = None
    """Largest error of any tensor."""
    is_profiled: bool = False

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation


@dataclass(frozen=True)
class StaticRow:
    """Compiler facts of one function for one target."""

    case_id: str
    implementation: str
    function: str
    target: str
    outcome: Outcome
    message: str | None
    configuration: Configuration
    registers: int | None
    spilled_registers: int | None
    local_bytes: int | None
    shared_bytes: int | None
    code_bytes: int | None
    code_hash: str | None

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation


@dataclass(frozen=True)
class ImportedPair:
    """A value of another tool in two runs; None on a side that lacks it or failed."""

    case_id: str
    implementation: str
    metric: str
    base_outcome: Outcome | None
    base: float | None
    head_outcome: Outcome | None
    head: float | None

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation

    @property
    def relative_change(self) -> float | None:
        """(head - base) / base."""
        if not self.base or self.head is None:
            return None
        return (self.head - self.base) / self.base


@dataclass(frozen=True)
class RunDetail:
    summary: RunSummary
    ceilings: tuple[Ceiling, ...]
    """Measured ones."""
    cases: tuple[MeasuredCase, ...]
    static_rows: tuple[StaticRow, ...]
    """Machine code that it compiled, else that of its commit."""
    environment: Environment | None = None
    pairing: PairMember | None = None
    source_digests: Mapping[str, str] = field(default_factory=dict)
    """As in the record, by kernel."""
    foreign_code: LoadedFile | None = None
    """A loaded file that is not of the commit, so that nothing here is its result."""


@dataclass(frozen=True)
class RunsOfRunner:
    """The runs of two commits on one runner class; both None if it has a run of one only."""

    runner_class: str
    base: RunDetail | None = None
    head: RunDetail | None = None


@dataclass(frozen=True)
class CaseOption:
    case_id: str
    kernel: str
    dtype: str
    family: str
    """Empty if no recent run has the case."""
    tags: tuple[str, ...]
    """`smoke`, `full` and others; empty if no recent run has the case."""
    costs: Mapping[str, float | None] = field(default_factory=dict)
    """Work of one launch by the metric of its rate, such as `flop_per_s`; None if no recent run has
    the case.
    """


@dataclass(frozen=True)
class FilterOptions:
    """Values that results of a project can be filtered by."""

    cases: tuple[CaseOption, ...]
    commits_by_branch: Mapping[str, frozenset[str]]
    """Measured commits (sha) by branch."""
    runner_classes: tuple[str, ...]
    commit_count: int = 0
    source_files: Mapping[str, str] = field(default_factory=dict)
    """Path from the repository root by kernel, from the newest run."""
    cpu_classes: frozenset[str] = frozenset()
    """Runner classes whose device is a CPU."""


@dataclass(frozen=True)
class FoundCommit:
    commit: CommitRef
    run_id: str
    """Newest run."""


@dataclass(frozen=True)
class TaggedCommit:
    """A git tag at a measured commit."""

    name: str
    commit: CommitRef


@dataclass(frozen=True)
class SearchResults:
    kernels: tuple[str, ...]
    cases: tuple[str, ...]
    commits: tuple[FoundCommit, ...]
    runner_classes: tuple[str, ...] = ()
    releases: tuple[TaggedCommit, ...] = ()


@dataclass(frozen=True)
class Trend:
    """Series over the commits of some dates, thinned for drawing."""

    series: tuple[Series, ...]
    """Series with points in these dates, in the order of the request."""
    places: Mapping[str, int]
    """Position of each point's commit (sha), from 0."""
    commit_count: int
    """Commits, before thinning."""
    run_count: int
    """Runs of the longest series, before thinning."""

    @property
    def is_thinned(self) -> bool:
        return self.run_count > max((len(series.points) for series in self.series), default=0)


@dataclass(frozen=True)
class CaseCoverage:
    """One case in one run, over all implementations."""

    case_id: str
    outcomes: frozenset[Outcome]
    """Empty if the case was planned and has no result."""
    measurement_count: int
    degraded_count: int
    """Measurements with a block in which the device was throttled or shared."""


@dataclass(frozen=True)
class RunnerCoverage:
    """The newest results of one runner class."""

    runner_class: str
    device_name: str
    result_times: tuple[datetime, ...]
    """Start times of the newest runs of any kind, newest first; at least one."""
    newest_commit_at: datetime
    """Commit date of the newest measured commit."""
    run_id: str | None
    """Newest run of a clean work tree outside a pair."""
    cases: tuple[CaseCoverage, ...]
    """Cases of that run."""


@dataclass(frozen=True)
class RecentSeries:
    """The times of one series in the newest runs of a runner class,
    for one timer and cache state; or values of another tool.
    """

    key: SeriesKey
    timing: str
    """Empty for another tool's."""
    places: tuple[int, ...]
    """Positions of its runs in `RecentRuns.commits`."""
    values: tuple[float, ...]
    """In the metric's unit; all above 0."""


@dataclass(frozen=True)
class RecentRuns:
    runner_class: str
    commits: tuple[CommitRef, ...]
    """One per run, oldest first."""
    series: tuple[RecentSeries, ...]
    pairs: tuple[Pair, ...] = ()
    """Of the newest commits; a block has its median only."""


@dataclass(frozen=True)
class RoofCell:
    """One case and implementation on one runner class, in some of its runs, oldest first."""

    key: SeriesKey
    """Of its time, or of a value of another tool."""
    dates: tuple[datetime, ...]
    """Of the commits with a value."""
    values: tuple[float, ...]
    """Empty if all runs failed."""
    utilisations: tuple[float | None, ...] = ()
    """Empty of another tool's values."""
    ratio_to_reference: float | None = None
    """Newest time over that of the library's row in the same run."""
    bound: str | None = None
    """`memory` or `compute`."""
    is_degraded: bool = False
    """The device was throttled or shared in the newest measurement."""
    outcome: Outcome = Outcome.OK
    """Of the newest measurement."""

    @property
    def utilisation(self) -> float | None:
        """Return the newest; None if it is unknown."""
        if self.utilisations:
            return self.utilisations[-1]
        return None


@dataclass(frozen=True)
class RunnerRun:
    """A run on the default branch."""

    run_id: UUID
    device_name: str
    started_at: datetime
    harness_version: str
    commit: CommitRef


@dataclass(frozen=True, kw_only=True)
class FleetRun(RunSummary):
    """A run with its machine and what it spent its time on."""

    environment: Environment
    spent_ns: Mapping[str, int]
    """Time by activity."""
    ceilings: tuple[Ceiling, ...]
    machine: str | None = None
    """The physical machine, as in the record."""

    @property
    def wall_ns(self) -> float:
        return (self.finished_at - self.started_at).total_seconds() * 1e9

    @property
    def device_ns(self) -> float:
        """Device time reserved, over all devices of the run."""
        return self.wall_ns * max(self.environment.device_count, 1)


@dataclass(frozen=True)
class KernelCost:
    """What one run spent on timed launches of one kernel."""

    run_id: str
    kernel: str
    family: str
    measurement_count: int
    degraded_count: int
    """Measurements with a block in which the device was throttled or shared."""
    timed_ns: float
    """Median time × launches, without the time between launches."""
    energy_j: float | None
    """Energy per launch × launches; None if unknown."""


@dataclass(frozen=True)
class CaseCost:
    """What several runs spent on one case and implementation."""

    case_id: str
    implementation: str
    run_count: int
    median_ns: float
    """Longest median of any run."""
    timed_ns: float
    energy_j: float | None


@dataclass(frozen=True)
class CountedRun:
    """Hardware counters of one case and implementation in one run."""

    case_id: str
    implementation: str
    runner_class: str
    commit: CommitRef
    counters: tuple[Counters, ...]
    """One per kernel launch, in order."""


@dataclass(frozen=True)
class ProfiledRun:
    """Profile of one case and implementation in one run."""

    runner_class: str
    commit: CommitRef
    profile: CaseProfile


@dataclass(frozen=True)
class StepShare:
    """Share of one function in a step of a workload."""

    case_id: str
    """Of the workload."""
    implementation: str
    function: str
    share: float
    low: float | None = None
    """First quartile of the recorded steps, if known."""
    high: float | None = None


@dataclass(frozen=True)
class KernelFunction:
    """A compiled function of one case and implementation."""

    case_id: str
    implementation: str
    function: str

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation


class StoredArtefact(Artefact):
    """A file that the record of a run names."""

    is_stored: bool
    """Its content was sent."""
