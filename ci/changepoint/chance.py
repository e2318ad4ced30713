"""How often noise alone shows a step, or a drift, as large as one that was found. Pure.

Student's t of the difference of two levels, in noise whose neighbours are correlated by ρ. The
error of a level grows as if there were (1 - ρ) / (1 + ρ) times as many values, and the error of the
noise's width as if there were (1 - ρ²) / (1 + ρ²) times as many (Bartlett 1935 and 1946, for an
AR(1) process). ρ is taken two standard errors above its estimate, because a step fitted to a
wandering series hides its wandering. All positions of the series are counted (Bonferroni), because
the largest step was picked. docs/explanation/error-rates.md has the simulated rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.drift import Drift
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION, OUTLIER, Values, median
from roofwatch.ci.changepoint.student import two_sided_p

_CAUTION = 2.0
"""Standard errors that the correlation is taken above its estimate."""
_MAX_CORRELATION = 0.9
_FITTED = 2
"""Parameters of a step (two levels), and of a ramp (level and slope)."""


def chances_of_steps(values: Sequence[float] | Values, steps: Sequence[Step]) -> list[float]:
    """Compute the p-value of each step, valid wherever in the series it was found.

    Args:
        values: All of the series, above 0, without gaps.
        steps: As `find_change_points` returns them for these values.
    """
    if not steps:
        return []
    logs = np.log(np.asarray(values, dtype=np.float64))
    edges = [
        0,
        *(step.index for step in steps),
        len(logs),
    ]
    levels = [logs[start:end] for start, end in pairwise(edges)]
    residuals = np.concatenate([level - np.median(level) for level in levels])
    dependence = _Dependence.of(residuals, edges, fitted_count=len(edges) - 1)
    width = _width(residuals)
    chances = []
    for step, start, boundary, end in zip(
        steps,
        edges,
        edges[1:],
        edges[2:],
        strict=False,
    ):
        step_residuals = residuals[start:end]
        count = len(step_residuals)
        correction = math.sqrt(count / (count - _FITTED))
        deviation = max(_width(step_residuals), width) * correction
        share = 1 / (boundary - start) + 1 / (end - boundary)
        error = deviation * math.sqrt(share * dependence.inflation)
        standard_errors = _in_standard_errors(math.log(step.after / step.before), error)
        # the detector knows more about some kinds of noise: its estimate counts where it is smaller
        standard_errors = min(standard_errors, step.standard_errors)
        chances.append(dependence.p_value(standard_errors, count, tried=len(logs)))
    return chances


def _in_standard_errors(log_change: float, error: float) -> float:
    if error <= 0:
        return math.inf
    return abs(log_change) / error


def chance_of_drift(
    values: Sequence[float] | Values,
    times: Sequence[float] | Values,
    drift: Drift,
) -> float:
    """Compute the p-value of a drift, valid wherever in the series it was found.

    Args:
        values: All of the series, above 0, without gaps.
        times: When each was measured, as given to `find_drift`.
        drift: As it was found in these values.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    measured_at = np.asarray(times, dtype=np.float64)
    count = len(logs)
    end = drift.end
    tried = count * (count - 1) // 2  # pairs of a start and an end
    if end is None:
        end = count - 1
        tried = count
    began_at = measured_at[drift.start]
    elapsed = np.clip(measured_at - began_at, 0.0, measured_at[end] - began_at)
    slope = math.log1p(drift.rate)
    residuals = logs - slope * elapsed
    residuals -= median(residuals)
    dependence = _Dependence.of(residuals, [0, count], fitted_count=_FITTED)
    power = float(((elapsed - elapsed.mean()) ** 2).sum())
    if power <= 0:
        return 1.0
    variance = count / (count - _FITTED) * dependence.inflation / power
    error = _width(residuals) * math.sqrt(variance)
    return dependence.p_value(_in_standard_errors(slope, error), count, tried=tried)


def _width(residuals: Values) -> float:
    return MAD_TO_DEVIATION * median(np.abs(residuals))


@dataclass(frozen=True)
class _Dependence:
    """Correlation of neighbouring values."""

    correlation: float
    """Upper bound."""

    @classmethod
    def of(cls, residuals: Values, edges: Sequence[int], *, fitted_count: int) -> "_Dependence":
        """Estimate it within levels, with outliers winsorised."""
        count = len(residuals)
        # neighbours on both sides of a step belong to different levels
        is_within_level = np.ones(count - 1, dtype=bool)
        inner_edges = np.asarray(edges[1:-1], dtype=np.intp)
        is_within_level[inner_edges - 1] = False
        limit = OUTLIER * _width(residuals)
        clipped = np.clip(residuals, -limit, limit)
        ahead = clipped[1:][is_within_level]
        behind = clipped[:-1][is_within_level]
        power = float(ahead @ ahead + behind @ behind) / 2
        measured = 0.0
        if power > 0:
            measured = float(ahead @ behind) / power
        # each fitted parameter takes a share of the correlation away: Marriott and Pope's bias
        unbiased = measured + (1 + 3 * measured) * fitted_count / count
        upper_bound = unbiased + _CAUTION / math.sqrt(count)
        return cls(min(max(upper_bound, 0.0), _MAX_CORRELATION))

    @property
    def inflation(self) -> float:
        """Factor on the variance of a level."""
        return (1 + self.correlation) / (1 - self.correlation)

    def p_value(self, standard_errors: float, count: int, *, tried: int) -> float:
        """Student's t on the degrees of freedom that so many values leave, for the largest of all
        places tried.
        """
        squared = self.correlation**2
        degrees = int(count * (1 - squared) / (1 + squared)) - _FITTED
        if degrees < 1:
            return 1.0
        return min(1.0, tried * two_sided_p(standard_errors, degrees))
