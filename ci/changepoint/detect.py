"""Change points of one series: where its level steps, whatever its noise does. Pure; offline.

Method (docs/explanation/verdicts.md has the arguments and the simulated error rates):

1. Logarithms, so that a factor is a factor at every level; the plain scale where a value is 0 or below.
2. Levels and noise are learnt together (`roofwatch.ci.changepoint.levels`): optimal partitioning (Jackson et al. 2005)
   under a bounded cost (Fearnhead and Rigaill 2019) which is learnt from the series: its shape, how its outliers follow
   each other, its autocorrelation, its drift. Spells that are no longer than its bursts are taken out.
3. Steps smaller than `min_relative_change` go, the smallest first, and boundaries move to where they cost least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.levels import Fit, fit_levels, penalty
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION, Certainty, Values, bins_of, median
from roofwatch.ci.changepoint.segmentation import MAX_BOUNDARIES

MIN_SEGMENT = 3
"""Values in the shortest level: one or two values that differ are outliers until a third agrees."""

_PLAUSIBLE_COST = 6.0
"""A position that costs so much more than the best is excluded: a likelihood-ratio set, which holds the true position
in about 99 of 100 cases."""
_TIE_BREAK = 0.01
"""Cost of a standard deviation of distance beside what the noise says: decides only where that is silent."""


@dataclass(frozen=True)
class Step:
    """Where the level of a series changes, by position."""

    index: int
    """Position of the first value of the new level in the series as given."""
    before: float
    """Median of the level that ends here."""
    after: float
    """Median of the level that begins here."""
    count_before: int
    count_after: int
    standard_errors: float
    """Size of the step in standard errors of the difference of the two levels."""
    candidates: tuple[int, ...]
    """Positions that the series does not exclude, `index` among them."""


@dataclass(frozen=True)
class NoiseFloor:
    """What a series can show, on top of where it steps."""

    deviation: float
    """Standard deviation of a value around its level, as a fraction of the level."""
    minimum_detectable_change: float
    """Smallest relative change that is found in 9 of 10 cases, between two levels of `count` values."""
    count: int
    """Values on either side that it takes."""


def find_change_points(
    values: Sequence[float] | Values,
    *,
    min_relative_change: float = 0.03,
    min_segment: int = MIN_SEGMENT,
    relative_errors: Sequence[float] | Values | None = None,
) -> list[Step]:
    """Find where the level of a series steps.

    Scaling the values changes nothing; reversing them mirrors the positions.

    Args:
        values: In time order. What is not finite is a gap: it is skipped, and keeps its position.
        min_relative_change: Steps smaller than this are not told; a rise by this much and the fall back count the
            same.
        min_segment: Values in the shortest level.
        relative_errors: Standard error of each value as a fraction of it, such as half the width of its interval over
            its median. A value that is less certain than most weighs less; one that is not finite is as certain as
            most.

    Returns:
        Steps in order; none if there are fewer than two shortest levels of values.

    Raises:
        ValueError: `min_relative_change` is not above 0, `min_segment` is below 2, or there are more or fewer errors
            than values.
    """
    if not min_relative_change > 0:
        raise ValueError(f"min_relative_change={min_relative_change}: give a fraction above 0, such as 0.03")
    if min_segment < 2:
        raise ValueError(f"min_segment={min_segment}: give 2 or more; one value cannot tell a level from an outlier")
    given = np.asarray(values, dtype=np.float64).ravel()
    positions = np.flatnonzero(np.isfinite(given))
    raw = given[positions]
    if len(raw) < 2 * min_segment:
        return []
    scale = _Scale.of(raw, min_relative_change)
    widths = _widths(relative_errors, positions, len(given), scale) if relative_errors is not None else None
    fit = fit_levels(scale.values, floor=scale.smallest_noise, min_segment=min_segment, widths=widths)
    if not fit.starts:
        return []
    return _Steps(raw, scale, fit, positions, min_segment).told()


def noise_floor(values: Sequence[float] | Values, *, count: int = 10, min_relative_change: float = 0.03) -> NoiseFloor:
    """How noisy a series is, and how small a change it can show.

    Args:
        values: As for `find_change_points`; at least two that are finite and above 0.
        count: Values on either side of the change.
        min_relative_change: Smallest change that is told however quiet the series.

    Raises:
        ValueError: Fewer than two finite values, or one at or below 0: there is no fraction of such a level.
    """
    given = np.asarray(values, dtype=np.float64).ravel()
    raw = given[np.isfinite(given)]
    if len(raw) < 2 or np.any(raw <= 0):
        raise ValueError(
            f"{len(raw)} finite values, the least {raw.min() if len(raw) else None}: give 2 or more above 0"
        )
    fit = fit_levels(np.log(raw), floor=1e-9, min_segment=MIN_SEGMENT)
    # a step is told once twice its log likelihood ratio exceeds the penalty; two standard errors more make that 9 of 10
    # times: 1.28, and what learning the noise from the same values costs
    needed = math.sqrt(penalty(len(raw))) + 2.0
    smallest = needed * fit.noise.deviation * math.sqrt(2 * fit.noise.mean_inflation / count)
    return NoiseFloor(math.expm1(fit.noise.deviation), max(math.expm1(smallest), min_relative_change), count)


@dataclass(frozen=True)
class _Scale:
    """The values on the scale they are judged on, and what is relevant there."""

    values: Values
    is_log: bool
    min_relative_change: float

    @classmethod
    def of(cls, raw: Values, min_relative_change: float) -> _Scale:
        if raw.min() > 0:
            return cls(np.log(raw), True, min_relative_change)
        largest = float(np.max(np.abs(raw)))
        return cls(raw / largest if largest > 0 else raw, False, min_relative_change)

    @property
    def smallest_noise(self) -> float:
        """A third of the smallest step that is told: finer noise would only matter to steps that are not."""
        if self.is_log:
            return math.log1p(self.min_relative_change) / 3
        return max(median(np.abs(self.values)) * self.min_relative_change / 3, 1e-9)

    def is_relevant(self, before: float, after: float) -> bool:
        """Whether the rise between the two levels, in whichever order, reaches the smallest relative change."""
        if self.is_log:
            return abs(after - before) >= math.log1p(self.min_relative_change)
        larger = max(abs(before), abs(after))
        return before != after and abs(after - before) >= larger * self.min_relative_change / (
            1 + self.min_relative_change
        )


def _widths(
    relative_errors: Sequence[float] | Values, positions: NDArray[np.intp], count: int, scale: _Scale
) -> Values | None:
    """How much wider each value spreads than one that is as certain as most, as a factor."""
    errors = np.asarray(relative_errors, dtype=np.float64).ravel()
    if len(errors) != count:
        raise ValueError(f"{len(errors)} errors of {count} values: give one of each")
    errors = np.abs(errors[positions])
    if not scale.is_log:
        errors = errors * np.abs(scale.values)
    certainty = Certainty.of(scale.values, errors, floor=scale.smallest_noise)
    return None if certainty is None else certainty.widths(errors)


class _Steps:
    """The steps of a fitted series on their way to being told."""

    def __init__(self, raw: Values, scale: _Scale, fit: Fit, positions: NDArray[np.intp], min_segment: int) -> None:
        self._raw = raw
        self._scale = scale
        self._fit = fit
        self._positions = positions
        self._min_segment = min_segment
        self._values = scale.values
        if fit.slope:
            self._values = scale.values - fit.slope * (np.arange(len(raw)) - (len(raw) - 1) / 2)

    def told(self) -> list[Step]:
        starts = self._settle(list(self._fit.starts))
        while starts:
            levels = self._levels(starts)
            sizes = [abs(after - before) for before, after in pairwise(levels)]
            weakest = sizes.index(min(sizes))
            if self._scale.is_relevant(levels[weakest], levels[weakest + 1]):
                break
            del starts[weakest]
            starts = self._settle(starts)
        bounds = zip([0, *starts], starts, [*starts[1:], len(self._raw)], strict=False)
        return [self._describe(*one) for one in bounds]

    def _level(self, start: int, end: int) -> float:
        own, free = self._values[start:end], ~self._fit.masked[start:end]
        return median(own[free] if free.any() else own)

    def _levels(self, starts: list[int]) -> list[float]:
        edges = [0, *starts, len(self._values)]
        return [self._level(start, end) for start, end in pairwise(edges)]

    def _settle(self, starts: list[int]) -> list[int]:
        """Move the boundaries to their cheapest positions, all at once.

        None goes farther than the next place that the fit has tried, and found dearer under all it knows. A value
        halfway belongs to the higher level, so that a mirrored series gives mirrored positions.
        """
        edges = [0, *starts, len(self._values)]
        moved = [self._cheapest(*bounds) for bounds in zip(edges, edges[1:], edges[2:], strict=False)]
        if min(after - before for before, after in pairwise([0, *moved, len(self._values)])) < self._min_segment:
            return starts
        return moved

    def _cheapest(self, start: int, boundary: int, end: int) -> int:
        if self._fit.noise.autocorrelation:
            return boundary  # the values around it say less than the jump between them, which the fit has weighed
        costs = self._position_costs(start, boundary, end)
        first = start + self._min_segment
        low, high = self._tried_around(boundary)
        costs[: max(low - first, 0)] = np.inf
        costs[max(high + 1 - first, 0) :] = np.inf
        ties = np.flatnonzero(costs <= costs.min() + 1e-9)
        rises = self._level(boundary, end) > self._level(start, boundary)
        return first + int(ties[0] if rises else ties[-1])

    def _tried_around(self, boundary: int) -> tuple[int, int]:
        """The nearest places on either side at which the fit has tried a boundary; all, where it tried each."""
        if len(self._values) <= MAX_BOUNDARIES:
            return 0, len(self._values)
        places = self._fit.places
        before = places[places < boundary]
        after = places[places > boundary]
        return (int(before[-1]) if len(before) else 0, int(after[0]) if len(after) else len(self._values))

    def _position_costs(self, start: int, boundary: int, end: int) -> Values:
        """Cost of putting the boundary of two neighbouring levels at each position that leaves both long enough."""
        levels = np.array([[self._level(start, boundary)], [self._level(boundary, end)]])
        distances = (self._values[start:end] - levels) / self._fit.noise.deviation
        # a little that grows without end, so that an outlier goes to the nearer level
        to_before, to_after = self._fit.noise.costs[bins_of(distances)] + _TIE_BREAK * np.abs(distances)
        gained = np.where(self._fit.masked[start:end], 0.0, to_before - to_after)
        costs = np.concatenate([[0.0], np.cumsum(gained)])
        return costs[self._min_segment : end - start - self._min_segment + 1]

    def _describe(self, start: int, boundary: int, end: int) -> Step:
        noise = self._fit.noise
        costs = self._position_costs(start, boundary, end)
        tolerated = _PLAUSIBLE_COST * noise.mean_inflation
        others = np.flatnonzero(costs <= costs.min() + tolerated) + (start + self._min_segment)
        plausible = sorted({boundary, *others.tolist()})
        return Step(
            index=int(self._positions[boundary]),
            before=median(self._raw[start:boundary]),
            after=median(self._raw[boundary:end]),
            count_before=boundary - start,
            count_after=end - boundary,
            standard_errors=self._standard_errors(start, boundary, end),
            candidates=tuple(self._positions[plausible].tolist()),
        )

    def _standard_errors(self, start: int, boundary: int, end: int) -> float:
        before, after = self._level(start, boundary), self._level(boundary, end)
        residuals = np.concatenate([self._values[start:boundary] - before, self._values[boundary:end] - after])
        # two medians were fitted to so few values, which makes their residuals too small
        correction = math.sqrt(len(residuals) / (len(residuals) - 2))
        local = MAD_TO_DEVIATION * median(np.abs(residuals)) * correction
        deviation = max(local, self._fit.noise.deviation)
        share = 1 / (boundary - start) + 1 / (end - boundary)
        return abs(after - before) / (deviation * math.sqrt(share * self._fit.noise.mean_inflation))
