"""Change points of a series that grows: each new value is judged as it arrives. Pure; online.

Evidence for a step is what the last few values cost at the present level, less what they cost at the best new level,
with costs as in `roofwatch.ci.changepoint.noise`. Source of the test: the window-limited generalised likelihood ratio
(Willsky and Jones 1976; Lai 1995), here under a learnt, bounded density in place of the normal one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from roofwatch.ci.changepoint.bursts import Bursts
from roofwatch.ci.changepoint.levels import centred_times, fit_levels, fit_slope
from roofwatch.ci.changepoint.noise import (
    LAGS,
    MAD_TO_DEVIATION,
    MIN_FOR_AUTOCORRELATION,
    MIN_FOR_SHAPE,
    OUTLIER,
    Noise,
    Values,
    bins_of,
    estimate_noise,
    leftover_inflation,
    median,
    stickiness_of_differences,
    tick_of,
)

LEARNING = 30
"""Values before the first judgement, which the offline method cuts into levels."""

_MAX_VALUES = 128
"""Remembered values of a level."""
_MAX_RESIDUALS = 96
"""Remembered distances from earlier levels, from which the noise is learnt."""
_WINDOW = 24
"""Values over which a step is searched: one that needs more is left to the offline method."""
_GUARD = 12
"""Newest values that are not used to learn the level and its noise, because they may belong to the next level."""
_BLOCK = 8
"""Values that are learnt together, and dropped together from a long level."""
_MIN_LEVEL = 8
"""Values that a level needs before a step away from it can be seen."""
_MIN_NEW = 5
"""Values that a new level needs before the series has shown how long its bursts are."""
_ACCEPTED = 20
"""Values after which a new level is no burst."""
_CANDIDATES = 12
"""Newest values that are tried as the new level."""
_THRESHOLD = 8.0 + 2 * math.log(_WINDOW)
"""Twice the log likelihood ratio of a step: the penalty of the offline method over the window."""
_RETURN_THRESHOLD = 8.0
"""The same for a return to the level before: bursts end, and no place is searched."""
_CAUTION = 1.645
"""Standard errors that dependence between neighbours is assumed above 0 until the series shows more."""
_LEARNING_CAUTION = (1 + _CAUTION / math.sqrt(LEARNING)) / (1 - _CAUTION / math.sqrt(LEARNING))
"""Factor on the penalty of steps among the first values, for noise with that dependence."""
_SLOPE_ERRORS = 3.0
"""Standard errors from which on a drift is believed: chance shows it in fewer than one of 370 levels."""
_BURST_RATE = 1.2e-3
"""Most false alarms per value that bursts alone may cause."""


@dataclass(frozen=True)
class Alarm:
    """A new level, as far as the values up to now show it."""

    index: int
    """Position of its first value."""
    before: float
    after: float
    count_after: int
    """Values of the new level that were needed to see it."""
    is_return: bool
    """The series is back at the level before the last alarm, which was a burst."""


@dataclass(frozen=True)
class _Step:
    length: int
    """Values of the new level."""
    is_return: bool


class OnlineDetector:
    """Follows one series."""

    def __init__(self, *, min_relative_change: float = 0.03) -> None:
        """Begin with no values.

        Raises:
            ValueError: `min_relative_change` is not above 0.
        """
        if not min_relative_change > 0:
            raise ValueError(f"min_relative_change={min_relative_change}: give a fraction above 0, such as 0.03")
        self._smallest_step = math.log1p(min_relative_change)
        self._floor = self._smallest_step / 3
        self._count = 0
        self._is_learning = True
        self._unit = 0.0  # divides the values if one of the first is 0 or below; 0 where logarithms are judged
        self._values: list[float] = []  # newest values of the present level
        self._positions: list[int] = []
        self._earlier: list[float] = []  # values of the level before, while the present one may be a burst
        self._residuals: list[float] = []  # distances of other values from their levels, on the judged scale

    def update(self, value: float) -> Alarm | None:
        """Take in the next value.

        Args:
            value: A value that is not finite is a gap, and so is one of 0 or below where the first values were above.

        Returns:
            The new level, if this value brought it into sight.
        """
        position, self._count = self._count, self._count + 1
        if not math.isfinite(value) or (value <= 0 and not self._unit and not self._is_learning):
            return None
        self._values.append(float(value))
        self._positions.append(position)
        if self._is_learning:
            if len(self._values) == LEARNING:
                self._end_learning()
            return None
        step = self._find_step()
        if step is None:
            if self._earlier and len(self._values) >= _ACCEPTED + _GUARD:
                self._accept_level()
            elif len(self._values) > _MAX_VALUES:
                self._forget_oldest()
            return None
        old, new = self._values[: -step.length], self._values[-step.length :]
        alarm = Alarm(
            index=self._positions[-step.length],
            before=float(np.median(old)),
            after=float(np.median(new)),
            count_after=step.length,
            is_return=step.is_return,
        )
        if step.is_return:
            self._end_burst(step.length)
        else:
            if self._earlier:
                self._accept_level()
            self._earlier, self._values = old, new
            self._positions = self._positions[-step.length :]
        return alarm

    def _scaled(self, values: list[float]) -> Values:
        raw = np.array(values)
        return raw / self._unit if self._unit else np.log(raw)

    def _remember(self, residuals: Values) -> None:
        self._residuals = [*self._residuals, *residuals.tolist()][-_MAX_RESIDUALS:]

    def _end_learning(self) -> None:
        raw = np.array(self._values)
        if raw.min() <= 0:
            self._unit = float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0
        scaled = self._scaled(self._values)
        fit = fit_levels(scaled, floor=self._floor, caution=_LEARNING_CAUTION)
        begins = fit.starts[-1] if fit.starts else 0
        self._remember((scaled - fit.fitted())[:begins])
        self._values, self._positions = self._values[begins:], self._positions[begins:]
        self._is_learning = False

    def _accept_level(self) -> None:
        """The present level is no burst: of the level before, keep the noise alone."""
        self._remember(_level_residuals(self._residuals, self._scaled(self._earlier), self._floor)[1])
        self._earlier = []

    def _forget_oldest(self) -> None:
        settled = self._scaled(self._values)[:-_GUARD]
        self._remember(_level_residuals(self._residuals, settled, self._floor)[1][:_BLOCK])
        del self._values[:_BLOCK], self._positions[:_BLOCK]

    def _end_burst(self, length: int) -> None:
        """Return to the level before. The values in between are noise far from that level."""
        self._remember(self._scaled(self._values[:-length]) - median(self._scaled(self._earlier)))
        kept = self._earlier[-(_MAX_VALUES - length) :]
        self._values = [*kept, *self._values[-length:]]
        # no step will be searched among the values before the burst, so their places do not matter
        self._positions = [*[self._positions[0]] * len(kept), *self._positions[-length:]]
        self._earlier = []

    def _find_step(self) -> _Step | None:
        """The step that the newest values show, if they show one."""
        scaled, count = self._scaled(self._values), len(self._values)
        most = count - (_MIN_NEW if self._earlier else _MIN_LEVEL)
        window, guard = min(_WINDOW, most), min(_GUARD, most)
        if window < 2:
            return None
        settled, tail = scaled[: count - guard], scaled[count - window :]
        earlier = self._scaled(self._earlier)
        # whole blocks only, which leaves more of the newest values out
        learnt = earlier if self._earlier else settled[: max(len(settled) - self._count % _BLOCK, 0)]
        slope, known = _level_residuals(self._residuals, learnt, self._floor)
        # the noise is learnt from all residuals in time order
        known = np.concatenate([known, self._residuals] if self._earlier else [self._residuals, known])
        noise, known_count = _learn_noise(known, self._floor), len(known)
        times = np.arange(count, dtype=np.float64) - (len(settled) - 1) / 2
        level: Values = (median(settled) + (0.0 if self._earlier else slope) * times)[count - window :]
        lengths = np.arange(1, window + 1, dtype=np.float64)
        # the present level is known from these values only, which blurs a step away from it
        gains = _gains(tail, level, noise) * len(settled) / (len(settled) + lengths)
        # and the noise from so many: Student's t in place of the normal
        gains = known_count * np.log1p(np.maximum(gains, 0.0) / known_count)
        inflations = np.maximum(noise.inflation, _possible_inflation(lengths, known_count))
        length = int((gains / inflations).argmax()) + 1
        gain, reached, left = float(gains[length - 1]), median(tail[window - length :]), float(level[-1])
        if self._earlier and length >= 2 and gain >= _RETURN_THRESHOLD:
            before = median(earlier)
            if abs(reached - before) < abs(left - before) / 2:
                return _Step(length, is_return=True)
        is_significant = gain >= _THRESHOLD * inflations[length - 1] and count - length >= _MIN_LEVEL
        is_relevant = abs(reached - left) >= self._smallest_step
        if not is_significant or not is_relevant or length < _values_needed(known, noise, reached - left):
            return None
        return _Step(length, is_return=False)


# --- what the series has shown


def _level_residuals(others: list[float], values: Values, floor: float) -> tuple[float, Values]:
    """Fit a level, or a line where it drifts beyond chance.

    Args:
        others: Distances of other values from their levels.
        values: Of the level.
        floor: Smallest noise believed.

    Returns:
        The slope per value, 0 unless it drifts, and the distances of the values from the level.
    """
    if len(values) >= MIN_FOR_AUTOCORRELATION:
        deviation = max(MAD_TO_DEVIATION * median(np.abs(values - median(values))), floor)
        slope, times = fit_slope(values, deviation), centred_times(len(values))
        residuals = values - slope * times
        residuals -= median(residuals)
        noise = _learn_noise(np.concatenate([others, residuals]), floor)
        inflation = noise.mean_inflation
        if not noise.autocorrelation:
            inflation = max(inflation, 1 + 2 * _CAUTION * math.sqrt(LAGS / len(values)))
        clipped = np.clip(residuals, -OUTLIER * noise.deviation, OUTLIER * noise.deviation)
        if abs(slope) > _SLOPE_ERRORS * math.sqrt(float((clipped**2).mean()) * inflation / float(times @ times)):
            return slope, residuals
    return 0.0, values - median(values)


def _learn_noise(residuals: Values, floor: float) -> Noise:
    # half of the values that the offline method asks for: no step in these residuals can pass for autocorrelation
    is_sticky = stickiness_of_differences(residuals, min_count=MIN_FOR_AUTOCORRELATION // 2) > 0
    nothing = np.zeros(len(residuals), dtype=bool)
    noise = estimate_noise(residuals, [], nothing, is_sticky=is_sticky, floor=floor, tick=tick_of(residuals))
    if len(residuals) < MIN_FOR_SHAPE:
        # too few values for a shape, enough for their dependence
        return replace(noise, inflation=leftover_inflation(np.clip(residuals / noise.deviation, -OUTLIER, OUTLIER)))
    if not noise.autocorrelation:
        return noise
    # the upper end: too little autocorrelation raises false alarms, too much only waits
    error = math.sqrt((1 - noise.autocorrelation**2) / len(residuals))
    return replace(noise, autocorrelation=min(noise.autocorrelation + error, 0.95))


# --- the evidence of the newest values


def _possible_inflation(lengths: Values, count: int) -> Values:
    """Variance of a sum of values relative to independent ones, as far as `count` values cannot exclude it.

    A sum of n values varies 1 + 2 Σ (1 - k / n) ρₖ times as much, and each ρₖ is known to 1 / √count (Bartlett 1946).
    """
    squares = (lengths - 1) * (2 * lengths - 1) / (6 * lengths)  # Σ (1 - k / n)²
    inflation: Values = 1 + 2 * _CAUTION * np.sqrt(squares / count)
    return inflation


def _gains(tail: Values, level: Values, noise: Noise) -> Values:
    """How much better the best new level explains the newest 1, 2, ... values than the present level."""
    old = _costs((tail - level) / noise.deviation, noise)
    # a new level is where some of its values are
    offsets = (tail[:, None] - tail[-_CANDIDATES:]) / noise.deviation
    new = _costs(offsets, noise)
    first = noise.costs[bins_of(offsets)]
    from_old = np.cumsum(old[::-1])
    # the first value of a level does not depend on the value before it
    from_new = np.cumsum(new[::-1], axis=0) + (first - new)[::-1]
    gains: Values = from_old - from_new.min(axis=1)
    return gains


def _costs(distances: Values, noise: Noise) -> Values:
    """Cost of each value given the one before it, along the first axis."""
    costs = noise.costs[bins_of(distances)]
    if noise.autocorrelation:
        assert noise.innovation_costs is not None
        wider = noise.deviation / noise.innovation
        predicted = np.clip(distances[:-1], -OUTLIER, OUTLIER) * noise.autocorrelation
        costs[1:] = noise.innovation_costs[bins_of((distances[1:] - predicted) * wider)] - 2 * math.log(wider)
    elif noise.stickiness < 0:
        is_outlier = np.abs(distances) > OUTLIER
        costs[1:] += noise.stickiness * (is_outlier[1:] & is_outlier[:-1])
    return costs


def _values_needed(residuals: Values, noise: Noise, step: float) -> float:
    """Length that bursts exceed at most at the promised rate; of bursts in the step's direction, half as large."""
    towards = residuals * math.copysign(1.0, step)
    bursts = Bursts.of(towards > max(OUTLIER * noise.deviation, abs(step) / 2))
    return max(bursts.longest_at_rate(len(residuals), _BURST_RATE), _MIN_NEW)
