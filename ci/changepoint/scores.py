"""Scores that bound what one outlying value can say, chosen by the values themselves. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MAD_TO_DEVIATION = 1.4826
_HUBER = 1.345
"""95 % as efficient as the mean in normal noise (Huber 1964, Holland and Welsch 1977)."""
_BIWEIGHTS = (4.685, 3.44)
"""95 % and 85 % as efficient in normal noise (Beaton and Tukey 1974, Holland and Welsch 1977): the second for noise
with many outliers, of which it ignores all."""
_LEAST_SLOPE = 1e-3


def adaptive_scores(values: Floats) -> Floats:
    """A score for each value, about linear near their median and bounded away from it.

    Of three score functions of the textbook the one counts under which the values' centre would be known best: the
    least estimated asymptotic variance, as Jaeckel chooses how much to trim (Some flexible estimates of location,
    1971). Who is told nothing of groups among the values cannot favour one.

    Args:
        values: Any shape.

    Returns:
        Scores in the values' shape, in units of their spread; 0 for all where they are equal.
    """
    centred = values - np.median(values)
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(centred))) or float(np.mean(np.abs(centred)))
    if spread == 0:
        return np.zeros_like(centred)
    z = centred / spread
    candidates = [_huber(z), *(_biweight(z, reach) for reach in _BIWEIGHTS)]
    return min(candidates, key=lambda candidate: candidate[1])[0]


def _huber(z: Floats) -> tuple[Floats, float]:
    return _with_variance(np.clip(z, -_HUBER, _HUBER), np.where(np.abs(z) < _HUBER, 1.0, 0.0))


def _biweight(z: Floats, reach: float) -> tuple[Floats, float]:
    squared = (z / reach) ** 2
    is_near = squared < 1
    return _with_variance(
        np.where(is_near, z * (1 - squared) ** 2, 0.0), np.where(is_near, (1 - squared) * (1 - 5 * squared), 0.0)
    )


def _with_variance(scores: Floats, slopes: Floats) -> tuple[Floats, float]:
    """Scores, and the asymptotic variance of the centre they define: E[score²] / E[slope]²."""
    slope = max(float(np.mean(slopes)), _LEAST_SLOPE)
    return scores, float(np.mean(scores**2)) / slope**2
