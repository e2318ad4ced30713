"""Bursts: short spells that noise itself makes, such as a throttled clock or a busy neighbour.
Pure.

A level lasts and a burst ends. The mean length m of bursts is learnt from the series. Lengths of a
memoryless state are geometric: a burst reaches length L with probability (1 - 1/m)^(L - 1).
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofwatch.ci.changepoint.noise import OUTLIER, Flags, Values
from roofwatch.ci.changepoint.segmentation import MIN_SEGMENT, Segmentation

_ALPHA = 0.01
"""Share of series in which a burst may pass for a level that comes and goes."""
_EDGE_ALPHA = 0.4
"""The same for both ends, times the number of values: a long series can wait for more of them."""
_MAX_EDGE_ALPHA = 0.05
_PRIOR_MEAN = 4.0
"""Values in a burst before one was seen."""
_PRIOR_COUNT = 0.5
_PRIOR_VALUES = 200.0
"""The prior rate: half a burst in 200 values."""
_SEPARATE = 5.0
"""Standard deviations between two levels from which on a value shows which of them it belongs to.
"""
_LEVEL_FOR_SURE = 20
"""A level of so many values is believed whatever the noise does. Without this limit, noise could
hide any step.
"""
_LONG = 3 * _LEVEL_FOR_SURE
"""A segment of more values is a level."""


@dataclass(frozen=True)
class Bursts:
    """How often a series bursts, and for how long."""

    count: int
    total_length: int

    @classmethod
    def of(cls, is_outlier: Flags) -> "Bursts":
        """Count runs of at least two outliers."""
        padded = np.pad(is_outlier, 1).astype(np.int8)
        # runs begin and end at the turns by turns
        turns = np.flatnonzero(np.diff(padded))
        lengths = turns[1::2] - turns[::2]
        lengths = lengths[lengths >= 2]
        return cls(len(lengths), int(lengths.sum()))

    def longest_inside(self, count: int) -> float:
        """Length from which on a spell inside `count` values is a level."""
        # the prior weighs less the longer the series is
        prior = _PRIOR_COUNT * count / (count + _PRIOR_VALUES)
        expected = self.count + prior
        return self._length_at(expected / _ALPHA)

    def longest_at_edge(self, count: int) -> float:
        """Length from which on a spell that reaches the end of `count` values is a level."""
        alpha = min(_EDGE_ALPHA / count, _MAX_EDGE_ALPHA)
        return self._length_at(self._rate(count) * self._mean / alpha)

    @property
    def _mean(self) -> float:
        return (self.total_length + _PRIOR_MEAN) / (self.count + 1)

    def _rate(self, count: int) -> float:
        return (self.count + _PRIOR_COUNT) / (count + _PRIOR_VALUES)

    def _length_at(self, odds: float) -> float:
        """Length that one in `odds` bursts reaches."""
        # probability that a burst goes on for another value
        continues = 1 - 1 / max(self._mean, 1.2)
        log_odds = math.log(max(odds, 1.0))
        return 1 - log_odds / math.log(continues)


def find_burst(
    values: Values,
    cut: Segmentation,
    deviation: float,
    masked: Flags,
) -> tuple[int, int] | None:
    """Find the shortest segment that is too short to be a level.

    Args:
        values: On the scale they are judged on.
        cut: Their levels.
        deviation: Of their noise.
        masked: Values of other bursts.

    Returns:
        First position and end of the segment; None if all are levels.
    """
    count = len(values)
    if len(cut.levels) < 2:
        return None
    residuals = values - cut.fitted(count)
    is_outlier = (np.abs(residuals) > OUTLIER * deviation) | masked
    segments = _segments_of(cut, count)
    for segment in sorted(segments, key=lambda segment: segment.end - segment.start):
        start, end = segment.start, segment.end
        if end - start > _LONG:
            return None
        length = _length_of(
            segment=segment,
            values=values[start:end][~masked[start:end]],
            deviation=deviation,
        )
        if length >= _LEVEL_FOR_SURE:
            continue
        # the segment must not count as one of the bursts that it is compared with
        is_outlier_elsewhere = is_outlier.copy()
        is_outlier_elsewhere[start:end] = masked[start:end]
        bursts = Bursts.of(is_outlier_elsewhere)
        needed_length = bursts.longest_at_edge(count)
        if segment.comes_and_goes:
            needed_length = bursts.longest_inside(count)
        if length < min(max(needed_length, MIN_SEGMENT), _LEVEL_FOR_SURE):
            return start, end
    return None


@dataclass(frozen=True)
class _Segment:
    """One level of a segmentation, with its neighbouring levels."""

    start: int
    end: int
    level: float
    neighbours: list[float]

    @property
    def comes_and_goes(self) -> bool:
        """The level lies above both neighbours, or below both."""
        if len(self.neighbours) != 2:
            return False
        previous, following = self.neighbours
        return (self.level - previous) * (self.level - following) > 0


def _segments_of(cut: Segmentation, count: int) -> list[_Segment]:
    """The levels of a cut, each with those before and after it."""
    levels = cut.levels
    segments = []
    bounds = pairwise([0, *cut.starts, count])
    for index, (start, end) in enumerate(bounds):
        neighbours = levels[max(index - 1, 0) : index]
        neighbours += levels[index + 1 : index + 2]
        segments.append(
            _Segment(
                start=start,
                end=end,
                level=levels[index],
                neighbours=neighbours,
            )
        )
    return segments


def _length_of(
    segment: _Segment,
    values: Values,
    deviation: float,
) -> int:
    """Values of a segment that stay off its neighbours' levels, as far as these are distinct."""
    length = len(values)
    for level in segment.neighbours:
        if abs(level - segment.level) > _SEPARATE * deviation:
            length = min(length, _longest_away(values, level, deviation))
    return length


def _longest_away(
    values: Values,
    level: float,
    deviation: float,
) -> int:
    """Values in the longest run that stays off a level. One value there is an outlier, two in
    succession a return.
    """
    # nearer to this level than to one that is just separate
    reach = _SEPARATE / 2 * deviation
    is_there = np.abs(values - level) < reach
    returns = np.flatnonzero(is_there[1:] & is_there[:-1])
    if len(returns) == 0:
        return len(values)
    ends = [-1, *(returns + 1), len(values)]
    return int(np.diff(ends).max()) - 1
