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

import numpy as np

from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.drift import Drift
from roofwatch.ci.changepoint.noise import (
    MAD_TO_DEVIATION,
    OUTLIER,
    Values,
    median,
    neighbour_correlation,
)
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
    starts = [step.index for step in steps]
    levels = np.split(logs, starts)
    residuals = np.concatenate([level - np.median(level) for level in levels])
    dependence = _Dependence.of(residuals, starts, fitted_count=len(levels))
    width = _width(residuals)
    chances: list[float] = []
    for step in steps:
        step_residuals = residuals[step.start : step.end]
        count = len(step_residuals)
        # a quiet stretch may be quiet by chance, so the whole series counts too
        widest = max(_width(step_residuals), width)
        deviation = widest * math.sqrt(count / (count - _FITTED))
        variance_share = 1 / step.count_before + 1 / step.count_after
        error = deviation * math.sqrt(variance_share * dependence.inflation)
        log_change = math.log(step.after / step.before)
        standard_errors = _in_standard_errors(log_change, error)
        # the detector knows more about some kinds of noise: its estimate counts where it is smaller
        standard_errors = min(standard_errors, step.standard_errors)
        chances.append(dependence.p_value(standard_errors, count, tried=len(logs)))
    return chances


def _in_standard_errors(log_change: float, error: float) -> float:
    # values without noise leave no doubt
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
    # a drift that goes on has a start only; one that ended, a pair of a start and an end
    if drift.end is None:
        end = count - 1
        tried = count
    else:
        end = drift.end
        tried = count * (count - 1) // 2
    began_at = measured_at[drift.start]
    whole = measured_at[end] - began_at
    elapsed = np.clip(measured_at - began_at, 0.0, whole)
    slope = math.log1p(drift.rate)
    residuals = logs - slope * elapsed
    residuals -= median(residuals)
    dependence = _Dependence.of(residuals, [], fitted_count=_FITTED)
    squared_distances = (elapsed - elapsed.mean()) ** 2
    power = float(squared_distances.sum())
    # all values at one time have no slope
    if power <= 0:
        return 1.0
    # residuals are smaller than errors by what was fitted
    correction = count / (count - _FITTED)
    variance = correction * dependence.inflation / power
    error = _width(residuals) * math.sqrt(variance)
    standard_errors = _in_standard_errors(slope, error)
    return dependence.p_value(standard_errors, count, tried=tried)


def _width(residuals: Values) -> float:
    return MAD_TO_DEVIATION * median(np.abs(residuals))


@dataclass(frozen=True)
class _Dependence:
    """Correlation of neighbouring values."""

    correlation: float
    """Upper bound."""

    @classmethod
    def of(
        cls,
        residuals: Values,
        starts: Sequence[int],
        *,
        fitted_count: int,
    ) -> "_Dependence":
        """Estimate it within levels, with outliers winsorised.

        Args:
            residuals: Of all levels.
            starts: First positions of all levels but the first.
            fitted_count: Number of fitted parameters.
        """
        count = len(residuals)
        # neighbours on both sides of a step belong to different levels
        is_within_level = np.ones(count - 1, dtype=bool)
        is_within_level[np.asarray(starts, dtype=np.intp) - 1] = False
        limit = OUTLIER * _width(residuals)
        clipped = np.clip(residuals, -limit, limit)
        ahead = clipped[1:][is_within_level]
        behind = clipped[:-1][is_within_level]
        unbiased = neighbour_correlation(ahead, behind, fitted_share=fitted_count / count)
        upper_bound = unbiased + _CAUTION / math.sqrt(count)
        correlation = min(max(upper_bound, 0.0), _MAX_CORRELATION)
        return cls(correlation)

    @property
    def inflation(self) -> float:
        """Factor on the variance of a level."""
        return (1 + self.correlation) / (1 - self.correlation)

    def p_value(
        self,
        standard_errors: float,
        count: int,
        *,
        tried: int,
    ) -> float:
        """Student's t on the degrees of freedom that so many values leave, for the largest of all
        places tried.

        Args:
            standard_errors: Size of the change, 0 or above.
            count: Values on both sides of it.
            tried: Places at which it might have been found.
        """
        squared = self.correlation**2
        independent_count = int(count * (1 - squared) / (1 + squared))
        degrees = independent_count - _FITTED
        # nothing is left to estimate the noise from
        if degrees < 1:
            return 1.0
        p_value = two_sided_p(standard_errors, degrees)
        return min(1.0, tried * p_value)
