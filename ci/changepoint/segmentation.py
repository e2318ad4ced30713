"""Where the levels of a series begin, by least total cost over all ways to cut it. Pure.

Optimal partitioning (Jackson et al. 2005) under any table of costs (`roofwatch.ci.changepoint.noise`), over levels
taken
from the
series itself and boundaries taken from a scan of it. Without autocorrelation the cost of a segment is a sum over its
values, so it is added up once per block between two possible boundaries, and the recursion runs over those blocks
alone: 36 steps of a few vector operations, whatever the length of the series.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import HALF, OUTLIER, PER_DEVIATION, Flags, Noise, Values, median

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
        self._levels = _possible_levels(values)
        self._prices = Prices(values, self._levels, self._edges, widths)

    def leave(self) -> None:
        """Leave the memory to the next series: this one is not cut again."""
        self._prices.leave()

    def cut(self, noise: Noise, penalty: float, masked: Flags | None = None) -> Segmentation:
        """The cheapest segmentation; values that are masked cost nothing wherever they are."""
        blocks, ties = self._prices.of_blocks(noise, masked)
        return self._recur(blocks, ties, penalty)

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
        levels: list[float] = [self._levels.item(level)]
        while end:
            owed = 0.0 if ties is None else ties.item(end, level)
            end -= 1
            if least[end].item(level) > offers[end] - owed:
                level = int(least[end].argmin())
                starts.append(int(self._edges[end + 1]))
                levels.append(self._levels.item(level))
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
    smooth = _medians_of_nine(padded)
    held: Values = smooth + np.minimum(np.maximum(values - smooth, -3 * deviation), 3 * deviation)
    return held


def _medians_of_nine(values: Values) -> Values:
    """Of each value and the eight after it: the median of the largest of three least, the median of three middle and
    the least of three largest, each of three values in succession.
    """
    first, second, third = values[:-2], values[1:-1], values[2:]
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    least, middle, largest = np.minimum(lower, third), _middle(first, second, third), np.maximum(upper, third)
    return _middle(
        np.maximum(np.maximum(least[:-6], least[3:-3]), least[6:]),
        _middle(middle[:-6], middle[3:-3], middle[6:]),
        np.minimum(np.minimum(largest[:-6], largest[3:-3]), largest[6:]),
    )


def _middle(first: Values, second: Values, third: Values) -> Values:
    """Median of three, one by one."""
    middle: Values = np.maximum(np.minimum(first, second), np.minimum(np.maximum(first, second), third))
    return middle


def possible_boundaries(held: Values, deviation: float, min_segment: int) -> NDArray[np.intp]:
    """Positions at which a level may begin: all in a short series, else where the means of windows on either side
    differ most, for windows of several lengths.

    Args:
        held: The values, winsorised.
        deviation: Of their noise.
        min_segment: Values in the shortest level.
    """
    count = len(held)
    if count <= MAX_BOUNDARIES:
        return np.arange(min_segment, count - min_segment + 1)
    # whole numbers add up to the same in either direction, so that peaks of one height stay so
    grains = np.rint((held - median(held)) * (_GRAINS / deviation))
    sums = np.zeros(count + 1)
    np.cumsum(grains, out=sums[1:])
    windows = _windows(count, min_segment)
    here = sums[min_segment : count - min_segment + 1]
    sizes = np.abs((sums[windows.ends] - here) / windows.right - (here - sums[windows.starts]) / windows.left)
    sizes *= windows.weights
    is_peak = (sizes >= _highest_around(sizes, windows.reaches)) & (sizes > _LEAST_RISE * _GRAINS)
    chosen = np.zeros(len(here), dtype=bool)
    for size, is_own in zip(sizes, is_peak, strict=True):
        (best,) = is_own.nonzero()
        if len(best) > MAX_BOUNDARIES // 3:
            best = best[(-size[best]).argsort(kind="stable")[: MAX_BOUNDARIES // 3]]
        chosen[best] = True
    return np.flatnonzero(chosen) + min_segment


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
    for own, reach in zip(highest, reaches, strict=True):
        while 2 * width <= 2 * reach + 1:
            spans = np.maximum(spans[:, :-width], spans[:, width:])
            width *= 2
        first, last = most - reach, most + reach + 1 - width
        np.maximum(spans[0, first : first + count], spans[0, last : last + count], out=own)
        spans = spans[1:]
    return highest


_NO_STICKINESS = -0.5
"""Outliers in succession that are so little cheaper than apart are not worth telling apart."""
_KEPT = 1 << 16
"""Costs in the largest tables whose memory is kept: 1,365 values at 48 levels, in 3.5 MB."""


class _Memory:
    """Of the tables of one series."""

    def __init__(self, size: int) -> None:
        """Ask for it; the machine gives it as far as it is used.

        Args:
            size: Costs in the largest table.
        """
        self._floats = np.empty((5, size))
        self._rounded = np.empty(size, dtype=np.int32)
        self._bins = np.empty(size, dtype=np.intp)
        self._flags = np.empty(size, dtype=np.bool_)

    def floats(self, shape: tuple[int, int]) -> list[Values]:
        """Five tables."""
        return list(self._floats[:, : shape[0] * shape[1]].reshape(5, *shape))

    def rounded(self, shape: tuple[int, int]) -> NDArray[np.int32]:
        return self._rounded[: shape[0] * shape[1]].reshape(shape)

    def bins(self, shape: tuple[int, int]) -> NDArray[np.intp]:
        return self._bins[: shape[0] * shape[1]].reshape(shape)

    def flags(self, shape: tuple[int, int]) -> Flags:
        return self._flags[: shape[0] * shape[1]].reshape(shape)


_spare: deque[_Memory] = deque(maxlen=2)
"""What no series has now; threads may take from it and leave in it at once."""


def _memory_of(size: int) -> _Memory:
    if size > _KEPT:
        return _Memory(size)
    try:
        return _spare.pop()
    except IndexError:
        return _Memory(_KEPT)


class Prices:
    """Costs of one series under one noise after another."""

    def __init__(self, values: Values, levels: Values, edges: NDArray[np.intp], widths: Values | None) -> None:
        """Work out what does not depend on the noise.

        Args:
            values: On the scale they are judged on, shape [values].
            levels: Shape [levels].
            edges: First positions of the blocks, from 0 on, shape [blocks].
            widths: How much wider each value spreads than the narrowest, as a factor; None: all alike.
        """
        shape = len(values), len(levels)
        self._edges = edges
        self._noise: Noise | None = None
        self._memory = _memory_of(shape[0] * shape[1])
        self._differences, self._node, self._tied, self._one, self._two = self._memory.floats(shape)
        self._rounded, self._bins = self._memory.rounded(shape), self._memory.bins(shape)
        self._flags = self._memory.flags(shape)
        np.subtract(values[:, None], levels, out=self._differences)
        if widths is not None:
            self._differences /= widths[:, None]
        self._pair: Values | None = None
        self._blocks = self._node

    def leave(self) -> None:
        """Leave the memory to the next series: who asks anything of this one afterwards gets an error."""
        if self._differences.size <= _KEPT:
            _spare.append(self._memory)
        del self._memory, self._differences, self._node

    def of_blocks(self, noise: Noise, masked: Flags | None = None) -> tuple[Values, Values | None]:
        """Costs of the blocks, and what of each is owed to the value before its first one, both of shape [blocks,
        levels]; None where values owe each other nothing.

        Args:
            noise: ChangeContext each level.
            masked: Values that cost nothing wherever they are, shape [values].
        """
        if noise is not self._noise:
            self._price(noise)
        ties = None if self._pair is None else self._pair[self._edges]
        if masked is None or not masked.any():
            return self._blocks, ties
        untied = masked.copy()
        untied[1:] |= masked[:-1]
        costs = self._costs()
        costs[untied] = self._node[untied]
        costs[masked] = 0.0
        if ties is not None:
            ties[untied[self._edges]] = 0.0
        return self._added_up(costs), ties

    def _costs(self) -> Values:
        """Of each value with its tie, to be changed at will."""
        if self._pair is None:
            np.copyto(self._one, self._node)
        else:
            np.add(self._node, self._pair, out=self._one)
        return self._one

    def _added_up(self, costs: Values) -> Values:
        blocks: Values = np.add.reduceat(costs, self._edges, axis=0)
        return blocks

    def _price(self, noise: Noise) -> None:
        """Cost of each value at each level, and of its tie to the one before it."""
        self._noise, self._pair = noise, None
        np.multiply(self._differences, PER_DEVIATION / noise.deviation, out=self._node)
        self._look_up(noise.costs, self._node)
        if noise.autocorrelation:
            self._pair = self._innovation_costs(noise)
        elif noise.stickiness <= _NO_STICKINESS:
            self._pair = self._costs_in_succession(noise)
        self._blocks = self._added_up(self._node if self._pair is None else self._costs())

    def _look_up(self, costs: Values, widths: Values) -> None:
        """Put costs in the place of distances in widths of a bin, as `roofwatch.ci.changepoint.noise.bins_of` rounds
        these.
        """
        rounded, bins = self._rounded[: len(widths)], self._bins[: len(widths)]
        widths += HALF + 0.5
        # what is far out finds an end of the table, be it too far out for a whole number; both ends cost the same
        with np.errstate(invalid="ignore"):
            # in two steps, of which neither is a loop over single numbers
            np.copyto(rounded, widths, casting="unsafe")
        np.copyto(bins, rounded)
        np.take(costs, bins, out=widths, mode="clip")

    def _costs_in_succession(self, noise: Noise) -> Values:
        """What two outliers in succession cost less than two apart."""
        pair, is_outlier = self._tied, self._flags
        np.greater(np.abs(self._differences, out=pair), OUTLIER * noise.deviation, out=is_outlier)
        np.multiply(is_outlier[1:] & is_outlier[:-1], noise.stickiness, out=pair[1:])
        pair[0] = 0.0
        return pair

    def _innovation_costs(self, noise: Noise) -> Values:
        """What the tie to the value before changes in the cost of a value: an AR(1) process, read forwards and
        backwards so that a mirrored series is judged alike.
        """
        assert noise.innovation_costs is not None
        pair, node, scaled, told = self._tied, self._node, self._one, self._two
        np.multiply(self._differences, 1 / noise.deviation, out=scaled)
        scaled *= noise.deviation / noise.innovation * PER_DEVIATION
        limit = OUTLIER * noise.deviation / noise.innovation * PER_DEVIATION
        # what an outlier says of its neighbour is not believed
        np.clip(scaled, -limit, limit, out=told)
        told *= noise.autocorrelation
        forwards = np.subtract(scaled[1:], told[:-1], out=pair[1:])
        backwards = np.subtract(scaled[:-1], told[1:], out=scaled[:-1])
        self._look_up(noise.innovation_costs, forwards)
        self._look_up(noise.innovation_costs, backwards)
        forwards += backwards
        forwards -= node[1:]
        forwards -= node[:-1]
        forwards *= 0.5
        # both densities are per unit of their own width
        forwards += 2 * math.log(noise.innovation / noise.deviation)
        pair[0] = 0.0
        return pair
