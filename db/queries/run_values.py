"""What queries say of one run and of what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import CommitRef


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
    """Nobody vouches for it, and nothing counts it."""
    is_pair_side: bool = False
    """Measured beside another commit, in one job."""
    is_unreachable: bool = False
    """Its branch was rewritten since, and no longer comes from this commit: nothing is compared with it."""


@dataclass(frozen=True)
class MeasuredCase:
    """One measurement of a run with its case: for comparison tables and rooflines."""

    case_id: str
    kernel: str
    family: str
    shape: dict[str, int | str]
    dtype: str
    direction: str
    flop_count: float
    memory_bytes: float
    implementation: str
    outcome: Outcome
    message: str | None
    median_ns: float | None
    low_ns: float | None
    high_ns: float | None
    sample_count: int
    bound: str | None
    utilisation: float | None
    rmse_ratio: float | None
    accuracy_outcome: Outcome | None
    timer: str
    cache: str
    """State of the cache before each sample."""
    host_ns: float | None = None
    """What the host takes to issue a launch; None where the timer does not say."""
    peak_allocated_bytes: float | None = None
    """The most memory that a launch takes; None where nobody counted."""


@dataclass(frozen=True)
class CeilingValue:
    resource: str
    level: str | None
    dtype: str | None
    per_s: float


@dataclass(frozen=True)
class StaticRow:
    """Facts of one compiled function for one target in one run."""

    case_id: str
    implementation: str
    function: str
    target: str
    outcome: Outcome
    message: str | None
    configuration: dict[str, str | int | float | bool | None]
    registers: int | None
    spilled_registers: int | None
    local_bytes: int | None
    shared_bytes: int | None
    code_bytes: int | None
    code_hash: str | None


@dataclass(frozen=True)
class RunDetail:
    summary: RunSummary
    ceilings: tuple[CeilingValue, ...]
    cases: tuple[MeasuredCase, ...]
    static_rows: tuple[StaticRow, ...]
