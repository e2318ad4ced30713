"""What the queries about a fleet hand out: runs with their machines, and what was spent on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from roofwatch.collector.record.machine import Ceiling, Environment
from roofwatch.db.values import CommitRef


class RunsAsked(TypedDict, total=False):
    """Which runs are wanted, besides how many; as `list_fleet_runs` has it."""

    or_run: str | None
    or_commit: str | None
    runner_classes: tuple[str, ...]
    branches: tuple[str, ...]
    of_each_class: bool
    with_quarantine: bool


@dataclass(frozen=True)
class FleetRun:
    """One run: where, for how long, and what its time went into."""

    run_id: str
    commit: CommitRef
    environment: Environment
    started_at: datetime
    finished_at: datetime
    harness_version: str
    is_dirty: bool
    is_paired: bool
    """One side of a pair, which measures for a pull request or calibrates."""
    spent_ns: Mapping[str, int]
    """By activity; empty in a record of an older harness."""
    ceilings: tuple[Ceiling, ...]
    is_quarantined: bool = False
    """Nobody vouches for it: it is shown, and nothing counts it."""
    is_unreachable: bool = False
    """Its branch was rewritten since, and no longer comes from its commit."""

    @property
    def runner_class(self) -> str:
        return self.environment.runner_class

    @property
    def wall_ns(self) -> float:
        """From its start to its end."""
        return (self.finished_at - self.started_at).total_seconds() * 1e9

    @property
    def device_ns(self) -> float:
        """Time for which it held its devices, all of them together."""
        return self.wall_ns * max(self.environment.device_count, 1)


@dataclass(frozen=True)
class KernelCost:
    """What one run spent on launches of one kernel that were timed."""

    run_id: str
    kernel: str
    family: str
    measurement_count: int
    degraded_count: int
    """Measurements with a block in which the device was held back, or shared."""
    timed_ns: float
    """Median time × launches, over its measurements; what is done between launches is not in it."""
    energy_j: float | None
    """Energy of a launch × launches; None where no launch's energy is known."""


@dataclass(frozen=True)
class CaseCost:
    """The same of one case and implementation, over several runs."""

    case_id: str
    implementation: str
    run_count: int
    median_ns: float
    """Longest median time of a launch in any of the runs."""
    timed_ns: float
    energy_j: float | None
