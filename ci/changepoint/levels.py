"""Levels and noise of one series, learnt together. Pure.

The series is cut under the noise known by then, the noise is learnt from the residuals, and again,
until the cut stays. Bursts are taken out on the way. A series that drifts is cut with a straight
line taken off, if the likelihood is better than with steps alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.bursts import Bursts, find_burst
from roofwatch.ci.changepoint.noise import (
    MIN_FOR_SHAPE,
    Flags,
    Noise,
    Values,
    deviation_of_differences,
    estimate_noise,
    prior_noise,
    stickiness_of_differences,
)
from roofwatch.ci.changepoint.segmentation import Segmentation, Segmenter

_PENALTY = 8.0
"""Cost of a step, plus 2 ln(n): the noise was learnt from the same values, and its shape was
chosen.
"""
_CAUTION = 1.5
"""Factor on the penalty of a cautious first cut, which knows only the width of the noise."""
_MAX_ROUNDS = 5
_BURST_COST = 8.0
"""Cost of each burst and of each value in one: what an outlier costs, or masking values would
explain them.
"""
_WORTH_A_TRY = 0.5
"""Share of the penalty from which on a slope is tried. It must earn all of it under the noise
learnt with it.
"""
_MAX_STEPS = 12
_ROUNDING = 1e-6
"""A smaller share of a step that is left next to the line and earlier steps is rounding."""
_TIME = 1
"""Column of the time in the design, after the constant."""


@dataclass(frozen=True)
class Fit:
    """Levels, drift and noise of a series."""

    starts: list[int]
    levels: list[float]
    """At the middle of the series, where the drift is 0."""
    slope: float
    """Per value, on the scale of the values; 0 unless the series drifts."""
    noise: Noise
    masked: Flags
    """Values that belong to bursts."""
    score: float
    """-2 ln likelihood and penalties."""

    def fitted(self) -> Values:
        """Level and drift at each value."""
        count = len(self.masked)
        lengths = np.diff([0, *self.starts, count])
        drift = self.slope * centred_times(count)
        return np.repeat(self.levels, lengths) + drift


def penalty(count: int) -> float:
    """Cost of one more step in a series of so many values, in units of -2 ln likelihood."""
    return _PENALTY + 2 * math.log(count)


def fit_levels(
    values: Values,
    *,
    floor: float,
    widths: Values | None = None,
) -> Fit:
    """Learn levels and noise of a series.

    Args:
        values: Finite, at least two shortest segments, on the scale they are judged on.
        floor: Smallest noise believed.
        widths: How much wider each value spreads than a typical one, as a factor; None: all equal.
    """
    learner = _Learner(
        values,
        floor,
        widths,
        step_cost=penalty(len(values)),
    )
    flat = learner.fit()
    if len(values) < MIN_FOR_SHAPE:
        return flat
    slope = learner.likely_slope(flat)
    if not slope:
        return flat
    sloped = _Learner(
        values,
        floor,
        widths,
        learner.step_cost,
        slope,
    ).fit()
    # a slope costs as much as a step
    slope_cost = learner.step_cost * sloped.noise.inflation
    if sloped.score + slope_cost < flat.score:
        return sloped
    return flat


class _Learner:
    """Learns levels and noise beside one slope."""

    def __init__(
        self,
        values: Values,
        floor: float,
        widths: Values | None,
        step_cost: float,
        slope: float = 0.0,
    ) -> None:
        level_values = values - slope * centred_times(len(values))
        self.step_cost = step_cost
        self._slope = slope
        self._floor = floor
        self._count = len(values)
        self._stickiness = stickiness_of_differences(level_values)
        self._segmenter = Segmenter(
            values=level_values,
            widths=widths,
            deviation=max(deviation_of_differences(level_values), floor),
        )

    def fit(self) -> Fit:
        """The best of what a bold and a cautious first cut lead to; with a slope, only a cautious
        one.
        """
        rough = prior_noise(self._segmenter.deviation, self._stickiness)
        cautions = [1.0]
        if self._slope:
            # a slope looks like steps to a bold cut
            cautions = [_CAUTION]
        elif self._count >= MIN_FOR_SHAPE:
            cautions = [1.0, _CAUTION]
        nothing = np.zeros(self._count, dtype=bool)
        cuts: list[Segmentation] = []
        for caution in cautions:
            cut = self._segmenter.cut(rough, self.step_cost * caution, nothing)
            is_new = all(cut.starts != earlier.starts for earlier in cuts)
            if is_new:
                cuts.append(cut)
            # a more cautious cut would have no steps either
            if not cut.starts:
                break
        fits = [self._refine(cut) for cut in cuts]
        return min(fits, key=lambda fit: fit.score)

    def likely_slope(self, flat: Fit) -> float:
        """The slope next to steps, if it may be worth its penalty; else 0."""
        segmenter = self._segmenter
        slope = slope_with_steps(
            values=segmenter.winsorised,
            places=segmenter.places,
            min_gain=self.step_cost * segmenter.deviation**2,
        )
        autocorrelation = flat.noise.autocorrelation
        # dependent neighbours make a slope look surer than it is
        earned = slope.standard_errors**2 * (1 - autocorrelation) / (1 + autocorrelation)
        if earned <= _WORTH_A_TRY * self.step_cost:
            return 0.0
        return slope.per_value

    def _refine(self, cut: Segmentation) -> Fit:
        """Learn the noise from the cut and cut anew, until the cut stays."""
        masked = np.zeros(self._count, dtype=bool)
        for turn in range(_MAX_ROUNDS):
            noise = self._noise_of(cut, masked)
            previous_starts = cut.starts
            # a missed step looks like dependence, so the first cut does not allow for any
            inflation = noise.inflation if turn else 1.0
            cut = self._segmenter.cut(noise, self.step_cost * inflation, masked)
            is_settled = cut.starts == previous_starts
            # a settled first cut is final only if allowing for dependence would change nothing
            needs_no_correction = not cut.starts or noise.inflation == 1.0
            is_final = is_settled and needs_no_correction
            if not turn and not is_final:
                continue
            has_burst = False
            while burst := find_burst(
                self._segmenter.values,
                cut,
                noise.deviation,
                masked,
            ):
                masked[slice(*burst)] = True
                cut = self._segmenter.cut(noise, self.step_cost * noise.inflation, masked)
                has_burst = True
            if not has_burst and (is_settled or turn > 1):
                break
        return Fit(
            starts=cut.starts,
            levels=cut.levels,
            slope=self._slope,
            noise=noise,
            masked=masked,
            score=cut.cost + _scale_cost(noise, masked),
        )

    def _noise_of(self, cut: Segmentation, masked: Flags) -> Noise:
        """Estimate the noise around the levels of a cut, in units of each value's width."""
        residuals = self._segmenter.values - cut.fitted(self._count)
        if self._segmenter.widths is not None:
            residuals = residuals / self._segmenter.widths
        is_sticky = self._stickiness > 0
        return estimate_noise(
            residuals,
            cut.starts,
            masked,
            is_sticky=is_sticky,
            floor=self._floor,
        )


def _scale_cost(noise: Noise, masked: Flags) -> float:
    """Make the costs of two fits comparable: add the width of their noise and the masked values."""
    masked_count = int(np.count_nonzero(masked))
    masked_cost = _BURST_COST * (masked_count + Bursts.of(masked).count)
    width_cost = 2 * math.log(noise.deviation) * len(masked)
    return width_cost + masked_cost


# --- slopes


@dataclass(frozen=True)
class Slope:
    """Slope of a line next to steps."""

    per_value: float
    standard_errors: float
    """Under independent values."""


def centred_times(count: int) -> Values:
    """Positions of the values, counted from the middle of the series."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def slope_with_steps(
    values: Values,
    places: NDArray[np.intp],
    min_gain: float,
) -> Slope:
    """Fit a line with the steps that the values ask for.

    Args:
        values: Winsorised, shape [values].
        places: Where a level may begin, in order, shape [places].
        min_gain: Sum of squares that a step must explain.
    """
    count = len(values)
    time = centred_times(count)
    steps = (np.arange(count) >= places[:, None]).astype(np.float64)  # [places, values]
    centred = values - values.mean()
    # the part of each step, and of the values, that is orthogonal to what was fitted
    length = math.sqrt(float(time @ time))
    direction: Values = time / length
    open_steps = _without(direction, steps - steps.mean(axis=1, keepdims=True))
    rest = _without(direction, centred)
    smallest = _ROUNDING * (open_steps**2).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < min(_MAX_STEPS, len(places)):
        squares = (open_steps**2).sum(axis=1)
        projections = open_steps @ rest
        gains = projections**2 / np.maximum(squares, 1e-300)
        # what the chosen steps span already is only rounding
        explained = np.where(squares > smallest, gains, 0.0)
        best = int(explained.argmax())
        if explained[best] < min_gain or squares[best] <= smallest[best]:
            break
        chosen.append(best)
        direction = open_steps[best] / math.sqrt(squares[best])
        open_steps = _without(direction, open_steps)
        rest = _without(direction, rest)
    design = np.stack(
        [
            np.ones(count),
            time,
            *steps[chosen],
        ],
        axis=1,
    )
    inverse = np.linalg.inv(design.T @ design)
    # the normal equations of a least-squares fit
    coefficients = inverse @ (design.T @ centred)
    slope = float(coefficients[_TIME])
    # the level and the slope were fitted too
    freedom = max(count - 2 - len(chosen), 1)
    variance = float(rest @ rest) / freedom
    # of the slope's coefficient in the least squares
    unit_variance = float(inverse[_TIME, _TIME])
    error = math.sqrt(variance * unit_variance)
    if error <= 0:
        return Slope(slope, 0.0)
    return Slope(slope, slope / error)


def _without(direction: Values, vectors: Values) -> Values:
    """Remove the component along a unit vector; shape [..., values]."""
    lengths = (vectors @ direction)[..., None]
    orthogonal: Values = vectors - lengths * direction
    return orthogonal
