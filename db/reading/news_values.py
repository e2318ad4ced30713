"""What single runs brought, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime


@dataclass(frozen=True)
class JudgedRun:
    """A run that the judgement of a project takes in."""

    number: int
    place: int
    """First-parent count of its commit."""
    sha: str
    started_at: datetime
    measured_on: date
    runner_class: str
    is_pair: bool
    series_count: int


@dataclass(frozen=True)
class NewTime:
    run_number: int
    runner_class: str
    timing: str
    """Timer and cache state, as in `cupti, cold`."""
    median_ns: float | None
    """None where it failed."""


@dataclass(frozen=True)
class NewError:
    run_number: int
    tensor: str | None
    rmse_ratio: float | None
    """None where the check failed, or compared no tensor."""
    is_ok: bool


@dataclass
class News:
    """Of one case and implementation."""

    row_id: int
    """Of the case."""
    times: list[NewTime] = field(default_factory=list)
    errors: list[NewError] = field(default_factory=list)
    code: str | None = None
    """Fingerprint of the machine code; None where nothing was compiled."""
    has_counters: bool = False
