"""What the pairs of a bisection say of the change itself, once it is known where it is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare

_BETWEEN_ERROR_RATE = 0.001
"""Of one commit's interval: of dozens that are on one of two levels, rarely one is told to be between."""


@dataclass(frozen=True)
class Level:
    """A commit that is on neither of two levels."""

    position: int
    relative_change: float
    """Against the good end."""


def compare_pairs(log_ratios: Sequence[float], *, threshold: float, error_rate: float | None = None) -> Comparison:
    """What pairs say of a change, as `roofwatch.ci.ab.compare` does; of the good end the time counts as 1 ns.

    Args:
        log_ratios: ln(commit / good) of each pair.
        threshold: Smaller changes are no change, as a fraction.
        error_rate: How often the interval may miss the truth; that of the look at so many pairs if left out.
    """
    ones = [[1.0]] * len(log_ratios)
    return compare(ones, [[math.exp(each)] for each in log_ratios], threshold=threshold, error_rate=error_rate)


def step_size(log_ratios: Sequence[Sequence[float]], last: int) -> Comparison:
    """The change against the good end, from the pairs of all commits that have it.

    Args:
        log_ratios: Of each commit.
        last: From this commit on all have it.
    """
    after = [each for pairs in log_ratios[last:] for each in pairs]
    return compare_pairs(after, threshold=1e-9, error_rate=0.05)


def between_levels(log_ratios: Sequence[Sequence[float]], step: float) -> list[Level]:
    """Commits that are clearly neither where the good end is nor one step away: there is more than one change.

    Args:
        log_ratios: Of each commit.
        step: Logarithm of the change.
    """
    found = []
    for position, pairs in enumerate(log_ratios):
        if len(pairs) < MIN_BLOCKS:
            continue
        seen = compare_pairs(pairs, threshold=1e-9, error_rate=_BETWEEN_ERROR_RATE)
        low, high = seen.log_interval
        if not (low <= 0 <= high or low <= step <= high):
            found.append(Level(position, seen.relative_change))
    return found
