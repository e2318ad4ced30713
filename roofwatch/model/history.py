"""Values of commits, series, change points, regressions and pairs, as queries return them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import (
    RATIO_TO,
    RATIO_TO_REFERENCE,
    SHARE_OF_STEP,
    TIME,
    Better,
    Layer,
    Metric,
    metric,
)
from roofwatch.model.verdict import Reason, Verdict


class Cause(StrEnum):
    CODE = "code"
    AUTOTUNE = "autotune"
    TOOLCHAIN = "toolchain"
    DRIVER = "driver"
    CLOCK = "clock"
    RUNNER = "runner"
    HARNESS = "harness"
    UNKNOWN = "unknown"


class RegressionState(StrEnum):
    OPEN = "open"
    DISMISSED = "dismissed"
    """A paired measurement did not confirm it."""
    NO_LONGER_FOUND = "no_longer_found"
    """It was certain enough for an alert, and a later analysis does not find it."""


class Scope(StrEnum):
    """What a token may do. Only `admin` includes the others, except `runner`."""

    INGEST = "ingest"
    READ = "read"
    TRIAGE = "triage"
    RUN = "run"
    """Queue jobs, which run code on runners."""
    RUNNER = "runner"
    """Take and finish queued jobs of one runner class, and nothing else."""
    ADMIN = "admin"


_FIRST_TIME_PLACE = 100_000_000
"""Larger places on a branch are seconds since 1970: no repository has so many commits."""


@dataclass(frozen=True, order=True, slots=True)
class CommitRef:
    """Ordered along the branch; by time if the results were imported without the repository."""

    first_parent_count: int
    sha: str
    author: str
    subject: str
    committed_at: datetime

    @property
    def short_sha(self) -> str:
        return self.sha[:8]

    @property
    def is_ordered_by_time(self) -> bool:
        """Whether its place is a time, so the number of commits before it is not known."""
        return self.first_parent_count >= _FIRST_TIME_PLACE


@dataclass(frozen=True, order=True, slots=True)
class MeasuredCommit(CommitRef):
    is_unreachable: bool = field(default=False, compare=False)
    """All of its runs are on a branch that was rewritten without it."""


@dataclass(frozen=True, order=True, slots=True)
class SeriesKey:
    """One metric of one case and implementation on one runner class.

    Static metrics have a `function` and a `target` instead of a runner class. Accuracy metrics have
    a `tensor`: an output or a gradient.
    """

    project: str
    case_id: str
    implementation: str
    metric: str
    runner_class: str = ""
    function: str = ""
    target: str = ""
    tensor: str = ""

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation

    @property
    def definition(self) -> Metric:
        return metric(self.metric)

    @property
    def kernel(self) -> str:
        """The first part of the case id."""
        return kernel_of(self.case_id)

    @property
    def is_share_of_step(self) -> bool:
        """Whether the values are a function's share of a workload's step."""
        return self.metric.startswith(SHARE_OF_STEP)

    @property
    def is_imported(self) -> bool:
        """Whether another tool measured the values."""
        return self.definition.layer is Layer.IMPORTED and not self.is_share_of_step

    @property
    def is_performance(self) -> bool:
        """Whether it is a time, or a value of another tool whose better direction is known."""
        if self.metric == TIME.key:
            return True
        is_judged = self.is_imported and self.definition.better is not Better.UNKNOWN
        # A ratio to a library would repeat the change of its time.
        return is_judged and not self.is_ratio_to_reference

    @property
    def is_ratio_to_reference(self) -> bool:
        """Whether the values are divided by those of a library in the same run."""
        return self.metric == RATIO_TO_REFERENCE or RATIO_TO in self.metric

    @property
    def label(self) -> str:
        """Short text for people, without metric and runner class."""
        parts = [self.case_id, self.implementation, self.function, self.target, self.tensor]
        return " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class RunSetting:
    """Software and machine of a run; a change can move all of its numbers."""

    harness_version: str
    driver_version: str | None = None
    compute_capability: str | None = None
    toolchain: tuple[tuple[str, str], ...] = ()
    """Versions of torch, Triton and CUDA, and compiler settings, by name."""
    machine: tuple[tuple[str, str], ...] = ()
    """Properties of the machine beyond its runner class, by name."""

    @property
    def software(self) -> tuple[object, ...]:
        """Driver and toolchain: runs of one commit with different ones may differ in time."""
        return self.driver_version, self.toolchain


@dataclass(frozen=True)
class TunedChoice:
    """A choice of Triton's autotuner."""

    function: str
    key: str
    """Key of the autotuner's cache."""
    configuration: str
    """`BLOCK=128, num_warps=4`."""


@dataclass(slots=True)
class SeriesPoint:
    """The value of one run; None unless the outcome is `ok`. Not frozen: a series has thousands."""

    commit: CommitRef
    run_id: str
    measured_at: datetime
    outcome: Outcome
    value: float | None
    low: float | None = None
    """First quartile of the samples, if any."""
    high: float | None = None
    """Third quartile."""
    code_hash: str | None = None
    message: str | None = None
    block_count: int | None = None
    """Blocks of samples."""
    timing: str = ""
    """Timer and cache state, for example `cupti, cold`; empty for metrics without them."""
    setting: RunSetting | None = None
    sm_clock_mhz: float | None = None
    """Median of the blocks; this and the next three only if the query asks for them."""
    temperature_c: float | None = None
    """Maximum of the blocks."""
    degraded_by: tuple[str, ...] = ()
    """Reasons why the device was slowed down or shared in any block."""
    choices: tuple[TunedChoice, ...] = ()


def timing_of(timer: str, cache: str) -> str:
    """Timer and cache state; times with different ones are not comparable."""
    return f"{timer}, {cache}"


@dataclass(frozen=True, slots=True)
class BandPoint:
    """Quantiles of a stretch of runs, at the commit in its middle."""

    commit: CommitRef
    low: float
    """5 % of the runs are below."""
    median: float
    high: float
    """5 % of the runs are above."""
    run_count: int
    """Runs with a value."""


@dataclass(frozen=True)
class Series:
    key: SeriesKey
    points: tuple[SeriesPoint, ...]
    """By commit, then by time."""
    band: tuple[BandPoint, ...] = ()
    """All runs of a long series, if only some of its points were read."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The first commit of a new level, or of a drift, of one series."""

    series: SeriesKey
    commit: CommitRef
    previous_commit: CommitRef
    """The last measured commit of the old level."""
    verdict: Verdict
    before: float | None
    after: float | None
    """Levels in the metric's unit; None if the outcome is not `ok`."""
    evidence: str
    """One sentence with numbers."""
    reason: Reason | None = None
    """Why an inconclusive change decides nothing; None of a change that does."""
    is_gradual: bool = False
    """A drift that begins at this commit; `after` is the latest level."""
    weekly_change: float | None = None
    """Relative change per week of a drift; None if its runs span less than a week."""
    standard_errors: float | None = None
    """Size of a step in standard errors; None for exact changes, such as machine code, and for
    drifts.
    """
    degraded_by: tuple[str, ...] = ()
    """Why the device was slowed down or shared in most runs before or after the change."""
    has_code: bool = False
    """Whether compiled code is known on both sides."""

    @property
    def relative_change(self) -> float | None:
        """(after − before) / before."""
        if not self.before or self.after is None:
            return None
        return (self.after - self.before) / self.before


@dataclass(frozen=True, slots=True)
class Outline:
    """The shape of a series around a change, for a small drawing."""

    values: tuple[float, ...]
    """By commit, in the metric's unit; of a long series, the median of each stretch of commits."""
    changed_at: int
    """Position of the first value of the new level, or of the drift."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible cause of a regression."""

    cause: Cause
    weight: float
    """Share among all possible causes, `unknown` included; they sum to 1."""
    sentence: str
    """The evidence, with numbers."""


@dataclass(frozen=True)
class Regression:
    """Change points with one cause; improvements too."""

    project: str
    commit: CommitRef
    """Most likely commit, or the last of a range; single change points may lie a commit or two
    away.
    """
    kernel: str
    """One or more names, or `*` for an event of the environment."""
    verdict: Verdict
    cause: Cause
    """The most likely, or `unknown`."""
    summary: str
    """One sentence: what changed, by how much, on how many series."""
    change_points: tuple[ChangePoint, ...]
    """The best evidence first: see `roofwatch.ci.history.regression`."""
    state: RegressionState = RegressionState.OPEN
    is_confirmed: bool = False
    """Deterministic (accuracy, machine code), or confirmed by a paired measurement."""
    suspects: tuple[Suspect, ...] = ()
    """The most likely first."""
    family: str = ""
    """Which series changed, in words; empty if no time changed."""
    typical_change: float | None = None
    """Median relative change of the times that changed."""
    change_spread: float | None = None
    """Half the interquartile range of these changes; None below three of them."""
    is_alert: bool = False
    """Confirmed, or significant under the false-discovery rate of all series."""
    recovered_at: CommitRef | None = None
    """The commit at which the old level was reached again, or the newest when it was no longer
    found.
    """
    outline: Outline | None = None
    """Of the series of the first change point; None if it has no numbers."""
    base: CommitRef = field(init=False)
    """Last measured commit without the change, which lies after it, up to `commit`."""
    commit_count: int | None = field(init=False)
    """Commits in that range; 1 once it is narrowed to `commit`, None if the order is by time."""

    def __post_init__(self) -> None:
        bases = [
            point.previous_commit for point in self.change_points if point.commit == self.commit
        ]
        base = max(bases, default=self.commit)
        count = max(1, self.commit.first_parent_count - base.first_parent_count)
        # With imported times as places, the number of commits in between is not known.
        is_known = not self.commit.is_ordered_by_time or base == self.commit
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "commit_count", count if is_known else None)

    @property
    def is_range(self) -> bool:
        """Whether several commits may be the cause; a drift has no single one."""
        return self.commit_count != 1 and not self.change_points[0].is_gradual

    @property
    def range_text(self) -> str:
        """Which commit changed it, or in which range it lies until that is narrowed."""
        if not self.is_range:
            return self.commit.short_sha
        if self.commit_count is None:
            count = "a commit"
        else:
            count = f"one of {self.commit_count} commits"
        return f"{count} after {self.base.short_sha}, up to {self.commit.short_sha}"

    @property
    def ended(self) -> str | None:
        """How it ended, with commit and date; None if it did not."""
        if self.recovered_at is None:
            return None
        if self.state is RegressionState.NO_LONGER_FOUND:
            how = "no longer found"
        else:
            how = "recovered"
        return f"{how} at {self.recovered_at.short_sha} ({self.recovered_at.committed_at:%Y-%m-%d})"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Unique among the regressions of an analysis."""
        return self.project, self.commit.sha, self.kernel, str(self.verdict)

    @property
    def place(self) -> tuple[int, str, str, str]:
        """Sort key: the newest commit first, then kernel and verdict."""
        return -self.commit.first_parent_count, self.commit.sha, self.kernel, str(self.verdict)


@dataclass(frozen=True)
class Pair:
    """One case and implementation, measured on base and head in one job with interleaved blocks."""

    project: str
    pair_id: str
    base: CommitRef
    head: CommitRef
    case_id: str
    implementation: str
    runner_class: str
    measured_at: datetime
    """Start of the head's run."""
    base_blocks_ns: tuple[tuple[float, ...], ...]
    head_blocks_ns: tuple[tuple[float, ...], ...]
    timing: str = ""
    """Timer and cache state, for example `cupti, cold`."""
    harness_version: str = ""
    preset: str | None = None
    """Sampling preset of the head's run, if recorded."""
    is_same_code: bool = False
    """Whether both sides are known to run the same code, on the same machine."""

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation

    @property
    def is_whole(self) -> bool:
        """Whether each block has its partner: a pair that was cut short has blocks without one."""
        return len(self.base_blocks_ns) == len(self.head_blocks_ns) > 0


OUTCOMES: Mapping[str, Outcome] = {outcome.value: outcome for outcome in Outcome}
"""For thousands of rows, five times as fast as a call of `Outcome`."""
BOUNDS: Mapping[bool | None, str | None] = {None: None, True: "memory", False: "compute"}
"""Words for `is_memory_bound` of a measurement."""
