"""Where the levels of a series begin, by least total cost over all ways to cut it. Pure.

Optimal partitioning (Jackson et al. 2005) under any table of costs (`roofwatch.ci.changepoint.noise`), over levels
taken from the series itself and boundaries taken from a scan of it. The cost of a segment is a sum over its values, so
it is added up once per block between two possible boundaries, and the recursion runs over those blocks alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import OUTLIER, Flags, Noise, Values, bins_of, median

MAX_BOUNDARIES = 36
"""About; ten times as many as there are steps to be found in a few hundred values."""
MAX_LEVELS = 48
"""Quantiles of the series: a level of 20 values in 300 still has three of them to choose from."""
_QUANTILES = (np.arange(MAX_LEVELS) + 0.5) / MAX_LEVELS
_WINDOWS = (1, 3, 6, 12, 25, 50)
"""Values on either side over which the scan compares: a factor of two apart, so every length is near one of them."""
_LEAST_RISE = 1.5
"""Standard errors of the difference between two windows that a boundary is tried from: a step that is worth its penalty
has four."""
_GRAINS = 2.0**20
"""Parts of a standard deviation that the scan rounds to."""
_NO_STICKINESS = -0.5
"""Outliers in succession that are so little cheaper than apart are not worth telling apart."""
_SMOOTHING = 9
"""Values of the running median that the scan winsorises around: bursts of up to four cannot move it."""


@dataclass(frozen=True)
class Segmentation:
    """Levels of a series, each from one boundary to the next."""

    starts: list[int]
    """First positions of all segments but the first."""
    levels: list[float]
    cost: float
    """−2 ln likelihood and penalties."""

    def fitted(self, count: int) -> Values:
        """The level at each of the values."""
        lengths = [end - start for start, end in pairwise([0, *self.starts, count])]
        return np.repeat(self.levels, lengths)


class Segmenter:
    """Cuts one series again and again, as more is learnt of its noise."""

    def __init__(self, values: Values, widths: Values | None, deviation: float, min_segment: int) -> None:
        """Prepare what does not depend on the noise.

        Args:
            values: On the scale they are judged on.
            widths: How much wider each value spreads than the narrowest, as a factor; None: all alike.
            deviation: First guess at their noise, for the scan.
            min_segment: Values in the shortest level.
        """
        self.values = values
        self.widths = widths
        self.deviation = deviation
        self.winsorised = winsorised(values, deviation)
        self.places = possible_boundaries(self.winsorised, deviation, min_segment)
        self._edges = np.concatenate([[0], self.places])
        self.levels = _possible_levels(values)
        self._distances = values[:, None] - self.levels  # [values, levels]
        if widths is not None:
            self._distances /= widths[:, None]

    def cut(self, noise: Noise, penalty: float, masked: Flags | None = None) -> Segmentation:
        """The cheapest segmentation; values that are masked cost nothing wherever they are."""
        blocks, ties = self.block_costs(noise, masked)
        return self._recur(blocks, ties, penalty)

    def block_costs(self, noise: Noise, masked: Flags | None = None) -> tuple[Values, Values | None]:
        """Costs of the values from each boundary to the next, and what of each is owed to the value before its first
        one, both of shape [blocks, levels]; None where values owe each other nothing.
        """
        own = noise.costs[bins_of(self._distances / noise.deviation)]
        ties = self._ties(noise, own)
        costs = own if ties is None else own + ties
        block_ties = None if ties is None else ties[self._edges]
        if masked is not None and masked.any():
            untied = masked.copy()
            untied[1:] |= masked[:-1]
            costs[untied] = own[untied]
            costs[masked] = 0.0
            if block_ties is not None:
                block_ties[untied[self._edges]] = 0.0
        return np.add.reduceat(costs, self._edges, axis=0), block_ties

    def _ties(self, noise: Noise, own: Values) -> Values | None:
        """What the value before changes in the cost of each value, at each level; None where it changes nothing."""
        ties = np.zeros_like(own)
        if noise.autocorrelation:
            assert noise.innovation_costs is not None
            scaled = self._distances / noise.innovation
            # what an outlier says of its neighbour is not believed
            limit = OUTLIER * noise.deviation / noise.innovation
            told = noise.autocorrelation * np.clip(scaled, -limit, limit)
            # read forwards and backwards, so that a mirrored series is judged alike
            forwards = noise.innovation_costs[bins_of(scaled[1:] - told[:-1])]
            backwards = noise.innovation_costs[bins_of(scaled[:-1] - told[1:])]
            # both densities are per unit of their own width
            wider = 2 * math.log(noise.innovation / noise.deviation)
            ties[1:] = (forwards + backwards - own[1:] - own[:-1]) / 2 + wider
        elif noise.stickiness <= _NO_STICKINESS:
            is_outlier = np.abs(self._distances) > OUTLIER * noise.deviation
            ties[1:] = noise.stickiness * (is_outlier[1:] & is_outlier[:-1])
        else:
            return None
        return ties

    def _recur(self, blocks: Values, ties: Values | None, penalty: float) -> Segmentation:
        before = blocks[0] if ties is None else blocks[0] - ties[0]
        # least cost up to the end of each block with the last segment at each level
        least = [before]
        # what it costs to begin a segment with each block but the first, beside what it then does not owe to the value
        # before it; as an array too, which numpy would make of it
        offers: list[float] = []
        offered = np.empty(())
        for block, tie in zip(blocks[1:], repeat(None) if ties is None else ties[1:], strict=False):
            offer = before.item(before.argmin()) + penalty
            offered[()] = offer
            before = np.minimum(before, offered if tie is None else offered - tie)
            before += block
            least.append(before)
            offers.append(offer)
        return self._traced_back(least, offers, ties)

    def _traced_back(self, least: Sequence[Values], offers: Sequence[float], ties: Values | None) -> Segmentation:
        """From the cheapest level at the end, each time to the block that it was cheaper to begin a segment with."""
        level, end = int(least[-1].argmin()), len(least) - 1
        cost: float = least[-1].item(level)
        starts: list[int] = []
        levels: list[float] = [self.levels.item(level)]
        while end:
            owed = 0.0 if ties is None else ties.item(end, level)
            end -= 1
            if least[end].item(level) > offers[end] - owed:
                level = int(least[end].argmin())
                starts.append(int(self._edges[end + 1]))
                levels.append(self.levels.item(level))
        return Segmentation(starts[::-1], levels[::-1], cost)


def _possible_levels(values: Values) -> Values:
    levels = np.sort(values)
    if len(values) > MAX_LEVELS:
        levels = levels[(_QUANTILES * len(values)).astype(np.intp)]
    is_new = levels[1:] != levels[:-1]
    return levels if is_new.all() else np.concatenate([levels[:1], levels[1:][is_new]])


def winsorised(values: Values, deviation: float) -> Values:
    """The values, brought to within three deviations of their running median; a short series as it is."""
    if len(values) <= MAX_BOUNDARIES:
        return values
    half = _SMOOTHING // 2
    padded = np.concatenate([values[half:0:-1], values, values[-2 : -half - 2 : -1]])
    smooth = np.partition(sliding_window_view(padded, _SMOOTHING), half, axis=1)[:, half]  # medians
    held: Values = smooth + np.minimum(np.maximum(values - smooth, -3 * deviation), 3 * deviation)
    return held


def possible_boundaries(held: Values, deviation: float, min_segment: int) -> NDArray[np.intp]:
    """Positions at which a level may begin: all in a short series, else where the means of windows on either side
    differ most, for windows of several lengths.

    Args:
        held: The values, winsorised.
        deviation: Of their noise.
        min_segment: Values in the shortest level.
    """
    count = len(held)
    places = np.arange(min_segment, count - min_segment + 1)
    if count <= MAX_BOUNDARIES:
        return places
    # whole numbers add up to the same in either direction, so that peaks of one height stay so
    grains = np.rint((held - median(held)) * (_GRAINS / deviation))
    sums = np.concatenate([[0.0], np.cumsum(grains)])
    chosen = np.zeros(len(places), dtype=bool)
    for window in _WINDOWS:
        if 2 * window > count:
            break
        # at an end of the series a window is as long as that allows
        left, right = np.minimum(window, places), np.minimum(window, count - places)
        rises = (sums[places + right] - sums[places]) / right - (sums[places] - sums[places - left]) / left
        sizes = np.abs(rises) * np.sqrt(left * right / (left + right))
        reach = max(1, window // 2)
        highest = sliding_window_view(np.pad(sizes, reach), 2 * reach + 1).max(axis=1)
        (best,) = ((sizes >= highest) & (sizes > _LEAST_RISE * _GRAINS)).nonzero()
        if len(best) > MAX_BOUNDARIES // 3:
            best = best[(-sizes[best]).argsort(kind="stable")[: MAX_BOUNDARIES // 3]]
        chosen[best] = True
    return places[chosen]
