"""What queries hand out: frozen values, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Metric, metric


class Cause(StrEnum):
    """Why a regression happened, as far as the evidence goes."""

    CODE = "code"
    AUTOTUNE = "autotune"
    TOOLCHAIN = "toolchain"
    DRIVER = "driver"
    CLOCK = "clock"
    RUNNER = "runner"
    HARNESS = "harness"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"


class RegressionState(StrEnum):
    OPEN = "open"
    DISMISSED = "dismissed"
    """Measured again base against head, and not there: it was noise."""


@dataclass(frozen=True, order=True, slots=True)
class CommitRef:
    """Ordered along the branch."""

    first_parent_count: int
    sha: str
    author: str
    subject: str
    committed_at: datetime

    @property
    def short_sha(self) -> str:
        return self.sha[:8]


@dataclass(frozen=True, order=True, slots=True)
class MeasuredCommit(CommitRef):
    """One that has runs."""

    is_unreachable: bool = field(default=False, compare=False)
    """Its branch was rewritten since, and no longer comes from it: so of each of its runs."""


@dataclass(frozen=True, order=True, slots=True)
class SeriesKey:
    """One metric of one case and implementation on one runner class.

    For static metrics `function` and `target` say which compiled code, and `runner_class` is empty: machine code
    does not depend on the runner. For accuracy `tensor` says which output or gradient.
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
    def definition(self) -> Metric:
        return metric(self.metric)

    @property
    def kernel(self) -> str:
        """The first part of the case id."""
        return self.case_id.split("/", 1)[0]

    @property
    def label(self) -> str:
        """Short text for a person: case, implementation and what tells it apart."""
        parts = [self.case_id, self.implementation, self.function, self.target, self.tensor]
        return " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class RunSetting:
    """What a run was measured with: whatever of it changes may move all of the run's numbers at once."""

    harness_version: str
    driver_version: str | None = None
    compute_capability: str | None = None
    toolchain: tuple[tuple[str, str], ...] = ()
    """Versions of what compiles and runs the kernels, and the compiler's settings, by name."""
    machine: tuple[tuple[str, str], ...] = ()
    """What else is known of the machine beyond its runner class, by name."""


@dataclass(frozen=True)
class TunedChoice:
    """What Triton's autotuner chose."""

    function: str
    key: str
    """What the choice depends on."""
    configuration: str
    """`BLOCK=128, num_warps=4`."""


@dataclass(frozen=True)
class SeriesPoint:
    """One run's value. `value` is None exactly where the outcome is not `ok`."""

    commit: CommitRef
    run_id: str
    measured_at: datetime
    outcome: Outcome
    value: float | None
    low: float | None = None
    """First quartile of the samples, where there are samples."""
    high: float | None = None
    """Third quartile."""
    code_hash: str | None = None
    message: str | None = None
    block_count: int | None = None
    """Blocks of samples behind a time: how often it was measured anew."""
    setting: RunSetting | None = None
    sm_clock_mhz: float | None = None
    """Median of the blocks' clocks, where they were read and asked for."""
    temperature_c: float | None = None
    """Highest of any block, likewise."""
    degraded_by: tuple[str, ...] = ()
    """What held the device back, or shared it, in any block; if asked for."""
    choices: tuple[TunedChoice, ...] = ()
    """Of the autotuner, if asked for."""
    timing: str = ""
    """Timer and cache state, as in `cupti, cold`; empty where nothing is timed. Of two, numbers do not compare."""


def timing_of(timer: str, cache: str) -> str:
    """What a time was measured by: of two that differ in it, numbers do not compare."""
    return f"{timer}, {cache}"


@dataclass(frozen=True)
class Series:
    key: SeriesKey
    points: tuple[SeriesPoint, ...]
    """In the order of commits, then of time."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The first commit of a new level of one series, or of a drift."""

    series: SeriesKey
    commit: CommitRef
    previous_commit: CommitRef
    """The last commit of the old level that was measured: what to compare against."""
    verdict: Verdict
    before: float | None
    after: float | None
    """Levels in the metric's unit; None where the side has no value because the outcome is not `ok`."""
    evidence: str
    """One sentence with numbers."""
    is_gradual: bool = False
    """No step: from this commit on it moves little by little, and `after` is where it has come to."""

    @property
    def relative_change(self) -> float | None:
        """(after − before) / before."""
        if not self.before or self.after is None:
            return None
        return (self.after - self.before) / self.before


@dataclass(frozen=True, slots=True)
class Suspect:
    """One possible cause of a regression."""

    cause: Cause
    weight: float
    """Its share of all that may have done it, `unknown` among these; all shares together are 1."""
    sentence: str
    """What speaks for it, with numbers."""


@dataclass(frozen=True)
class Regression:
    """Change points of one cause: what a person is told once. Improvements too."""

    project: str
    commit: CommitRef
    """Where the change points, all taken together, place it; single ones may lie a commit or two away."""
    kernel: str
    """Its name, several names, or `*` for an event of the environment."""
    verdict: Verdict
    cause: Cause
    """The likeliest, unless it is no likelier than what is not known."""
    summary: str
    """One sentence: what moved, by how much, on how many series."""
    change_points: tuple[ChangePoint, ...]
    state: RegressionState = RegressionState.OPEN
    is_confirmed: bool = False
    """Deterministic (accuracy, machine code), or seen again in a paired measurement."""
    suspects: tuple[Suspect, ...] = ()
    """Possible causes, the likeliest first."""
    family: str = ""
    """Which series moved, of how many alike, in words; empty where no time moved."""
    typical_change: float | None = None
    """Median relative change of the times that moved."""
    change_spread: float | None = None
    """Half the distance between the quartiles of those changes; None below three of them."""
    is_alert: bool = False
    """Sure enough to call somebody: confirmed, or still standing when the false ones among all that a night's series
    tell are held at their rate."""
    recovered_at: CommitRef | None = None
    """The commit by which what moved is back where it was."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from all others of one judgement."""
        return self.project, self.commit.sha, self.kernel, str(self.verdict)

    @property
    def place(self) -> tuple[int, str, str, str]:
        """Where it stands in a list: the newest commit first, then by kernel and verdict."""
        return -self.commit.first_parent_count, self.commit.sha, self.kernel, str(self.verdict)


@dataclass(frozen=True)
class Pair:
    """One case and implementation measured on both sides in one job, blocks interleaved: block i of the base ran
    next to block i of the head.
    """

    project: str
    pair_id: str
    base: CommitRef
    head: CommitRef
    case_id: str
    implementation: str
    runner_class: str
    measured_at: datetime
    """When the head's run began."""
    base_blocks_ns: tuple[tuple[float, ...], ...]
    head_blocks_ns: tuple[tuple[float, ...], ...]
    timing: str = ""
    """Timer and cache state, as in `cupti, cold`."""
    harness_version: str = ""
    preset: str | None = None
    """How long was sampled; None where the head's record does not say."""


def bound_of(*, is_memory_bound: bool | None) -> Literal["memory", "compute"] | None:
    """The word for what is stored."""
    if is_memory_bound is None:
        return None
    return "memory" if is_memory_bound else "compute"


class BisectionState(StrEnum):
    """How far a bisection is."""

    REQUESTED = "requested"
    """Waiting for a runner."""
    RUNNING = "running"
    FOUND = "found"
    """One commit was found."""
    NARROWED = "narrowed"
    """One of several commits; those in between cannot be measured."""
    UNDECIDED = "undecided"
    """The budget was spent first."""
    NO_CHANGE = "no_change"
    """The two ends do not differ."""
    FAILED = "failed"


@dataclass(frozen=True)
class BisectionRange:
    """What to bisect."""

    project: str
    case_id: str
    implementation: str | None
    """None if the case has only one."""
    good_sha: str
    bad_sha: str
    runner_class: str | None = None
    """Runner class to measure on; None for any."""
