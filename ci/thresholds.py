"""The thresholds of every verdict, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """The practical thresholds and error rates of every verdict."""

    relative_change: float = 0.03
    """Pull request: a time that moved by less is not worth telling. The whole interval must lie beyond it, so the
    smallest change that is reliably called is this plus half an interval: 3 % calls the 5 % that tlx_benchmark and FLA
    gate on, where a threshold of 5 % would miss half of those."""

    trend_relative_change: float = 0.05
    """History: smallest step of a level. Points of a history come from different jobs, days and clocks, whose
    small offsets no number of samples averages out; hence more than in a pull request."""

    drift_relative_change: float = 0.03
    """History: smallest sum of a slow drift. It rests on all values since it began, so may be less than a step."""

    error_relative_change: float = 0.5
    """History: smallest change of a result's error. Another order of the same additions moves an error by a tenth or
    two; a precision that was lost doubles it at least."""

    memory_relative_change: float = 0.05
    """History and pull request: smallest change of the most memory that a launch takes. It is counted, not sampled, so
    no noise asks for this: what is a twentieth of a case's tensors and workspace is worth a person's time."""

    host_relative_change: float = 0.15
    """History: smallest step of the host's time of a launch. Another machine of one runner class, another load of it or
    another build of Python moves it by a tenth without any change of ours."""

    false_discovery_rate: float = 0.05
    """Expected share of false ones among the times that one pull request is told to have moved, and among the
    regressions that one night calls somebody for."""

    environment_share: float = 0.5
    """If at least this share of a runner class's time series moves at one commit, it is one event of the
    environment."""

    environment_min_series: int = 4
    """Fewer series that move together are as easily one change of code."""

    environment_min_kernels: int = 2
    """One kernel that moves at all its shapes is a change of that kernel."""
