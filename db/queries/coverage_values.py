"""Values of what stands measured: of each runner class its newest whole run, and how the cases in it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from roofwatch.collector.record.machine import Outcome


@dataclass(frozen=True)
class CaseStanding:
    """One case in one run, all of its implementations together."""

    case_id: str
    outcomes: frozenset[Outcome]
    """Empty where it was planned and no result came."""
    measurement_count: int
    degraded_count: int
    """Measurements with a block in which the device was held back, or shared."""


@dataclass(frozen=True)
class RunnerStanding:
    runner_class: str
    device_name: str
    result_times: tuple[datetime, ...]
    """When its newest runs began, of any kind, newest first; one at least."""
    newest_commit_at: datetime
    """When the newest commit was made that it measured."""
    run_id: str | None
    """Its newest run by itself of a clean work tree; None where there is none."""
    cases: tuple[CaseStanding, ...]
    """Of that run."""
