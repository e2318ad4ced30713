"""Change points of one series: where its level steps. Pure; offline.

Method (docs/explanation/verdicts.md has the arguments and the simulated error rates):

1. Take logarithms, or keep the plain scale where a value is 0 or below.
2. Learn levels and noise together (`roofwatch.ci.changepoint.levels`): optimal partitioning
  (Jackson et al. 2005) under
   a bounded cost (Fearnhead and Rigaill 2019) that is learnt from the series.
3. Drop steps smaller than `min_relative_change`, the smallest first, and move boundaries to where
  they cost least.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.levels import Fit, centred_times, fit_levels, penalty
from roofwatch.ci.changepoint.noise import (
    MAD_TO_DEVIATION,
    Values,
    bins_of,
    median,
    relative_widths,
)
from roofwatch.ci.changepoint.segmentation import MIN_SEGMENT

_PLAUSIBLE_COST = 6.0
"""A position that costs so much more than the best is excluded: a likelihood-ratio set that holds
the true position in about 99 of 100 cases."""
_TIE_BREAK = 0.01
"""Cost per standard deviation of distance, which decides only where the noise does not."""


@dataclass(frozen=True)
class Step:
    """Where the level of a series changes, by position."""

    index: int
    """Position of the first value of the new level."""
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

    @property
    def start(self) -> int:
        """Where the level before begins, in a series without gaps."""
        return self.index - self.count_before

    @property
    def end(self) -> int:
        """Behind the last value of the level after, in a series without gaps."""
        return self.index + self.count_after


@dataclass(frozen=True)
class SeriesNoise:
    """How small a change a series can show."""

    deviation: float
    """Standard deviation of a value around its level, as a fraction of the level."""
    minimum_detectable_change: float
    """Smallest relative change that is found in 9 of 10 cases, between two levels."""


def find_change_points(
    values: Sequence[float] | Values,
    *,
    min_relative_change: float = 0.03,
    relative_errors: Sequence[float] | Values | None = None,
) -> list[Step]:
    """Find where the level of a series steps.

    Scaling the values changes nothing; reversing them mirrors the positions.

    Args:
        values: In time order. A value that is not finite is a gap: it is skipped, and keeps its
            position.
        min_relative_change: Smallest step to report. A rise by this much and the fall back count
            the same.
        relative_errors: Standard error of each value as a fraction of it, NaN where it is not
            known. A value with a larger error than most weighs less.

    Returns:
        Steps in order; none if there are too few values for two levels.

    Raises:
        ValueError: `min_relative_change` is not above 0, or there are more or fewer errors than
        values.
    """
    if not min_relative_change > 0:
        raise ValueError(
            f"min_relative_change={min_relative_change}: give a fraction above 0, such as 0.03"
        )
    all_values = np.asarray(values, dtype=np.float64).ravel()
    positions = np.flatnonzero(np.isfinite(all_values))
    raw = all_values[positions]
    if len(raw) < 2 * MIN_SEGMENT:
        return []
    scale = _Scale.of(raw, min_relative_change)
    widths = None
    if relative_errors is not None:
        given_errors = np.asarray(relative_errors, dtype=np.float64)
        errors = np.abs(given_errors.ravel())
        if len(errors) != len(all_values):
            raise ValueError(f"{len(errors)} errors of {len(all_values)} values: give one of each")
        errors_on_scale = errors[positions]  # a relative error is that of the logarithm
        if not scale.is_log:
            errors_on_scale = errors_on_scale * np.abs(scale.values)
        widths = relative_widths(scale.values, errors_on_scale, floor=scale.smallest_noise)
    fit = fit_levels(
        scale.values,
        floor=scale.smallest_noise,
        widths=widths,
    )
    if not fit.starts:
        return []
    return _Steps(
        raw,
        scale,
        fit,
        positions,
    ).relevant()


def noise_floor(
    values: Sequence[float] | Values,
    *,
    count: int = 10,
    min_relative_change: float = 0.03,
) -> SeriesNoise:
    """Measure how noisy a series is, and how small a change it can show.

    Args:
        values: As for `find_change_points`; at least two that are finite and above 0.
        count: Values on either side of the change.
        min_relative_change: Smallest change to report however quiet the series.

    Raises:
        ValueError: There are fewer than two finite values, or one is 0 or below.
    """
    all_values = np.asarray(values, dtype=np.float64).ravel()
    raw = all_values[np.isfinite(all_values)]
    if len(raw) < 2 or np.any(raw <= 0):
        raise ValueError(f"{len(raw)} finite values: give 2 or more, all above 0")
    noise = fit_levels(np.log(raw), floor=1e-9).noise
    # a step is reported once twice its log likelihood ratio exceeds the penalty. Two standard
    # errors more make that 9 of 10 times: 1.28, and the cost of learning the noise from the same
    # values
    needed_errors = math.sqrt(penalty(len(raw))) + 2.0
    # two levels of equal length, each with its error
    variances = 2 * noise.mean_inflation / count
    error = noise.deviation * math.sqrt(variances)
    smallest_change = math.expm1(needed_errors * error)
    return SeriesNoise(
        deviation=math.expm1(noise.deviation),
        minimum_detectable_change=max(smallest_change, min_relative_change),
    )


@dataclass(frozen=True)
class _Scale:
    """Values on the scale they are judged on, and what is relevant there."""

    values: Values
    is_log: bool
    """Whether values are judged by their logarithms."""
    min_relative_change: float

    @classmethod
    def of(cls, raw: Values, min_relative_change: float) -> "_Scale":
        """Take logarithms of positive values; divide others by the largest."""
        if raw.min() > 0:
            return cls(
                values=np.log(raw),
                is_log=True,
                min_relative_change=min_relative_change,
            )
        largest = float(np.max(np.abs(raw)))
        if largest > 0:
            raw = raw / largest
        return cls(
            values=raw,
            is_log=False,
            min_relative_change=min_relative_change,
        )

    @property
    def smallest_noise(self) -> float:
        """A third of the smallest step to report: finer noise matters to smaller steps only."""
        if self.is_log:
            return math.log1p(self.min_relative_change) / 3
        typical_size = median(np.abs(self.values))
        return max(typical_size * self.min_relative_change / 3, 1e-9)

    def is_relevant(self, first_level: float, second_level: float) -> bool:
        """Whether the change between two levels, in either order, reaches the smallest relative
        change.
        """
        change = abs(second_level - first_level)
        if self.is_log:
            return change >= math.log1p(self.min_relative_change)
        largest = max(abs(first_level), abs(second_level))
        smallest_change = largest * self.min_relative_change / (1 + self.min_relative_change)
        return first_level != second_level and change >= smallest_change


class _Steps:
    """The steps of a fitted series."""

    def __init__(
        self,
        raw: Values,
        scale: _Scale,
        fit: Fit,
        positions: NDArray[np.intp],
    ) -> None:
        self._raw = raw
        self._scale = scale
        self._fit = fit
        self._positions = positions
        drift = fit.slope * centred_times(len(raw))
        self._values = scale.values - drift

    def relevant(self) -> list[Step]:
        starts = self._settle(list(self._fit.starts))
        while starts:
            segments = pairwise([0, *starts, len(self._values)])
            levels = [self._level(start, end) for start, end in segments]
            sizes = [abs(second - first) for first, second in pairwise(levels)]
            # the smallest step goes first: without it, its neighbours may become relevant
            weakest = sizes.index(min(sizes))
            if self._scale.is_relevant(levels[weakest], levels[weakest + 1]):
                break
            del starts[weakest]
            starts = self._settle(starts)
        return [self._describe(*bounds) for bounds in self._bounds(starts)]

    def _bounds(self, starts: list[int]) -> Iterator[tuple[int, int, int]]:
        """Start of the level before each step, the step, and the end of the level after it."""
        edges = [0, *starts, len(self._values)]
        return zip(edges, starts, edges[2:], strict=False)

    def _level(self, start: int, end: int) -> float:
        segment = self._values[start:end]
        is_free = ~self._fit.masked[start:end]
        if is_free.any():
            segment = segment[is_free]
        return median(segment)

    def _settle(self, starts: list[int]) -> list[int]:
        """Move the boundaries to their cheapest positions, all at once.

        A value halfway belongs to the higher level, so a mirrored series gives mirrored positions.
        """
        moved = [self._cheapest(*bounds) for bounds in self._bounds(starts)]
        lengths = np.diff([0, *moved, len(self._values)])
        shortest = min(lengths)
        if shortest < MIN_SEGMENT:
            return starts
        return moved

    def _cheapest(
        self,
        start: int,
        boundary: int,
        end: int,
    ) -> int:
        if self._fit.noise.autocorrelation:
            # the fit has weighed the jump between neighbours, which says more than values around it
            return boundary
        costs = self._position_costs(start, boundary, end)
        ties = np.flatnonzero(costs <= costs.min() + 1e-9)
        old_level = self._level(start, boundary)
        rises = self._level(boundary, end) > old_level
        if rises:
            cheapest = ties[0]
        else:
            cheapest = ties[-1]
        return start + MIN_SEGMENT + int(cheapest)

    def _position_costs(
        self,
        start: int,
        boundary: int,
        end: int,
    ) -> Values:
        """Cost of a boundary between two neighbouring levels, at each position that leaves both
        long enough.
        """
        first_level = self._level(start, boundary)
        second_level = self._level(boundary, end)
        levels = np.array([[first_level], [second_level]])
        noise = self._fit.noise
        residuals = self._values[start:end] - levels
        distances = residuals / noise.deviation
        level_costs = noise.costs[bins_of(distances)]
        # of each value, at either level
        first_costs, second_costs = level_costs + _TIE_BREAK * np.abs(distances)
        masked = self._fit.masked[start:end]
        gained = np.where(masked, 0.0, first_costs - second_costs)
        costs = np.concatenate([[0.0], np.cumsum(gained)])
        return costs[MIN_SEGMENT : end - start - MIN_SEGMENT + 1]

    def _describe(
        self,
        start: int,
        boundary: int,
        end: int,
    ) -> Step:
        old_level = self._level(start, boundary)
        new_level = self._level(boundary, end)
        error = self._error_of_step(start, boundary, end)
        plausible = self._plausible_positions(start, boundary, end)
        candidates = self._positions[np.union1d(plausible, [boundary])]
        return Step(
            index=int(self._positions[boundary]),
            before=median(self._raw[start:boundary]),
            after=median(self._raw[boundary:end]),
            count_before=boundary - start,
            count_after=end - boundary,
            standard_errors=abs(new_level - old_level) / error,
            candidates=tuple(candidates.tolist()),
        )

    def _plausible_positions(
        self,
        start: int,
        boundary: int,
        end: int,
    ) -> NDArray[np.intp]:
        """Where the boundary costs hardly more than at its best."""
        costs = self._position_costs(start, boundary, end)
        # values that depend on each other tell less about the place
        allowance = _PLAUSIBLE_COST * self._fit.noise.mean_inflation
        most = costs.min() + allowance
        return np.flatnonzero(costs <= most) + start + MIN_SEGMENT

    def _error_of_step(
        self,
        start: int,
        boundary: int,
        end: int,
    ) -> float:
        """Standard error of the difference of two neighbouring levels."""
        noise = self._fit.noise
        old_residuals = self._values[start:boundary] - self._level(start, boundary)
        new_residuals = self._values[boundary:end] - self._level(boundary, end)
        residuals = np.concatenate([old_residuals, new_residuals])
        # two medians were fitted to these values, which makes their residuals too small
        correction = math.sqrt(len(residuals) / (len(residuals) - 2))
        local = MAD_TO_DEVIATION * median(np.abs(residuals)) * correction
        # a quiet stretch may be luck: the noise of the whole series is the least
        deviation = max(local, noise.deviation)
        old_count = boundary - start
        new_count = end - boundary
        share = 1 / old_count + 1 / new_count
        return deviation * math.sqrt(share * noise.mean_inflation)
