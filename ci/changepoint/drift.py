"""A slow drift of a series, which no single step shows. Pure.

A drift is a level that stands, then rises or falls by a constant factor per value, to the end or
until it stands again. It must explain the series better than no change and better than steps, by
the penalised likelihood of `roofwatch.ci.changepoint.levels`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.levels import fit_levels, penalty
from roofwatch.ci.changepoint.noise import (
    OUTLIER,
    Noise,
    Values,
    deviation_of_differences,
    estimate_noise,
    stickiness_of_differences,
)
from roofwatch.ci.changepoint.segmentation import winsorised

_MIN_VALUES = 20
_SHORTEST = 10
"""Values over which a drift must go on: less is a step."""
_STARTS = 60
"""Starts that are tried of a drift that goes on, evenly spaced."""
_PLACES = 30
"""Places that are tried as start and end of a drift that ended, evenly spaced, then finer around
the best two.
"""
_WORTH_A_TRY = 0.5
"""Share of the penalty from which on an end is searched: a drift that ended looks like a slower one
that goes on.
"""
_ROUNDS = 3
"""How often to fit, winsorise at the fit, and fit again."""
_MARGIN = 6.0
"""By how much a drift must explain the series better than steps do: odds of 20 to 1."""


@dataclass(frozen=True)
class Drift:
    """A series that moved little by little."""

    start: int
    """Position of the last value of the old level."""
    rate: float
    """Relative change per value, or per unit of `times`."""
    relative_change: float
    """From the start to the end, or to the newest value."""
    end: int | None
    """Position of the first value of the new level; None where the drift goes on."""
    likelihood_ratio: float
    """Twice the log likelihood ratio to the best explanation without drift, less penalties,
    corrected for dependence between neighbours."""


@dataclass(frozen=True)
class _Ramp:
    """A level that stands, moves along a line from one value to another, and stands again."""

    start: int
    end: int
    slope: float
    """Change from one value to the next."""
    relative_change: float
    residuals: Values
    """What the values differ by from the ramp."""

    def is_relevant(self, min_relative_change: float) -> bool:
        log_change = math.log1p(self.relative_change)
        return abs(log_change) >= math.log1p(min_relative_change)

    def noise(self, floor: float) -> Noise:
        """Estimate the noise around the ramp; `floor` is the smallest that is believed."""
        nothing = np.zeros(len(self.residuals), dtype=bool)
        is_sticky = stickiness_of_differences(self.residuals) > 0
        return estimate_noise(
            residuals=self.residuals,
            starts=[],
            masked=nothing,
            is_sticky=is_sticky,
            floor=floor,
        )


@dataclass(frozen=True, kw_only=True)
class _RampFit:
    """A ramp, and what is needed to compare it with other explanations."""

    ramp: _Ramp
    noise: Noise
    bends: float
    """A bend pays for its place and its rate what a step pays for its place and its size; a second
    bend for its place.
    """
    floor: float
    """Least noise: the smallest drift to report is six times as large."""
    deviation: float

    def likelihood_ratio(self, logs: Values) -> float:
        """How much better the ramp explains the values than no change, and than steps; 0 or less
        if it does not.
        """
        inflation = self.noise.mean_inflation
        # of one step or bend
        price = penalty(len(logs)) * inflation
        flat = logs - _fit_levels(logs, [], self.deviation)
        flat_cost = _cost(flat, self.noise)
        misfit = _cost(self.ramp.residuals, self.noise)
        ramp_cost = misfit + self.bends * price
        gain_over_flat = flat_cost - ramp_cost
        # steps are costly to fit, so only where the ramp beats a flat line
        if gain_over_flat <= 0:
            return 0.0
        starts = fit_levels(logs, floor=self.floor).starts
        step_residuals = logs - _fit_levels(logs, starts, self.deviation)
        step_misfit = _cost(step_residuals, self.noise)
        step_cost = step_misfit + len(starts) * price
        gain_over_steps = step_cost - ramp_cost - _MARGIN * inflation
        return min(gain_over_flat, gain_over_steps) / inflation


def find_drift(
    values: Sequence[float] | Values,
    times: Sequence[float] | Values | None = None,
    *,
    min_relative_change: float = 0.02,
) -> Drift | None:
    """Find a drift that lasts until the newest value, or that has ended since.

    Args:
        values: In time order, above 0; any other value is a gap.
        times: When each was measured, in any unit, rising. The rate is per this unit; by position
            if left out.
        min_relative_change: Smallest drift to report.

    Returns:
        The drift; None if no change or steps explain the series as well, or if it has fewer than 20
        values.

    Raises:
        ValueError: There are more or fewer times than values.
    """
    all_values = np.asarray(values, dtype=np.float64).ravel()
    all_times = np.arange(len(all_values), dtype=np.float64)
    if times is not None:
        all_times = np.asarray(times, dtype=np.float64).ravel()
    if len(all_times) != len(all_values):
        raise ValueError(f"{len(all_times)} times of {len(all_values)} values: give one of each")
    has_value = np.isfinite(all_values) & (all_values > 0)
    is_usable = has_value & np.isfinite(all_times)
    positions = np.flatnonzero(is_usable)
    if len(positions) < _MIN_VALUES:
        return None
    logs = np.log(all_values[positions])
    when = all_times[positions]
    last = len(logs) - 1
    fit = _fit_of_ramp(logs, when, min_relative_change)
    if fit is None:
        return None
    ratio = fit.likelihood_ratio(logs)
    if ratio <= 0:
        return None
    ramp = fit.ramp
    end = None
    if ramp.end < last:
        end = int(positions[ramp.end])
    return Drift(
        start=int(positions[ramp.start]),
        rate=math.expm1(ramp.slope),
        relative_change=ramp.relative_change,
        end=end,
        likelihood_ratio=ratio,
    )


def _fit_of_ramp(
    logs: Values,
    when: Values,
    min_relative_change: float,
) -> _RampFit | None:
    """The best relevant ramp until the newest value, or a better one that has ended."""
    floor = math.log1p(min_relative_change) / 6
    deviation = max(deviation_of_differences(logs), floor)
    ramp = _best_ramp(
        logs=logs,
        when=when,
        places=_ongoing(len(logs)),
        deviation=deviation,
    )
    if not ramp.is_relevant(min_relative_change):
        return None
    fit = _RampFit(
        ramp=ramp,
        noise=ramp.noise(floor),
        bends=1.0,
        floor=floor,
        deviation=deviation,
    )
    price = penalty(len(logs))
    flat = logs - _fit_levels(logs, [], deviation)
    cost_of_flat = _cost(flat, fit.noise)
    gain_of_ramp = cost_of_flat - _cost(ramp.residuals, fit.noise)
    # the search for two ends takes long
    if gain_of_ramp <= _WORTH_A_TRY * price:
        return fit
    ended = _best_ended_ramp(logs, when, deviation)
    noise = ended.noise(floor)
    cost_without_end = _cost(ramp.residuals, noise)
    gain_of_end = cost_without_end - _cost(ended.residuals, noise)
    is_better = gain_of_end > price / 2 * noise.mean_inflation
    if is_better and ended.is_relevant(min_relative_change):
        return replace(
            fit,
            ramp=ended,
            noise=noise,
            bends=1.5,
        )
    return fit


# --- ramps


def _ongoing(count: int) -> NDArray[np.intp]:
    """Starts and ends of ramps to the newest value, shape [ramps, 2]."""
    last_start = count - 1 - _SHORTEST
    evenly_spread = np.linspace(0, last_start, _STARTS)
    starts = np.unique(evenly_spread.astype(int))
    return np.stack(
        [starts, np.full(len(starts), count - 1)],
        axis=1,
    )


def _best_ended_ramp(
    logs: Values,
    when: Values,
    deviation: float,
) -> _Ramp:
    """The ramp between any two places that fits best."""
    last = len(logs) - 1
    spacing = last / (_PLACES - 1)
    places = np.linspace(0, last, _PLACES)
    best = _best_ramp(
        logs=logs,
        when=when,
        places=_pairs(places, places),
        deviation=deviation,
    )
    # search around the best pair, on a grid twice as fine each time
    while spacing > 1:
        spacing /= 2
        offsets = spacing * np.arange(-1, 2)
        near_start = np.clip(np.rint(best.start + offsets), 0, last)
        near_end = np.clip(np.rint(best.end + offsets), 0, last)
        best = _best_ramp(
            logs=logs,
            when=when,
            places=_pairs(near_start, near_end),
            deviation=deviation,
        )
    return best


def _pairs(starts: Values, ends: Values) -> NDArray[np.intp]:
    """Starts and ends that are far enough apart, shape [ramps, 2]."""
    first, last = np.meshgrid(starts.astype(int), ends.astype(int))
    is_long = last - first >= _SHORTEST
    return np.stack([first[is_long], last[is_long]], axis=1)


def _best_ramp(
    logs: Values,
    when: Values,
    places: NDArray[np.intp],
    deviation: float,
) -> _Ramp:
    """The best-fitting ramp between pairs of places, with outliers winsorised at the ramp."""
    since = when[places[:, 0]][:, None]  # [ramps, 1]
    until = when[places[:, 1]][:, None]
    times = np.clip(when - since, 0.0, until - since)  # [ramps, values]
    mean_times = times.mean(axis=1)
    centred = times - mean_times[:, None]
    power = np.maximum((centred**2).sum(axis=1), 1e-300)
    # the first look is one that no outlier pulls away
    pulled = np.broadcast_to(winsorised(logs, deviation), times.shape)
    limit = OUTLIER * deviation
    for _ in range(_ROUNDS):
        slopes = (centred * pulled).sum(axis=1) / power
        levels = pulled.mean(axis=1) - slopes * mean_times
        lines = levels[:, None] + slopes[:, None] * times
        rest = np.clip(logs - lines, -limit, limit)
        pulled = lines + rest
    best = int((rest**2).sum(axis=1).argmin())
    start, end = places[best].tolist()
    slope = float(slopes[best])
    log_change = slope * (when[end] - when[start])
    return _Ramp(
        start=start,
        end=end,
        slope=slope,
        relative_change=math.expm1(log_change),
        residuals=logs - lines[best],
    )


def _fit_levels(
    logs: Values,
    starts: Sequence[int],
    deviation: float,
) -> Values:
    """The levels of a series at each value, by the estimator of ramps, so that noise affects both
    equally.

    Args:
        logs: The values.
        starts: First positions of all levels but the first.
        deviation: Of their noise.
    """
    edges = np.array([0, *starts], dtype=np.intp)
    counts = np.diff([*edges, len(logs)])
    limit = OUTLIER * deviation
    pulled = levels = winsorised(logs, deviation)
    for _ in range(_ROUNDS):
        means = np.add.reduceat(pulled, edges) / counts
        levels = np.repeat(means, counts)
        clipped = np.clip(logs - levels, -limit, limit)
        pulled = levels + clipped
    return levels


def _cost(residuals: Values, noise: Noise) -> float:
    """-2 ln likelihood of residuals, outliers winsorised."""
    squares = (residuals / noise.deviation) ** 2
    return float(np.minimum(squares, OUTLIER**2).sum())
