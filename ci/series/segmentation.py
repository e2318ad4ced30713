"""Where the levels of a series begin, by least total cost over all ways to cut it. Pure.

Optimal partitioning (Jackson et al. 2005) under any table of costs (`ci.series.noise`), over levels taken from the
series itself and boundaries taken from a scan of it. Without autocorrelation the cost of a segment is a sum over its
values, so it is added up once per block between two possible boundaries, and the recursion runs over those blocks
alone: 36 steps of a few vector operations, whatever the length of the series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ci.series.noise import OUTLIER, PER_DEVIATION, Flags, Noise, Values, bins_of, median, put_bins

MAX_BOUNDARIES = 36
"""About; ten times as many as there are steps to be found in a few hundred values."""
MAX_LEVELS = 48
"""Quantiles of the series: a level of 20 values in 300 still has three of them to choose from."""
_WINDOWS = (1, 3, 6, 12, 25, 50)
"""Values on either side over which the scan compares: a factor of two apart, so every length is near one of them."""
_NO_STICKINESS = -0.5
"""Outliers in succession that are so little cheaper than apart are not worth telling apart."""
_LEAST_RISE = 1.5
"""Standard errors of the difference between two windows that a boundary is tried from: a step that is worth its penalty
has four."""
_GRAINS = 2.0**20
"""Parts of a standard deviation that the scan rounds to."""
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
        self.deviation = deviation
        self.winsorised = winsorised(values, deviation)
        self.places = possible_boundaries(self.winsorised, deviation, min_segment)
        self._edges = np.concatenate([[0], self.places])
        self._levels = _possible_levels(values)
        self._differences = values[:, None] - self._levels
        if widths is not None:
            self._differences = self._differences / widths[:, None]
        self._noise: Noise | None = None
        self._bins = np.empty(self._differences.shape, dtype=np.intp)
        self._node = np.empty_like(self._differences)
        self._pair: Values | None = None
        self._blocks = np.empty((0, 0))

    def cut(self, noise: Noise, penalty: float, masked: Flags | None = None) -> Segmentation:
        """The cheapest segmentation; values that are masked cost nothing wherever they are."""
        if noise is not self._noise:
            self._price(noise)
        if masked is None or not masked.any():
            return self._recur(self._blocks, self._ties(self._pair), penalty)
        node = np.where(masked[:, None], 0.0, self._node)
        pair = self._pair
        if pair is not None:
            untied = masked.copy()
            untied[1:] |= masked[:-1]
            pair = np.where(untied[:, None], 0.0, pair)
        return self._recur(self._added_up(node, pair), self._ties(pair), penalty)

    def _added_up(self, node: Values, pair: Values | None) -> Values:
        """Costs of the blocks between possible boundaries."""
        return np.add.reduceat(node if pair is None else node + pair, self._edges, axis=0)

    def _ties(self, pair: Values | None) -> Values | None:
        """Of the first value of each block to the one before it."""
        return None if pair is None else pair[self._edges]

    def _price(self, noise: Noise) -> None:
        """Work out the cost of each value at each level, and of its tie to the one before it.

        Into the same memory each time: to ask for so much anew costs as much as to fill it.
        """
        self._noise, self._pair = noise, None
        put_bins(np.multiply(self._differences, PER_DEVIATION / noise.deviation, out=self._node), self._bins)
        np.take(noise.costs, self._bins, out=self._node, mode="clip")
        if noise.autocorrelation:
            self._pair = _innovation_costs(self._differences * (1 / noise.deviation), self._node, noise)
        elif noise.stickiness <= _NO_STICKINESS:
            is_outlier = np.abs(self._differences) > OUTLIER * noise.deviation
            self._pair = np.zeros_like(self._node)
            np.multiply(is_outlier[1:] & is_outlier[:-1], noise.stickiness, out=self._pair[1:])
        self._blocks = self._added_up(self._node, self._pair)

    def _recur(self, blocks: Values, ties: Values | None, penalty: float) -> Segmentation:
        # least cost up to the end of each block with the last segment at each level
        least = np.empty_like(blocks)
        least[0] = blocks[0] if ties is None else blocks[0] - ties[0]
        # what it costs to begin a segment with each block but the first: the same at each level, or at each its own
        offers: list[float | Values] = []
        lowest = [0]
        before = least[0]
        for block, after, tie in zip(blocks[1:], least[1:], repeat(None) if ties is None else ties[1:], strict=False):
            level = int(before.argmin())
            lowest.append(level)
            offer = before[level] + penalty
            if tie is not None:
                offer = offer - tie  # a new segment owes nothing to the value before it
            offers.append(offer)
            np.minimum(before, offer, out=after)
            after += block
            before = after
        offered = np.array(offers).reshape(len(offers), 1 if ties is None else blocks.shape[1])
        begins = least[:-1] > offered
        level, end = int(least[-1].argmin()), len(blocks)
        cost = float(least[-1, level])
        starts: list[int] = []
        levels = [float(self._levels[level])]
        while len(begun := np.flatnonzero(begins[: end - 1, level])):
            end = int(begun[-1]) + 1
            level = lowest[end]
            starts.append(int(self._edges[end]))
            levels.append(float(self._levels[level]))
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


def winsorised(values: Values, deviation: float) -> Values:
    """The values, brought to within three deviations of their running median; a short series as it is."""
    if len(values) <= MAX_BOUNDARIES:
        return values
    half = _SMOOTHING // 2
    padded = np.concatenate([values[half:0:-1], values, values[-2 : -half - 2 : -1]])
    smooth = np.sort(sliding_window_view(padded, _SMOOTHING), axis=1)[:, half]
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
    positions = np.arange(min_segment, count - min_segment + 1)
    if count <= MAX_BOUNDARIES:
        return positions
    # whole numbers add up to the same in either direction, so that peaks of one height stay so
    grains = np.rint((held - median(held)) * (_GRAINS / deviation))
    sums = np.concatenate([[0.0], np.cumsum(grains)])
    windows = _windows(count, min_segment)
    here = sums[positions]
    rises = (sums[windows.ends] - here) / windows.right - (here - sums[windows.starts]) / windows.left
    sizes = np.abs(rises) * windows.weights
    is_peak = (sizes >= _highest_around(sizes, windows.reaches)) & (sizes > _LEAST_RISE * _GRAINS)
    chosen = np.zeros(count + 1, dtype=bool)
    for size, is_own in zip(sizes, is_peak, strict=True):
        best = np.flatnonzero(is_own)
        if len(best) > MAX_BOUNDARIES // 3:
            best = best[np.argsort(-size[best], kind="stable")[: MAX_BOUNDARIES // 3]]
        chosen[best + min_segment] = True
    return np.flatnonzero(chosen)


@dataclass(frozen=True)
class _Windows:
    """What the scan compares on either side of each place, for windows of several lengths; at an end of the series they
    are as long as it allows. Shapes are [windows, places].
    """

    starts: NDArray[np.intp]
    ends: NDArray[np.intp]
    left: Values
    """Values in the window before the place."""
    right: Values
    weights: Values
    """How surely the difference of their means is known: √(left · right / (left + right))."""
    reaches: list[int]
    """Places on either side of a peak that must not be higher, in windows of each length, from short to long."""


@lru_cache(maxsize=16)
def _windows(count: int, min_segment: int) -> _Windows:
    """The same for all series of one length, of which a project has as many as it has series."""
    positions = np.arange(min_segment, count - min_segment + 1)
    windows = [window for window in _WINDOWS if 2 * window <= count]
    left = np.minimum(np.array(windows)[:, None], positions)
    right = left[:, ::-1]
    return _Windows(
        starts=positions - left,
        ends=positions + right,
        left=left.astype(np.float64),
        right=right.astype(np.float64),
        weights=np.sqrt(left * right / (left + right)),
        reaches=[max(1, window // 2) for window in windows],
    )


def _highest_around(sizes: Values, reaches: list[int]) -> Values:
    """Maximum within a reach on either side, by doubling, for all rows at once.

    Args:
        sizes: Above 0, shape [rows, places].
        reaches: Places on either side for each row, rising.
    """
    count, most = sizes.shape[1], reaches[-1]
    spans = np.full((len(sizes), count + 2 * most), -1.0)
    spans[:, most : most + count] = sizes
    highest = np.empty_like(sizes)
    width = 1  # of what each element of `spans` is the maximum of, from its place on
    for row, reach in enumerate(reaches):
        while 2 * width <= 2 * reach + 1:
            np.maximum(spans[row:, :-width], spans[row:, width:], out=spans[row:, :-width])
            width *= 2
        first, last = most - reach, most + reach + 1 - width
        np.maximum(spans[row, first : first + count], spans[row, last : last + count], out=highest[row])
    return highest
