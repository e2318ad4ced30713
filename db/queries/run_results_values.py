"""What single runs brought, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from types import MappingProxyType

_NOTHING: Mapping[str, float] = MappingProxyType({})
"""One for all: there may be half a million."""


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
    beside: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """What was measured beside it and asked for, by metric."""
    relative_spread: float | None = None
    """Distance between the quartiles over the median; None where it failed."""
    block_count: int | None = None


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
    has_witnesses: bool = False
    """Hardware counters or a profile: they say what may have caused a step that was told already."""
