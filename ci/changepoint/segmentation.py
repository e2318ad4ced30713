"""Where the levels of a series begin, by least total cost over all ways to cut it. Pure.

Optimal partitioning (Jackson et al. 2005) under a learnt table of costs
(`roofwatch.ci.changepoint.noise`). Levels are quantiles of the series, and boundaries come from a
scan of it. Costs are summed once per block between two possible boundaries, and the recursion runs
over blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import OUTLIER, Flags, Noise, Values, bins_of, median

MIN_SEGMENT = 3
"""Values in the shortest level: one or two values that differ are outliers until a third agrees."""
MAX_BOUNDARIES = 36
"""About ten times the steps to be found in a few hundred values."""
_MAX_LEVELS = 48
"""A level of 20 values in 300 still has three quantiles to choose from."""
_WINDOWS = (1, 3, 6, 12, 25, 50)
"""Values on either side over which the scan compares: a factor of two apart, so every length is
near one of them.
"""
_MIN_RISE = 1.5
"""Standard errors of the difference between two windows from which on a boundary is tried."""
_GRAINS = 2.0**20
"""Parts of a standard deviation that the scan rounds to."""
_MIN_STICKINESS = 0.5
"""A smaller discount on outliers in succession is ignored."""
_SMOOTHING = 9
"""Values of the running median that the scan winsorises around: bursts of up to four cannot move
it.
"""


@dataclass(frozen=True)
class Segmentation:
    """Levels of a series, each from one boundary to the next."""

    starts: list[int]
    """First positions of all segments but the first."""
    levels: list[float]
    """One more than `starts`."""
    cost: float
    """-2 ln likelihood and penalties."""

    def fitted(self, count: int) -> Values:
        """The level at each value."""
        lengths = np.diff([0, *self.starts, count])
        return np.repeat(self.levels, lengths)


class Segmenter:
    """Cuts one series, with whatever noise is known by then."""

    def __init__(
        self,
        values: Values,
        widths: Values | None,
        deviation: float,
    ) -> None:
        """Prepare what does not depend on the noise.

        Args:
            values: On the scale they are judged on.
            widths: How much wider each value spreads than a typical one, as a factor; None: all
                equal.
            deviation: First guess at the noise, for the scan.
        """
        self.values = values
        self.widths = widths
        self.deviation = deviation
        self.winsorised = winsorised(values, deviation)
        self.places = possible_boundaries(self.winsorised, deviation)
        self._edges = np.concatenate([[0], self.places])
        self.levels = _possible_levels(values)
        self._distances = values[:, None] - self.levels  # [values, levels]
        # a value that spreads more is nearer to every level, counted in its own width
        if widths is not None:
            self._distances /= widths[:, None]

    def cut(
        self,
        noise: Noise,
        penalty: float,
        masked: Flags,
    ) -> Segmentation:
        """Find the cheapest segmentation. Masked values cost nothing wherever they are."""
        blocks, ties = self.block_costs(noise, masked)
        before = blocks[0] - ties[0]
        # cheapest cost up to the end of each block, by the level of the last segment
        cheapest = [before]
        # cost of beginning a segment with each block but the first
        offers: list[float] = []
        for block, tie in zip(blocks[1:], ties[1:], strict=True):
            offer = float(before.min()) + penalty
            before = np.minimum(before, offer - tie) + block
            cheapest.append(before)
            offers.append(offer)
        return self._trace_back(cheapest, offers, ties)

    def _trace_back(
        self,
        cheapest: Sequence[Values],
        offers: Sequence[float],
        ties: Values,
    ) -> Segmentation:
        """Read the cheapest segmentation from its costs, from the last block to the first."""
        end = len(cheapest) - 1
        level = int(cheapest[end].argmin())
        cost = float(cheapest[end][level])
        starts: list[int] = []
        levels = [float(self.levels[level])]
        while end:
            owed = ties[end, level]
            end -= 1
            # the segment began here if that was cheaper than to go on
            offer = offers[end] - owed
            if cheapest[end][level] > offer:
                level = int(cheapest[end].argmin())
                starts.append(int(self._edges[end + 1]))
                levels.append(float(self.levels[level]))
        # read backwards, so both lists are reversed
        return Segmentation(
            starts=starts[::-1],
            levels=levels[::-1],
            cost=cost,
        )

    def block_costs(self, noise: Noise, masked: Flags) -> tuple[Values, Values]:
        """Costs of the values from each boundary to the next, shape [blocks, levels], and the part
        of each that depends on the value before the block.
        """
        in_deviations = self._distances / noise.deviation
        single_costs = noise.costs[bins_of(in_deviations)]
        ties = self._ties(noise, single_costs)
        costs = single_costs + ties
        # a value has no tie to a masked neighbour
        is_untied = masked.copy()
        is_untied[1:] |= masked[:-1]
        costs[is_untied] = single_costs[is_untied]
        costs[masked] = 0.0
        block_ties = ties[self._edges]
        block_ties[is_untied[self._edges]] = 0.0
        return np.add.reduceat(costs, self._edges, axis=0), block_ties

    def _ties(self, noise: Noise, single_costs: Values) -> Values:
        """How the value before changes the cost of each value, at each level."""
        ties = np.zeros_like(single_costs)
        if noise.autocorrelation:
            ties[1:] = self._ties_of_autocorrelation(noise, single_costs)
        elif noise.stickiness <= -_MIN_STICKINESS:
            is_outlier = np.abs(self._distances) > OUTLIER * noise.deviation
            follows_outlier = is_outlier[1:] & is_outlier[:-1]
            ties[1:] = noise.stickiness * follows_outlier
        return ties

    def _ties_of_autocorrelation(self, noise: Noise, single_costs: Values) -> Values:
        """What a value costs less if its neighbour predicts it, shape [values - 1, levels]."""
        assert noise.innovation_costs is not None
        scaled = self._distances / noise.innovation
        # an outlier predicts no more of its neighbour than the limit
        limit = OUTLIER * noise.deviation / noise.innovation
        predicted = noise.autocorrelation * np.clip(scaled, -limit, limit)
        # forwards and backwards, so a mirrored series gets the same result
        forward_innovations = scaled[1:] - predicted[:-1]
        forwards = noise.innovation_costs[bins_of(forward_innovations)]
        backward_innovations = scaled[:-1] - predicted[1:]
        backwards = noise.innovation_costs[bins_of(backward_innovations)]
        # both densities are per unit of their own width
        wider = 2 * math.log(noise.innovation / noise.deviation)
        unrelated = single_costs[1:] + single_costs[:-1]
        ties: Values = (forwards + backwards - unrelated) / 2 + wider
        return ties


def _possible_levels(values: Values) -> Values:
    """Levels to choose from: all values of a short series, else quantiles."""
    levels = np.sort(values)
    if len(values) > _MAX_LEVELS:
        quantiles = (np.arange(_MAX_LEVELS) + 0.5) / _MAX_LEVELS
        positions = quantiles * len(values)
        levels = levels[positions.astype(np.intp)]
    return np.unique(levels)


def winsorised(values: Values, deviation: float) -> Values:
    """Values clipped to three deviations around their running median; a short series as it is."""
    if len(values) <= MAX_BOUNDARIES:
        return values
    half = _SMOOTHING // 2
    padded = np.concatenate(
        [
            values[half:0:-1],
            values,
            values[-2 : -half - 2 : -1],
        ]
    )
    smooth = np.median(sliding_window_view(padded, _SMOOTHING), axis=1)
    limit = 3 * deviation
    residuals = np.clip(values - smooth, -limit, limit)
    clipped: Values = smooth + residuals
    return clipped


def possible_boundaries(values: Values, deviation: float) -> NDArray[np.intp]:
    """Positions at which a level may begin: all in a short series, else where the means of windows
    on either side differ most, for windows of several lengths.

    Args:
        values: Winsorised.
        deviation: Of their noise.
    """
    count = len(values)
    places = np.arange(MIN_SEGMENT, count - MIN_SEGMENT + 1)
    # few enough to try them all
    if count <= MAX_BOUNDARIES:
        return places
    # whole numbers add up to the same in either direction, so peaks of equal height stay equal
    grains_per_unit = _GRAINS / deviation
    grains = np.rint((values - median(values)) * grains_per_unit)
    sums = np.concatenate([[0.0], np.cumsum(grains)])
    is_chosen = np.zeros(len(places), dtype=bool)
    for window in _WINDOWS:
        # no place has such a window on both sides
        if 2 * window > count:
            break
        heights = _step_heights(sums, places, window)
        is_chosen[_highest_peaks(heights, reach=max(1, window // 2))] = True
    return places[is_chosen]


def _step_heights(
    sums: Values,
    places: NDArray[np.intp],
    window: int,
) -> Values:
    """Difference of the means on both sides of each place, in standard errors times `_GRAINS`.

    Args:
        sums: Cumulative sums of the values, from 0 on, shape [values + 1].
        places: Positions to compare at.
        window: Values on either side.
    """
    # at an end of the series, a window is as long as that allows
    count_before = np.minimum(window, places)
    count_after = np.minimum(window, len(sums) - 1 - places)
    sum_before = sums[places] - sums[places - count_before]
    sum_after = sums[places + count_after] - sums[places]
    difference = sum_after / count_after - sum_before / count_before
    # one over the variance of the difference of two means
    weight = count_before * count_after / (count_before + count_after)
    scale = np.sqrt(weight)
    heights: Values = np.abs(difference) * scale
    return heights


def _highest_peaks(heights: Values, *, reach: int) -> NDArray[np.intp]:
    """Places that are higher than all within reach, at most a third of the boundaries allowed."""
    padded = np.zeros(len(heights) + 2 * reach)
    padded[reach:-reach] = heights
    highest_nearby = sliding_window_view(padded, 2 * reach + 1).max(axis=1)
    is_peak = (heights >= highest_nearby) & (heights > _MIN_RISE * _GRAINS)
    (peaks,) = is_peak.nonzero()
    highest_first = (-heights[peaks]).argsort(kind="stable")
    chosen: NDArray[np.intp] = peaks[highest_first[: MAX_BOUNDARIES // 3]]
    return chosen
