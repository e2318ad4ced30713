"""Practical thresholds and error rates of all verdicts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Smallest changes worth reporting, as fractions, and error rates."""

    relative_change: float = 0.03
    """Pull request: change of a time. The whole interval must lie beyond it, so the smallest change that is reliably
    found is this plus half an interval: with 3 %, a slowdown of 5 %."""

    trend_relative_change: float = 0.05
    """History: step of a time. Points come from different jobs, days and clocks, whose small offsets do not average
    out, hence more than in a pull request."""

    drift_relative_change: float = 0.03
    """History: total of a slow drift. It rests on all values since it began, so it may be smaller than a step."""

    error_relative_change: float = 0.5
    """Change of a result's error. Another order of additions moves it by 10 to 20 %, and lost precision doubles it."""

    memory_relative_change: float = 0.05
    """Change of the peak memory of a launch. Memory is counted, so noise needs no threshold."""

    host_relative_change: float = 0.15
    """Change of the host time of a launch. Another machine, load or Python build moves it by 10 %."""

    false_discovery_rate: float = 0.05
    """Expected share of false ones among the changed times of a pull request, and among the alerts of a night."""

    environment_share: float = 0.5
    """Share of a runner class's time series that must change at one commit to be an environment event."""

    environment_min_series: int = 4
    """Fewer series that change together may be one change of code."""

    environment_min_kernels: int = 2
    """One kernel that changes at all its shapes is a change of that kernel."""
