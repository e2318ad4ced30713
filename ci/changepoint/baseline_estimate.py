"""What a series has shown before its newest values: how its level drifts, and its noise. Pure; online.

Nothing of it is in a state: it is learnt from the values that a state holds when it is asked for. That is seldom, as
most new values lie so near to their level that the noise does not matter (`roofwatch.ci.changepoint.online`), and most
levels stand so
plainly still that the width of their noise says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from roofwatch.ci.changepoint.level_line import MIN_FOR_SLOPE, fit_slope, is_drifting, may_drift, residuals_of
from roofwatch.ci.changepoint.noise import (
    MIN_FOR_SHAPE,
    OUTLIER,
    Noise,
    Values,
    deviation_of,
    estimate_noise,
    leftover_inflation,
    stickiness_of_differences,
    tick_of,
)
from roofwatch.ci.changepoint.weights import Certainty, known_errors

_FOLLOWED = 16
"""Levels that are remembered as they were learnt, for who follows a series value by value."""
_MIN_FOR_AUTOCORRELATION = 30
"""Half of what the offline method asks for: here the residuals hold no step that could pass for autocorrelation."""


class Held(NamedTuple):
    """What the noise is learnt from: values of a level, the present one or the one before, and what is remembered of
    others.
    """

    values: tuple[float, ...]
    """On the scale they are judged on."""
    errors: tuple[float, ...]
    """Standard error of each on that scale; 0 where it is not known, none if none is."""
    residuals: tuple[float, ...]
    """Distances of values of other levels from these."""
    floor: float
    """Smallest noise believed."""
    is_before: bool
    """Whether the values are those of the level before the present one."""


@dataclass(frozen=True)
class Level:
    """What the values of a level say by themselves."""

    certainty: Certainty | None
    slope: float
    """Per value; 0 unless the level drifts."""
    residuals: Values
    """Distances of the values from it, as those of values as certain as most."""


@lru_cache(maxsize=_FOLLOWED)
def level_of(held: Held) -> Level:
    """What is told without learning the noise, unless the level may drift."""
    values, errors = np.array(held.values), known_errors(held.errors)
    certainty = None if errors is None else Certainty.of(values, errors, floor=held.floor)
    widths = None if certainty is None or errors is None else certainty.widths(errors)
    slope = _slope(held.residuals, values, held.floor, widths)
    return Level(certainty, slope, _narrowed(residuals_of(values, slope), widths))


@dataclass(frozen=True)
class Learnt:
    """What a series has shown before its newest values."""

    residuals: Values
    noise: Noise
    certainty: Certainty | None


@lru_cache(maxsize=_FOLLOWED)
def learnt_from(held: Held) -> Learnt:
    """The noise, from the distances of all that is remembered, in time order."""
    level = level_of(held)
    others = np.array(held.residuals)
    known = np.concatenate([level.residuals, others] if held.is_before else [others, level.residuals])
    return Learnt(known, _learn(known, held.floor), level.certainty)


def rest_of(others: tuple[float, ...], settled: Values, floor: float, widths: Values | None) -> list[float]:
    """Distances of values from their level, or from the line that it drifts along, as those of certain ones; arguments
    as for `_slope`.
    """
    slope = _slope(others, settled, floor, widths)
    distances: list[float] = _narrowed(residuals_of(settled, slope), widths).tolist()
    return distances


def _slope(others: tuple[float, ...], settled: Values, floor: float, widths: Values | None) -> float:
    """How a level drifts, per value; 0 unless it must.

    Args:
        others: Distances that are remembered of other levels.
        settled: Values of the level, shape [values].
        floor: Smallest noise believed.
        widths: How much wider each value spreads than most, as a factor; None: all alike.
    """
    if len(settled) < MIN_FOR_SLOPE:
        return 0.0
    slope = fit_slope(settled, floor)
    left = residuals_of(settled, slope)
    known = np.concatenate([np.array(others), _narrowed(left, widths)])
    # the width of the noise is quickly told, and says of most levels that they do not
    if not may_drift(slope, left, deviation_of(known, floor=floor, tick=tick_of(known))):
        return 0.0
    return slope if is_drifting(slope, left, _learn(known, floor)) else 0.0


def _narrowed(distances: Values, widths: Values | None) -> Values:
    """Distances as those of values as certain as most."""
    return distances if widths is None else distances / widths


def _learn(known: Values, floor: float) -> Noise:
    stickiness = stickiness_of_differences(known, least=_MIN_FOR_AUTOCORRELATION)
    nothing = np.zeros(len(known), dtype=bool)
    noise = estimate_noise(known, [], nothing, is_sticky=stickiness > 0, floor=floor, tick=tick_of(known))
    if len(known) < MIN_FOR_SHAPE:
        # no shape of their own, but a dependence
        return replace(noise, inflation=leftover_inflation(np.clip(known / noise.deviation, -OUTLIER, OUTLIER)))
    if not noise.autocorrelation:
        return noise
    # the upper end of what so many values allow: too little of it raises false alarms, too much only waits
    error = math.sqrt((1 - noise.autocorrelation**2) / len(known))
    return replace(noise, autocorrelation=min(noise.autocorrelation + error, 0.95))
