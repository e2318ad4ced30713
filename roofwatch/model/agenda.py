"""The agenda of a runner: what is known of a branch, and the jobs to measure next. Values only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import CommitRef

_MAX_REASON = 500


class JobKind(StrEnum):
    """Why to measure, the most valuable first."""

    CONFIRM = "confirm"
    """A suspicion: the last commit of the old level against the first of the new one."""
    LOCATE = "locate"
    """A confirmed change lies between commits that were not measured."""
    NEW = "new"
    """The newest commit was not measured."""
    BRIDGE = "bridge"
    """Driver, toolchain or machine changed: the last commit before it, in the new environment."""
    RECOVER = "recover"
    """The kernel of an open regression changed again."""
    CALIBRATE = "calibrate"
    """The noise floor is missing or old."""
    FILL = "fill"
    """The longest range of unmeasured commits."""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """The newest values of one series left their level."""

    value_count: int
    """Newest values that are off the level: 1, 2, 3 or 5."""
    log_change: float
    """ln(median of these values / level)."""
    noise_widths: float
    """Their distance from the level, in standard errors."""

    def in_words(self) -> str:
        """Size and evidence."""
        if self.value_count == 1:
            values = "value differs"
        else:
            values = f"{self.value_count} values differ"
        return (
            f"the newest {values} by {math.expm1(self.log_change):+.1%} from the level before, "
            f"{self.noise_widths:.1f} standard errors"
        )


@dataclass(frozen=True, kw_only=True)
class SuspectCase:
    """A suspicion of one case that no pair has decided, with the commits of its pair."""

    subject: CaseKey
    evidence: str
    """Size and evidence, in words."""
    weight: float
    """Distance from the old level, in standard errors."""
    base: CommitRef
    """Last commit of the old level."""
    head: CommitRef
    """First commit of the new level."""
    since: datetime | None = None
    """When the first value of the new level was measured."""
    is_given_up: bool = False
    """Its pairs could not decide it, so no more are measured."""


@dataclass(frozen=True, kw_only=True)
class ChangedRange:
    """A confirmed change of some cases, and the commits between which it lies."""

    subjects: frozenset[CaseKey]
    base: CommitRef
    head: CommitRef
    is_timed: bool = True
    """A time changed; False if compiling or checking a commit shows the change."""
    candidates: frozenset[str] | None = None
    """Shas whose sources of these kernels differ from the commit before; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class OpenRegression:
    kernel: str
    subjects: frozenset[CaseKey]
    commit: CommitRef
    changed_again_at: CommitRef | None = None
    """Newest commit that changed the code of the kernel, after the regression."""


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """A change of driver or toolchain, over which some cases were not measured yet."""

    commit: CommitRef
    """The last commit at which the cases were measured before the change."""
    subjects: frozenset[CaseKey]
    differences: tuple[str, ...]
    """In words, such as `driver 580 to 590`."""


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """What is known of one branch on one runner class."""

    commits: tuple[CommitRef, ...]
    """Of the branch, oldest first."""
    measured: frozenset[str]
    """Shas with a run on this runner class."""
    is_range: bool = False
    """The commits are a range that was asked for, so those before the first measured one count."""
    skipped: frozenset[str] = frozenset()
    """Shas that cannot be measured, or are built like the commit before."""
    paired: Mapping[CaseKey, int] = field(default_factory=dict)
    """Number of jobs that measured a base and a head as a pair, by their shas."""
    suspects: tuple[SuspectCase, ...] = ()
    ranges: tuple[ChangedRange, ...] = ()
    regressions: tuple[OpenRegression, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    """What was measured with another driver or toolchain and not with this one at that commit."""
    timed_at: Mapping[CaseKey, datetime] = field(default_factory=dict)
    """When each case was timed last."""
    calibrated_at: Mapping[CaseKey, datetime] = field(default_factory=dict)
    """When the noise floor of each case was measured last."""
    seconds_of_run: float = 600.0
    """Median wall time of a run."""
    seconds_of_case: float = 10.0
    """Median wall time of one case in a pair, both sides."""


@dataclass(frozen=True, kw_only=True)
class Job:
    kind: JobKind
    reason: str
    seconds: float
    """Expected wall time, from earlier runs."""
    head: CommitRef
    base: CommitRef | None = None
    """None for a run of one commit."""
    subjects: frozenset[CaseKey] = frozenset()
    """Cases to time; empty for all."""
    is_timed: bool = True
    """False if the kernels of the subjects are only compiled and checked."""

    @property
    def base_sha(self) -> str | None:
        if self.base is None:
            return None
        return self.base.sha

    @property
    def key(self) -> str:
        """Equal for two jobs that measure the same commits for the same purpose."""
        return f"{self.kind}:{self.base_sha or ''}:{self.head.sha}"

    def planned(self) -> "PlannedJob":
        """The job as the service stores it."""
        return PlannedJob(
            key=self.key,
            kind=self.kind,
            reason=self.reason[:_MAX_REASON],
            expected_s=self.seconds,
            base_sha=self.base_sha,
            head_sha=self.head.sha,
        )


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job as the service stores it."""

    key: str
    kind: JobKind
    reason: str
    expected_s: float
    base_sha: str | None
    head_sha: str


@dataclass(frozen=True, kw_only=True)
class StoredJob(PlannedJob):
    """A job of a runner class: planned, taken or done."""

    runner_class: str
    spent_s: float | None
    planned_at: datetime
    leased_until: datetime | None
    finished_at: datetime | None
    position: int = 0
    """Order among the open jobs of its runner class; below 0 if a person asked for it."""
    note: str | None = None
    """Why nothing was measured."""

    @property
    def is_requested(self) -> bool:
        return self.position < 0
