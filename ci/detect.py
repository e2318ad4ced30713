"""Change points of one series: where its level steps, robust to outliers, heavy tails and gaps. Pure; offline.

Method (docs/analysis.md has the arguments and the simulated error rates):

1. Logarithms, so that a factor is a factor at every level; the plain scale where a value is 0 or below.
2. Noise from the median absolute first difference, which a step or an outlier does not move; where successive values
   hang together, the lag-2 differences tell how much (Chakar, Lebarbier, Lévy-Leduc and Robin 2017).
3. Exact penalised segmentation by optimal partitioning (Jackson et al. 2005) under the biweight loss, which an outlier
   can pay only a bounded share of (Fearnhead and Rigaill 2019). Ours searches levels among the series' own values
   rather than on the continuum, and enforces a shortest segment.
4. Backward elimination: the weakest step goes until every step left stands out of the spread around it and reaches
   `min_relative_change`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_SEGMENT = 3
"""Values in the shortest level: one or two values that differ are outliers until a third agrees."""

_LOSS_CAP = 9.0
"""Most that one value costs, in squared noise units: beyond 3 standard deviations it is an outlier."""
_MIN_STANDARD_ERRORS = 3.7
"""A step must stand out by so many standard errors of the difference of the two levels."""
_PLAUSIBLE_COST = 6.0
"""A position that costs so much more than the best is excluded: a likelihood-ratio set, which holds the true position
in about 99 of 100 cases."""
_MAD_TO_DEVIATION = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""
_MAX_AUTOCORRELATION = 0.9
_MAX_ROUNDS = 5
"""Of moving boundaries; nearly always one is enough."""
_MIN_FOR_AUTOCORRELATION = 80
"""Of fewer values the estimate is too wild: it would hide more steps than it spares false alarms."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ChangePoint:
    """One step of a series, by position; `ci.history` says which commit that is."""

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
    """Positions that the series does not exclude, `index` among them: the step is at one of these."""


@dataclass(frozen=True)
class _Noise:
    deviation: float
    """Standard deviation of a value around its level."""
    inflation: float
    """How much more than independent values the mean of a level varies, as a factor on its variance."""


def find_change_points(
    values: Sequence[float] | Values, *, min_relative_change: float = 0.03, min_segment: int = MIN_SEGMENT
) -> list[ChangePoint]:
    """Find where the level of a series steps.

    Scaling the values changes nothing; reversing them mirrors the positions.

    Args:
        values: In time order. What is not finite is a gap: it is skipped, and keeps its position.
        min_relative_change: Steps smaller than this are not told; a rise by this much and the fall back count the
            same.
        min_segment: Values in the shortest level.

    Returns:
        Steps in order; none if there are fewer than two shortest levels of values.

    Raises:
        ValueError: `min_relative_change` is not above 0, or `min_segment` is below 2.
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
    noise = _estimate_noise(scale.values, floor=scale.smallest_noise)
    starts = _segment(scale.values, noise, min_segment)
    starts = _drop_weak_steps(scale, starts, noise, min_segment)
    return [
        _describe(raw, scale, noise, positions, bounds, min_segment)
        for bounds in zip([0, *starts], starts, [*starts[1:], len(raw)], strict=False)
    ]


@dataclass(frozen=True)
class _Scale:
    """The values on the scale they are judged on, and what is relevant there."""

    values: Values
    is_log: bool
    min_relative_change: float

    @classmethod
    def of(cls, raw: Values, min_relative_change: float) -> _Scale:
        if np.all(raw > 0):
            return cls(np.log(raw), True, min_relative_change)
        largest = float(np.max(np.abs(raw)))
        return cls(raw / largest if largest > 0 else raw, False, min_relative_change)

    @property
    def smallest_noise(self) -> float:
        """A third of the smallest step that is told: finer noise would only matter to steps that are not."""
        if self.is_log:
            return math.log1p(self.min_relative_change) / 3
        typical = float(np.median(np.abs(self.values)))
        return max(typical * self.min_relative_change / 3, 1e-9)

    def is_relevant(self, before: float, after: float) -> bool:
        """Whether the rise between the two levels, in whichever order, reaches the smallest relative change."""
        if self.is_log:
            return abs(after - before) >= math.log1p(self.min_relative_change)
        larger = max(abs(before), abs(after))
        return abs(after - before) >= larger * self.min_relative_change / (1 + self.min_relative_change)


def _estimate_noise(values: Values, *, floor: float) -> _Noise:
    first = float(np.median(np.abs(np.diff(values))))
    second = float(np.median(np.abs(values[2:] - values[:-2])))
    believed = 0.0
    if len(values) >= _MIN_FOR_AUTOCORRELATION and first > 0:
        # of an AR(1) series, (second / first)² − 1 estimates the autocorrelation φ, and the differences have
        # 2 (1 − φ) times its variance; only what the length of the series proves is believed
        estimate = (second / first) ** 2 - 1
        believed = min(max(estimate - 3 / math.sqrt(len(values)), 0.0), _MAX_AUTOCORRELATION)
    deviation = _MAD_TO_DEVIATION * first / math.sqrt(2 * (1 - believed))
    return _Noise(max(deviation, floor), (1 + believed) / (1 - believed))


def _losses(values: Values, levels: Values, noise: _Noise) -> Values:
    """Biweight loss of each value at each level, shape [values, levels]."""
    return _biweight((values[:, None] - levels) / noise.deviation)


def _penalty(count: int, noise: _Noise) -> float:
    return (8 + 2 * math.log(count)) * noise.inflation


def _segment(values: Values, noise: _Noise, min_segment: int) -> list[int]:
    """First positions of all segments but the first, at the least total of losses and penalties."""
    count = len(values)
    levels = np.unique(values)
    losses = _losses(values, levels, noise)
    penalty = _penalty(count, noise)
    # best[t, level]: least cost of the first t values whose last segment lies at that level
    cumulated = np.vstack([np.zeros(len(levels)), np.cumsum(losses, axis=0)])
    least = np.full(count + 1, math.inf)
    best = np.full(len(levels), math.inf)
    start_of_last = np.zeros(len(levels), dtype=np.intp)
    start_at_least = np.zeros(count + 1, dtype=np.intp)
    least[0] = -penalty
    for end in range(min_segment, count + 1):
        start = end - min_segment
        best = best + losses[end - 1]
        fresh = least[start] + penalty + cumulated[end] - cumulated[start]
        is_fresh = fresh < best
        best = np.where(is_fresh, fresh, best)
        start_of_last = np.where(is_fresh, start, start_of_last)
        winner = int(np.argmin(best))
        least[end] = best[winner]
        start_at_least[end] = start_of_last[winner]
    starts: list[int] = []
    end = count
    while (start := int(start_at_least[end])) > 0:
        starts.append(start)
        end = start
    return starts[::-1]


def _boundary_costs(
    values: Values, noise: _Noise, bounds: tuple[int, int, int], min_segment: int, loss: Callable[[Values], Values]
) -> Values:
    """Cost of putting the boundary of two neighbouring levels at each position that leaves both long enough."""
    start, boundary, end = bounds
    to_before, to_after = (
        np.concatenate([[0.0], np.cumsum(loss((values[start:end] - np.median(level)) / noise.deviation))])
        for level in (values[start:boundary], values[boundary:end])
    )
    costs: Values = (to_before + to_after[-1] - to_after)[min_segment : end - start - min_segment + 1]
    return costs


def _biweight(distances: Values) -> Values:
    """Bounded: says how little an outlier tells of the level it belongs to."""
    loss: Values = np.minimum(distances**2, _LOSS_CAP)
    return loss


def _huber(distances: Values) -> Values:
    """Grows without end: an outlier goes to the nearer level."""
    cap = math.sqrt(_LOSS_CAP)
    size = np.abs(distances)
    loss: Values = np.where(size <= cap, size**2, cap * (2 * size - cap))
    return loss


def _settle(values: Values, starts: list[int], noise: _Noise, min_segment: int) -> list[int]:
    """Move the boundaries to their cheapest positions between their neighbours, all at once until none moves.

    A value halfway belongs to the higher level, so that a mirrored series gives mirrored positions.
    """
    settled = starts
    for _ in range(_MAX_ROUNDS):
        edges = [0, *settled, len(values)]
        moved = [
            _cheapest_boundary(values, noise, bounds, min_segment)
            for bounds in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        if moved == settled or min(np.diff([0, *moved, len(values)]), default=0) < min_segment:
            break
        settled = moved
    return settled


def _cheapest_boundary(values: Values, noise: _Noise, bounds: tuple[int, int, int], min_segment: int) -> int:
    start, boundary, end = bounds
    costs = _boundary_costs(values, noise, bounds, min_segment, _huber)
    ties = np.flatnonzero(costs <= costs.min() + 1e-9)
    rises = np.median(values[boundary:end]) > np.median(values[start:boundary])
    return start + min_segment + int(ties[0] if rises else ties[-1])


def _drop_weak_steps(scale: _Scale, starts: list[int], noise: _Noise, min_segment: int) -> list[int]:
    values = scale.values
    kept = _settle(values, starts, noise, min_segment)
    while kept:
        edges = [0, *kept, len(values)]
        strengths = []
        for start, boundary, end in zip(edges, edges[1:], edges[2:], strict=False):
            left, right = values[start:boundary], values[boundary:end]
            is_relevant = scale.is_relevant(float(np.median(left)), float(np.median(right)))
            strengths.append(_standard_errors(left, right, noise) if is_relevant else 0.0)
        weakest = int(np.argmin(strengths))
        if strengths[weakest] >= _MIN_STANDARD_ERRORS:
            break
        del kept[weakest]
        kept = _settle(values, kept, noise, min_segment)
    return kept


def _standard_errors(left: Values, right: Values, noise: _Noise) -> float:
    residuals = np.concatenate([left - np.median(left), right - np.median(right)])
    # two medians were fitted to so few values, which makes their residuals too small
    correction = math.sqrt(len(residuals) / (len(residuals) - 2))
    local = _MAD_TO_DEVIATION * float(np.median(np.abs(residuals))) * correction
    deviation = max(local, noise.deviation)
    error = deviation * math.sqrt((1 / len(left) + 1 / len(right)) * noise.inflation)
    return float(abs(np.median(right) - np.median(left))) / error


def _describe(
    raw: Values,
    scale: _Scale,
    noise: _Noise,
    positions: NDArray[np.intp],
    bounds: tuple[int, int, int],
    min_segment: int,
) -> ChangePoint:
    start, boundary, end = bounds
    costs = _boundary_costs(scale.values, noise, bounds, min_segment, _biweight)
    plausible = {boundary, *(np.flatnonzero(costs <= costs.min() + _PLAUSIBLE_COST) + start + min_segment)}
    return ChangePoint(
        index=int(positions[boundary]),
        before=float(np.median(raw[start:boundary])),
        after=float(np.median(raw[boundary:end])),
        count_before=boundary - start,
        count_after=end - boundary,
        standard_errors=_standard_errors(scale.values[start:boundary], scale.values[boundary:end], noise),
        candidates=tuple(int(positions[place]) for place in sorted(plausible)),
    )
