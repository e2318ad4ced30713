"""Steps of how far results lie from the reference: what got less accurate, or more, within its tolerance. Pure.

An error is judged as a time is, on the scale of its logarithm, with two differences. An error of exactly 0 has no
logarithm: it counts as half of the smallest other one, so that the loss of exactness is a step and equal errors are
none. And a check draws the same inputs every time, so that where nothing changed, nothing moves at all: a level
whose errors are all the same number is certain, and needs no second measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.error_floor import error_floor
from roofwatch.ci.causes.explain import explain_error
from roofwatch.ci.changepoint import detect
from roofwatch.ci.history.value_steps import ValueSteps, find_value_steps
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, SeriesKey, SeriesPoint

METRIC = "rmse_ratio"
"""The error that is judged; the largest error of an element rests on one element, and jumps by itself."""


class ErrorSteps(ValueSteps):
    """One series of errors."""

    def __init__(
        self, key: SeriesKey, by_commit: Mapping[CommitRef, Sequence[SeriesPoint]], thresholds: Thresholds
    ) -> None:
        find = partial(_find_above, error_floor(key.case_id), thresholds)
        super().__init__(key, by_commit, find=find, explain=explain_error)


def find_error_steps(values: Sequence[float] | NDArray[np.float64], thresholds: Thresholds) -> list[detect.ChangePoint]:
    """Steps of an error; what `before` and `after` say are the errors as measured.

    Args:
        values: Errors, a commit each, 0 or above.
        thresholds: What is worth telling.
    """
    return find_value_steps(values, min_relative_change=thresholds.error_relative_change)


def _find_above(floor: float, thresholds: Thresholds, values: Sequence[float]) -> list[detect.ChangePoint]:
    return [
        step
        for step in find_error_steps(values, thresholds)
        # what was exact all the time and no longer is, such as a copy, lost something however small
        if not step.before or max(step.before, step.after) > floor
    ]
