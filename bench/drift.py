"""Drifts planted in made-up series, and series in which nothing drifts: what is found, and how exactly.

    python -m bench.drift [--series N]

Prints, for each number of measurements a week and noise, how often a drift of half a percent a week over ten weeks is
found after eight quiet ones, while it goes on or after some quiet weeks more, and how far its start, its rate and its
end are off; then how often noise whose level stays, and
noise with one step, is told as a drift, by kind of noise, and by a history, which looks for steps first. No times: the
figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.detector_series import NOISES
from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.changepoint.drift import find_drift
from roofwatch.ci.thresholds import Thresholds

_QUIET_WEEKS, _WEEKS, _RATE = 8, 18, 0.005
_PLANTED = ((7, 0.01), (3, 0.01), (14, 0.02), (7, 0.02))
"""Measurements a week, noise."""
_ENDED = ((7, 0.01, 4), (7, 0.01, 8), (7, 0.01, 16), (7, 0.02, 8))
"""The same, and quiet weeks after it."""
_VALUES, _NOISE = 150, 0.02
_STEP, _STEP_AT = 0.05, 90
_LIMITS = Thresholds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--series", type=int, default=400, help="of each kind")
    count = parser.parse_args().series
    for per_week, noise in _PLANTED:
        print(planted(count, per_week, noise), flush=True)
    for per_week, noise, quiet_weeks in _ENDED:
        print(planted(count, per_week, noise, quiet_weeks), flush=True)
    for kind in NOISES:
        if kind != "ramp":  # which drifts
            told = [sum(is_told(kind, seed, step) for seed in range(count)) for step in (0.0, _STEP)]
            in_history = sum(is_told(kind, seed, _STEP, in_history=True) for seed in range(count))
            print(
                f"{kind:16} told as a drift: {told[0] / count:.1%} of levels that stay, {told[1] / count:.1%} with a "
                f"step, {in_history / count:.1%} of these in a history",
                flush=True,
            )


def planted(count: int, per_week: int, noise: float, quiet_weeks: int = 0) -> str:
    """How many drifts are found, and between which bounds 80 % of starts, rates and ends lie."""
    weeks = np.arange((_WEEKS + quiet_weeks) * per_week) / per_week
    starts, rates, ends = [], [], []
    for seed in range(count):
        logs = noise * np.random.default_rng(seed).standard_normal(len(weeks))
        logs += math.log1p(_RATE) * np.clip(weeks - _QUIET_WEEKS, 0, _WEEKS - _QUIET_WEEKS)
        drift = find_drift(1_000 * np.exp(logs), weeks)
        if drift is not None:
            starts.append(float(weeks[drift.start]) - _QUIET_WEEKS)
            rates.append(drift.rate)
            if drift.end is not None:
                ends.append(float(weeks[drift.end]) - _WEEKS)
    ended = (
        f", of ends, which {len(ends) / count:.0%} are given, {_bounds(ends, '{:+.1f}')} weeks" if quiet_weeks else ""
    )
    return (
        f"{per_week} a week, {noise:.0%}, {quiet_weeks} quiet weeks after it: found {len(rates) / count:.0%}; 80 % of "
        f"starts within {_bounds(starts, '{:+.1f}')} weeks, of rates within {_bounds(rates, '{:.2%}')} a week{ended}"
    )


def _bounds(values: Sequence[float], written: str) -> str:
    low, high = np.quantile(values, [0.1, 0.9]) if values else (math.nan, math.nan)
    return f"{written.format(low)} to {written.format(high)}"


def is_told(kind: str, seed: int, step: float, *, in_history: bool = False) -> bool:
    """Whether a drift is told in noise of a kind, with a step or without; a history looks for steps first, and then for
    a drift since the last of them.
    """
    logs: NDArray[np.float64] = _NOISE * NOISES[kind](_VALUES, np.random.default_rng(seed))
    logs[_STEP_AT:] += math.log1p(step)
    values = 1_000 * np.exp(logs)
    if in_history:
        steps = find_change_points(values, min_relative_change=_LIMITS.trend_relative_change)
        values = values[steps[-1].index if steps else 0 :]
    return find_drift(values) is not None


if __name__ == "__main__":
    main()
