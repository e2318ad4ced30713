"""Where the levels of a series begin, by least total cost over all ways to cut it. Pure.

Optimal partitioning (Jackson et al. 2005) under any table of costs (`ci.series.noise`), over levels taken from the
series itself and boundaries taken from a scan of it. Without autocorrelation the cost of a segment is a sum over its
values, so it is added up once per block between two possible boundaries, and the recursion runs over those blocks
alone: 36 steps of a few vector operations, whatever the length of the series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ci.series.noise import OUTLIER, Flags, Noise, Values, bins_of

MAX_BOUNDARIES = 36
"""About; ten times as many as there are steps to be found in a few hundred values."""
MAX_LEVELS = 48
"""Quantiles of the series: a level of 20 values in 300 still has three of them to choose from."""
_WINDOWS = (1, 3, 6, 12, 25, 50)
"""Values on either side over which the scan compares: a factor of two apart, so every length is near one of them."""
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
        return np.repeat(self.levels, np.diff([0, *self.starts, count]))


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
        self._edges = np.concatenate([[0], possible_boundaries(values, deviation, min_segment)])
        self._levels = _possible_levels(values)
        self._differences = values[:, None] - self._levels
        if widths is not None:
            self._differences = self._differences / widths[:, None]
        self._noise: Noise | None = None
        self._node = self._differences
        self._pair: Values | None = None

    def cut(self, noise: Noise, penalty: float, masked: Flags | None = None) -> Segmentation:
        """The cheapest segmentation; values that are masked cost nothing wherever they are."""
        if noise is not self._noise:
            self._noise, self._node, self._pair = noise, *self._costs(noise)
        node, pair = self._node, self._pair
        if masked is not None and masked.any():
            node = np.where(masked[:, None], 0.0, node)
            if pair is not None:
                untied = masked.copy()
                untied[1:] |= masked[:-1]
                pair = np.where(untied[:, None], 0.0, pair)
        blocks = np.add.reduceat(node if pair is None else node + pair, self._edges, axis=0)
        return self._recur(blocks, None if pair is None else pair[self._edges], penalty)

    def _costs(self, noise: Noise) -> tuple[Values, Values | None]:
        """Of each value at each level, and of each value's tie to the one before it; shapes [values, levels]."""
        distances = self._differences * (1 / noise.deviation)
        node = np.take(noise.costs, bins_of(distances))
        if noise.autocorrelation:
            return node, _innovation_costs(distances, node, noise)
        if noise.stickiness > _NO_STICKINESS:
            return node, None
        is_outlier = np.abs(distances) > OUTLIER
        pair = np.zeros_like(node)
        np.multiply(is_outlier[1:] & is_outlier[:-1], noise.stickiness, out=pair[1:])
        return node, pair

    def _recur(self, blocks: Values, ties: Values | None, penalty: float) -> Segmentation:
        # running[level]: least cost so far with the last segment at that level; began[level]: where that one starts
        running = blocks[0] if ties is None else blocks[0] - ties[0]
        began = np.zeros(len(running), dtype=np.intp)
        best_level: list[int] = [0]
        best_began: list[int] = [0]
        for index in range(1, len(blocks)):
            level = int(running.argmin())
            best_level.append(level)
            best_began.append(int(began[level]))
            # a new segment owes nothing to the value before it
            offered = running[level] + penalty if ties is None else running[level] + penalty - ties[index]
            began[running > offered] = index
            running = np.minimum(running, offered)
            running += blocks[index]
        level = int(running.argmin())
        cost = float(running[level])
        starts: list[int] = []
        levels = [float(self._levels[level])]
        index = int(began[level])
        while index > 0:
            starts.append(int(self._edges[index]))
            levels.append(float(self._levels[best_level[index]]))
            index = best_began[index]
        return Segmentation(starts[::-1], levels[::-1], cost)


def _innovation_costs(distances: Values, node: Values, noise: Noise) -> Values:
    """What the tie to the value before changes in the cost of a value: an AR(1) process, read forwards and backwards so
    that a mirrored series is judged alike.
    """
    assert noise.innovation_costs is not None
    scaled = distances * (noise.deviation / noise.innovation)
    limit = OUTLIER * noise.deviation / noise.innovation
    # what an outlier says of its neighbour is not believed
    told = np.minimum(np.maximum(scaled, -limit), limit) * noise.autocorrelation
    # both densities are per unit of their own width
    wider = 2 * math.log(noise.innovation / noise.deviation)
    forwards = np.take(noise.innovation_costs, bins_of(scaled[1:] - told[:-1]))
    backwards = np.take(noise.innovation_costs, bins_of(scaled[:-1] - told[1:]))
    pair = np.zeros_like(node)
    pair[1:] = (forwards + backwards - node[1:] - node[:-1]) / 2 + wider
    return pair


def _possible_levels(values: Values) -> Values:
    if len(values) > MAX_LEVELS:
        ordered = np.sort(values)
        values = ordered[((np.arange(MAX_LEVELS) + 0.5) / MAX_LEVELS * len(values)).astype(np.intp)]
    return np.unique(values)


def possible_boundaries(values: Values, deviation: float, min_segment: int) -> NDArray[np.intp]:
    """Positions at which a level may begin: all in a short series, else where the means of windows on either side
    differ most, for windows of several lengths.
    """
    count = len(values)
    positions = np.arange(min_segment, count - min_segment + 1)
    if count <= MAX_BOUNDARIES:
        return positions
    half = _SMOOTHING // 2
    padded = np.concatenate([values[half:0:-1], values, values[-2 : -half - 2 : -1]])
    smooth = np.sort(sliding_window_view(padded, _SMOOTHING), axis=1)[:, half]
    winsorised = smooth + np.minimum(np.maximum(values - smooth, -3 * deviation), 3 * deviation)
    sums = np.concatenate([[0.0], np.cumsum(winsorised)])
    chosen = np.zeros(count + 1, dtype=bool)
    for window in _WINDOWS:
        if 2 * window > count:
            break
        left = np.minimum(window, positions)
        right = np.minimum(window, count - positions)
        rise = (sums[positions + right] - sums[positions]) / right - (sums[positions] - sums[positions - left]) / left
        size = np.abs(rise) * np.sqrt(left * right / (left + right))
        reach = max(1, window // 2)
        peaks = np.flatnonzero((size >= _highest_around(size, reach)) & (size > 1.5 * deviation))
        best = peaks[np.argsort(-size[peaks], kind="stable")[: MAX_BOUNDARIES // 3]]
        chosen[positions[best]] = True
    return np.flatnonzero(chosen)


def _highest_around(sizes: Values, reach: int) -> Values:
    """Maximum within `reach` positions on either side, by doubling."""
    fence = np.full(reach, -1.0)
    highest = np.concatenate([fence, sizes, fence])
    span, width = 1, 2 * reach + 1
    while span < width:
        step = min(span, width - span)
        highest = np.maximum(highest[:-step], highest[step:])
        span += step
    return highest
