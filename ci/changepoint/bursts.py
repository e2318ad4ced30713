"""Bursts: spells that noise itself makes, a throttled clock or a busy neighbour, told from levels by how long they
last. Pure.

A level lasts; a burst ends. How long bursts of a series last is learnt from those it shows: lengths of a memoryless
state are geometric, so after m values on average the chance of at least L is (1 − 1/m)^(L − 1). A level that comes and
goes must outlast what that gives in the whole series at the promised rate; one at an end of the series, which may only
have been cut off, what it gives at that place. docs/analysis.md derives both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofwatch.ci.changepoint.noise import LEVEL_FOR_SURE, OUTLIER, Flags, Values

_ALPHA = 0.01
"""Share of series in which a burst may pass for a level that comes and goes."""
_EDGE_ALPHA = 0.4
"""The same for the ends, times the number of values: a long series can wait for more of them, a short one cannot."""
_MAX_EDGE_ALPHA = 0.05
_PRIOR_MEAN = 4.0
"""Values in a burst before one was seen."""
_PRIOR_COUNT = 0.5
_PRIOR_VALUES = 200.0
"""Before a series is seen: half a burst in 200 values."""
_SEPARATE = 5.0
"""Standard deviations between two levels from which on a value tells which of them it belongs to."""

_LONG = 3 * LEVEL_FOR_SURE
"""Values in a segment that is a level at first sight."""


@dataclass(frozen=True)
class Bursts:
    """How often a series bursts, and for how long."""

    count: int
    total_length: int

    @classmethod
    def of(cls, is_outlier: Flags) -> Bursts:
        """Runs of at least two outliers: a single one is only an outlier."""
        flags = np.zeros(len(is_outlier) + 2, dtype=np.bool_)
        flags[1:-1] = is_outlier
        turns = np.flatnonzero(flags[1:] != flags[:-1])  # where a run begins, and where it has ended
        lengths = turns[1::2] - turns[::2]
        lengths = lengths[lengths >= 2]
        return cls(len(lengths), int(lengths.sum()))

    def longest_inside(self, count: int) -> float:
        """Length that a spell inside `count` values must reach to be a level."""
        expected = self.count + _PRIOR_COUNT * count / (count + _PRIOR_VALUES)
        return 1 + self._decay * math.log(max(expected / _ALPHA, 1.0))

    def longest_at_edge(self, count: int) -> float:
        """Length that a spell which reaches the end of `count` values must have to be a level."""
        rate = (self.count + _PRIOR_COUNT) / (count + _PRIOR_VALUES)
        alpha = min(_EDGE_ALPHA / count, _MAX_EDGE_ALPHA)
        return 1 + self._decay * math.log(max(rate * self._mean / alpha, 1.0))

    def longest_at_rate(self, count: int, per_value: float) -> float:
        """Length that bursts begin to exceed at most so often per value, where `count` values showed these."""
        rate = (self.count + _PRIOR_COUNT) / (count + _PRIOR_VALUES)
        return 1 + self._decay * math.log(max(rate / per_value, 1.0))

    @property
    def _mean(self) -> float:
        return (self.total_length + _PRIOR_MEAN) / (self.count + 1)

    @property
    def _decay(self) -> float:
        """Values after which a burst lives on with probability 1/e."""
        return -1 / math.log(1 - 1 / max(self._mean, 1.2))


def find_burst(
    values: Values, starts: list[int], levels: list[float], deviation: float, masked: Flags, min_segment: int
) -> tuple[int, int] | None:
    """The shortest segment that is too short to be a level, as positions from and to; None if all are levels."""
    if len(levels) < 2:
        return None
    edges = [0, *starts, len(values)]
    if min(end - start for start, end in pairwise(edges)) > _LONG:
        return None
    fitted = np.repeat(levels, np.diff(edges))
    is_outlier = (np.abs(values - fitted) > OUTLIER * deviation) | masked
    found: tuple[int, int] | None = None
    for index, (start, end) in enumerate(pairwise(edges)):
        if end - start > _LONG or (found is not None and end - start >= found[1] - found[0]):
            continue
        neighbours = [levels[i] for i in (index - 1, index + 1) if 0 <= i < len(levels)]
        own = values[start:end][~masked[start:end]]
        length = len(own)
        for other in neighbours:
            if abs(other - levels[index]) > _SEPARATE * deviation:
                length = min(length, _longest_away(own, other, deviation))
        if length >= LEVEL_FOR_SURE:
            continue
        elsewhere = is_outlier.copy()
        elsewhere[start:end] = masked[start:end]
        bursts = Bursts.of(elsewhere)
        comes_and_goes = len(neighbours) == 2 and (levels[index] - neighbours[0]) * (levels[index] - neighbours[1]) > 0
        needed = bursts.longest_inside(len(values)) if comes_and_goes else bursts.longest_at_edge(len(values))
        if length < min(max(needed, min_segment), LEVEL_FOR_SURE):
            found = start, end
    return found


def _longest_away(values: Values, level: float, deviation: float) -> int:
    """Values in the longest run that stays off a level: a spell that keeps returning to it never left. One value there
    is an outlier, two in succession are a return.
    """
    there = np.abs(values - level) < _SEPARATE / 2 * deviation
    returns = np.flatnonzero(there[1:] & there[:-1])
    if len(returns) == 0:
        return len(values)
    gaps = np.diff(np.concatenate([[-1], returns + 1, [len(values)]])) - 1
    return int(gaps.max())
