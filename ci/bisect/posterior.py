"""With which commit a change came: probabilities from pairs of blocks, a commit's against the good end's. Pure.

The model: before the change a pair's logarithm of commit / good lies around 0, from it on around one step, with Student
noise of one scale. Step, scale and degrees of freedom are not known; the posterior sums over a grid of them, so that
few pairs, or a wild one, make nobody sure.

Source: Bayes' rule over the place of one change, as in the probabilistic bisection of Waeber, Frazier and Henderson
2013 (Bisection search with noisy responses, SIAM J. Control Optim. 51) and of Burnashev and Zigangirov 1974, with the
likelihood of what was measured in the place of yes and no with a known rate of lies. Student's density for the noise is
Lange, Little and Taylor 1989 (Robust statistical modeling using the t distribution).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_STEP_ERRORS = np.linspace(-5.0, 5.0, 21)
"""Steps of the grid, in standard errors around what the bad end shows."""
_SCALE_FACTORS = 2.0 ** np.linspace(-2.0, 2.0, 13)
_DEGREES = np.array([3.0, 8.0, 60.0])
"""From noise with spikes to normal."""
_OF_A_NORMAL = 1.4826
"""Standard deviation over the median absolute deviation."""
_SMALLEST_SCALE = 1e-7
"""Times that are all equal were rounded: nobody is sure to more than this."""

Floats = NDArray[np.float64]


def change_probabilities(weights: Sequence[float], log_ratios: Sequence[Sequence[float]]) -> Floats:
    """The probability of each commit that the change came with it.

    Args:
        weights: Of each commit from the one after the good end to the bad end, how likely that was before anything was
            measured; not all 0.
        log_ratios: Of each commit, ln(commit / good) of its pairs; some of the bad end's, two or more in all.

    Returns:
        Shape [commits]; their sum is 1.
    """
    scale = _scale(log_ratios)
    bad_end = np.asarray(log_ratios[-1])
    steps = np.median(bad_end) + _STEP_ERRORS * scale / math.sqrt(len(bad_end))  # [steps]
    scales, degrees = (grid.ravel() for grid in np.meshgrid(_SCALE_FACTORS * scale, _DEGREES))  # [noises]
    # [commits, noises] and [commits, steps, noises]: how likely a commit's pairs are before and after the change
    before = np.stack([_log_likelihood(pairs, np.zeros(1), scales, degrees)[0] for pairs in log_ratios])
    after = np.stack([_log_likelihood(pairs, steps, scales, degrees) for pairs in log_ratios])
    all_before = np.concatenate([np.zeros_like(before[:1]), np.cumsum(before, axis=0)[:-1]])
    all_after = np.cumsum(after[::-1], axis=0)[::-1]
    together = all_before[:, None, :] + all_after
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(weights, dtype=np.float64))
    likelihoods = np.exp(together - together.max()).sum(axis=(1, 2))
    with np.errstate(divide="ignore"):
        logs = np.log(likelihoods) + log_weights
    shares = np.exp(logs - logs.max())
    probabilities: Floats = shares / shares.sum()
    return probabilities


def _log_likelihood(pairs: Sequence[float], centres: Floats, scales: Floats, degrees: Floats) -> Floats:
    """Of some pairs under each centre and each noise, [centres, noises]; a constant aside."""
    if not pairs:
        return np.zeros((len(centres), len(scales)))
    apart = (np.asarray(pairs, dtype=np.float64)[:, None, None] - centres[:, None]) / scales
    kernel = -(degrees + 1) / 2 * np.log1p(apart**2 / degrees) - np.log(scales) + _log_norms(degrees)
    total: Floats = kernel.sum(axis=0)
    return total


def _log_norms(degrees: Floats) -> Floats:
    return np.array(
        [math.lgamma((each + 1) / 2) - math.lgamma(each / 2) - math.log(each * math.pi) / 2 for each in degrees]
    )


def _scale(log_ratios: Sequence[Sequence[float]]) -> float:
    """Robust standard deviation of a pair, around the centre of its own commit."""
    many = [np.asarray(pairs) for pairs in log_ratios if len(pairs) > 1]
    apart = np.concatenate([pairs - np.median(pairs) for pairs in many])
    # each centre that was taken from the pairs takes a degree of freedom
    freedom = math.sqrt(len(apart) / (len(apart) - len(many)))
    return max(float(np.median(np.abs(apart))) * _OF_A_NORMAL * freedom, _SMALLEST_SCALE)
