"""How certain the values of a series are beside each other, as how much wider an uncertain one spreads. Pure.

The noise of a series holds the standard error that most of its values have; what an error exceeds that by comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION, Values, median

_LARGEST_ERROR = 1e30
"""So that its square is a number: what is known no better than this is not known at all."""


@dataclass(frozen=True)
class Certainty:
    """What the values of a series are held against."""

    typical_error: float
    """Standard error of most values, on the scale they are judged on."""
    noise: float
    """Standard deviation of such a value around its level."""

    @classmethod
    def of(cls, values: Values, errors: Values, *, floor: float) -> Certainty | None:
        """Learn it from some values; None where no error is known, or too few values are there to differ.

        Args:
            values: In time order, on the scale they are judged on, shape [values].
            errors: Standard error of each on that scale, NaN where it is not known, shape [values].
            floor: Smallest noise believed.
        """
        known = errors[np.isfinite(errors)]
        if not len(known) or len(values) < 2:
            return None
        noise = MAD_TO_DEVIATION * median(np.abs(np.diff(values))) / math.sqrt(2)
        return cls(median(known), max(noise, floor))

    def widths(self, errors: Values) -> Values | None:
        """How much wider each value spreads than one as certain as most, as a factor; None where none spreads wider.

        Args:
            errors: As for `of`; one that is not known is as certain as most.
        """
        beyond = np.where(np.isfinite(errors), np.maximum(errors**2 - self.typical_error**2, 0.0), 0.0)
        if not beyond.any():
            return None
        widths: Values = np.sqrt(1 + beyond / self.noise**2)
        return widths


def kept_errors(errors: Sequence[float] | Values) -> tuple[float, ...]:
    """Errors as a state keeps them: to 32 bits, 0 where one is not known; none where none is."""
    given = np.asarray(errors, dtype=np.float64)
    known = np.where(np.isfinite(given), np.abs(given), 0.0)
    kept = np.minimum(known, _LARGEST_ERROR).astype(np.float32)
    return tuple(kept.tolist()) if kept.any() else ()


def joined_errors(*parts: tuple[tuple[float, ...], int]) -> tuple[float, ...]:
    """Kept errors of values one after the other, of each part with the number of its values."""
    if not any(errors for errors, _ in parts):
        return ()
    return tuple(error for errors, count in parts for error in (errors or (0.0,) * count))


def known_errors(kept: Sequence[float]) -> Values | None:
    """Kept errors, NaN where one is not known; None where none is."""
    if not kept:
        return None
    errors = np.array(kept)
    errors[errors == 0] = np.nan
    return errors
