"""Change points of a series that grows: each new value is judged as it arrives. Pure; online.

Evidence for a step is what the last few values cost at the present level, less what they cost at
the best new level. The cost of a value is -2 ln of its density, which the series itself has shown:
a kernel density estimate of its distances from its level. Source of the test: the window-limited
generalised likelihood ratio (Willsky and Jones 1976; Lai 1995), here with bounded evidence per
value, so a short burst is no step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.levels import fit_levels
from roofwatch.ci.changepoint.noise import (
    MAD_TO_DEVIATION,
    OUTLIER,
    Values,
    leftover_inflation,
    median,
)

LEARNING = 30
"""Values before the first judgement, which the offline method cuts into levels."""
THRESHOLD = 24.0
"""Evidence for a step in a long history: docs/explanation/error-rates.md has the false alarms that
it allows.
"""

_LEARNING_CAUTION = 2.0
"""Factor on the penalty of steps among the first values, whose noise is not known yet."""
_MAX_VALUES = 224
"""Remembered values of a level, and remembered distances from earlier levels."""
_LEVEL = 48
"""Newest settled values whose median is the level: a drift moves it slowly."""
_WINDOW = 24
"""Values over which a step is searched: one that needs more is left to the offline method."""
_GUARD = 10
"""Newest values that are not used to learn the level and its noise, because they may belong to the
next level.
"""
_MIN_LEVEL = 8
"""Values that a level needs before a step away from it can be seen."""
_MIN_NEW = 5
"""Values that a new level needs."""
_ACCEPTED = 20
"""Values after which a level is no burst."""
_CANDIDATES = 12
"""Newest values that are tried as the new level."""
_MOST_PER_VALUE = 8.0
"""Evidence that one value can give: four outliers stay below the threshold."""
_YOUTH = 20.0
"""Settled values of a level at which the threshold is doubled: few values hide bursts."""
_DEPENDENCE = 0.3
"""Increase of the threshold per ln of the factor by which dependent neighbours widen a sum."""
_BURSTS = 2.0
"""Largest increase of the threshold for a distant level in a series with bursts."""
_NEAR, _DISTANT = 14.0, 30.0
"""Standard deviations between which that increase begins and is complete: real steps are rarely so
large.
"""
_SOME_OUTLIERS = 0.03
"""Share of outliers at which half of that increase applies."""
_RETURN_THRESHOLD = 20.0
"""Evidence for a return to the level before: bursts end, and no place is searched."""
_BANDWIDTH = 0.4
"""Width of the kernel in standard deviations: Silverman's rule, 1.06 n^(-1/5), at some 150 values.
"""
_PRIOR_VALUES = 2.0
"""Weight of a normal density beside the values that the series has shown."""
_OUTLIER_SHARE = 0.02
"""Values that may be anywhere, as a share; one at least."""
_OUTLIER_SCALE = 3.0
"""Standard deviations within which half of them are expected."""
_LEARNT_FROM = 100
"""Values before a new step of the offline method from which the detector learns."""
_SAME_PLACE = 5
"""Values by which the two may place a step differently."""


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


class OnlineDetector:
    """Follows one series."""

    def __init__(self, *, min_relative_change: float = 0.03, threshold: float = THRESHOLD) -> None:
        """Begin with no values.

        Args:
            min_relative_change: Smallest step to report.
            threshold: Evidence that a step needs in a long history, as -2 ln of a likelihood ratio.

        Raises:
            ValueError: `min_relative_change` is not above 0.
        """
        if not min_relative_change > 0:
            raise ValueError(
                f"min_relative_change={min_relative_change}: give a fraction above 0, such as 0.03"
            )
        self._smallest_step = math.log1p(min_relative_change)
        self._floor = self._smallest_step / 3
        self._threshold = threshold
        self._count = 0
        self._is_learning = True
        self._logs = np.empty(0)  # newest values of the present level
        self._positions = np.empty(0, dtype=int)
        self._earlier = np.empty(0)  # of the level before, while the present one may be a burst
        self._residuals = np.empty(0)  # distances of other values from their levels

    def update(self, value: float) -> Alarm | None:
        """Take in the next value; one that is not finite and above 0 is a gap.

        Returns:
            The new level, if this value brought it into sight.
        """
        self._count += 1
        if not (math.isfinite(value) and value > 0):
            return None
        self._logs = np.append(self._logs, math.log(value))[-_MAX_VALUES:]
        self._positions = np.append(self._positions, self._count - 1)[-_MAX_VALUES:]
        if self._is_learning:
            if len(self._logs) == LEARNING:
                self._end_learning()
            return None
        alarm = self._find_step()
        is_accepted = len(self._logs) >= _ACCEPTED
        if alarm is not None:
            is_accepted = not alarm.is_return
        if len(self._earlier) and is_accepted:
            # the present level is no burst: of the level before, keep the noise alone
            self._remember(self._earlier - median(self._earlier))
            self._earlier = np.empty(0)
        if alarm is not None:
            self._begin_level(alarm)
        return alarm

    def _begin_level(self, alarm: Alarm) -> None:
        """Make the newest values the present level, and the values before them the earlier one."""
        previous, self._logs = np.split(self._logs, [-alarm.count_after])
        self._positions = self._positions[-alarm.count_after :]
        if not alarm.is_return:
            self._earlier = previous
            return
        # the previous level was a burst, and the earlier one goes on. No step will be searched
        # among its values, so their positions do not matter
        self._remember(previous - median(self._earlier))
        self._logs = np.concatenate([self._earlier, self._logs])
        self._positions = np.pad(self._positions, (len(self._earlier), 0), mode="edge")
        self._earlier = np.empty(0)

    def _remember(self, residuals: Values) -> None:
        self._residuals = np.concatenate([self._residuals, residuals])[-_MAX_VALUES:]

    def _end_learning(self) -> None:
        fit = fit_levels(self._logs, floor=self._floor, caution=_LEARNING_CAUTION)
        begins = fit.starts[-1] if fit.starts else 0
        self._remember((self._logs - fit.fitted())[:begins])
        self._logs = self._logs[begins:]
        self._positions = self._positions[begins:]
        self._is_learning = False

    def _find_step(self) -> Alarm | None:
        """The step that the newest values show, if they show one."""
        logs = self._logs
        count = len(logs)
        has_earlier = len(self._earlier) > 0
        # while the present level may be a burst, a return needs fewer values of it
        shortest_level = _MIN_NEW if has_earlier else _MIN_LEVEL
        window = min(_WINDOW, count - shortest_level)
        if window < 2:
            return None
        settled = logs[: count - min(_GUARD, window)]
        tail = logs[count - window :]
        level = median(settled[-_LEVEL:])
        earlier_level = level
        level_residuals = settled - level
        if has_earlier:
            earlier_level = median(self._earlier)
            level_residuals = self._earlier - earlier_level
        residuals = np.concatenate([self._residuals, level_residuals])
        deviation = max(MAD_TO_DEVIATION * median(np.abs(residuals)), self._floor)
        scaled_residuals = residuals / deviation
        # the present level is known from these values only, which blurs a step away from it
        certainty = len(settled) / (len(settled) + np.arange(1, window + 1))
        gains = _gains((tail - level) / deviation, scaled_residuals) * certainty
        length = int(gains.argmax()) + 1
        gain = float(gains[length - 1])
        new_level = median(tail[window - length :])
        size = abs(new_level - level)
        is_return = False
        if has_earlier and length >= 2 and gain >= _RETURN_THRESHOLD:
            is_return = abs(new_level - earlier_level) < abs(level - earlier_level) / 2
        is_long = length >= _MIN_NEW and count - length >= _MIN_LEVEL
        # few settled values hide bursts
        youth = 1 + _YOUTH / len(settled)
        caution = _caution(scaled_residuals, size / deviation) * youth
        is_certain = gain >= self._threshold * caution
        is_step = is_long and is_certain and size >= self._smallest_step
        if not is_return and not is_step:
            return None
        return Alarm(
            index=int(self._positions[-length]),
            before=math.exp(median(logs[:-length])),
            after=math.exp(new_level),
            count_after=length,
            is_return=is_return,
        )


def is_seen_online(values: Sequence[float], step: Step, min_relative_change: float) -> bool:
    """Whether the detector sees a step of the offline method too.

    A step with 20 values on either side counts as seen. In the first 30 values it sees no other: it
    learns from them.
    """
    if min(step.index, len(values) - step.index) >= _ACCEPTED:
        return True
    start = max(step.index - _LEARNT_FROM, 0)
    detector = OnlineDetector(min_relative_change=min_relative_change)
    step_rises = step.after > step.before
    for alarm in map(detector.update, values[start:]):
        if alarm is None:
            continue
        is_near = abs(start + alarm.index - step.index) <= _SAME_PLACE
        alarm_rises = alarm.after > alarm.before
        if is_near and alarm_rises == step_rises:
            return True
    return False


def _caution(residuals: Values, noise_widths: float) -> float:
    """Factor on the threshold: how dependent the noise of this series is, and how likely a burst of
    this size.

    Args:
        residuals: Distances from levels that the series has shown, in standard deviations.
        noise_widths: Size of the step, in standard deviations.
    """
    inflation = leftover_inflation(np.clip(residuals, -OUTLIER, OUTLIER))
    dependence = 1 + _DEPENDENCE * math.log(inflation)
    is_outlier = np.abs(residuals) > max(noise_widths / 4, OUTLIER)
    outlier_share = float(is_outlier.mean())
    # 0 for a near level, 1 for a distant one, linear in the logarithm between
    log_size = math.log(max(noise_widths, 1e-3) / _NEAR)
    distance = min(max(log_size / math.log(_DISTANT / _NEAR), 0.0), 1.0)
    burst_risk = distance * outlier_share / (outlier_share + _SOME_OUTLIERS)
    return dependence * (1 + _BURSTS * burst_risk)


def _gains(tail: Values, residuals: Values) -> Values:
    """How much better the best new level explains the newest 1, 2, ... values than the present
    level.

    Args:
        tail: Distances of the newest values from the present level, in standard deviations, shape
            [values].
        residuals: Such distances that the series has shown.
    """
    # a new level is where some of its values are
    offsets = np.concatenate(
        [tail[:, None], tail[:, None] - tail[-_CANDIDATES:]],
        axis=1,
    )
    costs = _costs(offsets, residuals)
    evidence = np.clip(
        costs[:, :1] - costs[:, 1:],
        -2 * _MOST_PER_VALUE,
        _MOST_PER_VALUE,
    )
    gains: Values = np.cumsum(evidence[::-1], axis=0).max(axis=1)
    return gains


def _costs(distances: Values, residuals: Values) -> Values:
    """-2 ln density of each distance; distances and residuals in standard deviations."""
    offsets = (distances[..., None] - residuals) / _BANDWIDTH  # [..., residuals]
    of_residuals = np.exp(-0.5 * offsets**2).sum(axis=-1) / _BANDWIDTH
    normal = _PRIOR_VALUES * np.exp(-0.5 * distances**2)
    outlier_count = max(_OUTLIER_SHARE * len(residuals), 1.0)
    broad = outlier_count * _OUTLIER_SCALE / 2 / (_OUTLIER_SCALE + np.abs(distances)) ** 2
    weighted_density = (of_residuals + normal) / math.sqrt(2 * math.pi) + broad
    total_weight = len(residuals) + _PRIOR_VALUES + outlier_count
    costs: Values = -2 * np.log(weighted_density / total_weight)
    return costs
