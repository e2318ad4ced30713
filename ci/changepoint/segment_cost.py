"""What the values of one series cost at each of its possible levels, added up over blocks of it. Pure.

Nearly all the work of a cut is here: a table of 500 values by 48 levels takes some ten passes over 200 kB under each
noise that is tried, and memory that is asked for anew costs more than such a pass. So the tables of a series are
worked out in memory that the last one has left.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import HALF, OUTLIER, PER_DEVIATION, Flags, Noise, Values

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
            noise: Around each level.
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
