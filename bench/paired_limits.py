"""How much of a change between two sides can be found: our rule beside an oracle that is told the law of the noise.

The oracle's is the likelihood-ratio test of a change of that size against none, which finds the most of all tests at
its error rate (Neyman and Pearson 1933). The cases are those in which no drift or process start stands for a change;
20, 50 or 100 timings a side. In the noise of a real history the oracle has its density, and may take its values for
independent, which they are not: so much cannot be had there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.detection import decide
from bench.detector_series import COARSE, NOISES, Generator, ticked
from bench.history_limits import around_running_median, rows_of
from bench.noise_laws import law_of, log_likelihood
from roofwatch.ci.ab.compare import critical

Floats = NDArray[np.float64]

_LEVEL = 0.01
"""Error rate of the oracle, both directions together."""
_WIDTHS = (0.005, 0.01, 0.02)
_COUNTS = (20, 50, 100)
_EFFECTS = (0.01, 0.02, 0.05)
_TRIALS = 3
_ORACLE_TRIALS = 400
_FAIR = (
    *((kind, order) for kind in ("skewed", "outliers", COARSE, "unequal") for order in ("interleaved", "blocked")),
    *((kind, "interleaved") for kind in ("two states", "autocorrelated", "ramp")),
)
_NEIGHBOURS = 7
"""Pairs that a level is taken from, as by ours."""
_LEAST_DENSITY = 1e-4
"""So that a value of which the history has none like it does not decide alone."""
_UNEQUAL = 2.5
"""How much wider the head's noise is where the sides are unequal."""


def print_paired(rng: Generator) -> None:
    """False alarms, and what is found of changes of 1, 2 and 5 %."""
    cells = [(kind, order, width, n) for kind, order in _FAIR for width in _WIDTHS for n in _COUNTS]
    for effect in (0.0, *_EFFECTS):
        ours = [_our_power(cell, effect, rng) for cell in cells]
        if effect:
            oracle = [_oracle_power(cell, effect, rng) for cell in cells]
            print(f"| found of {effect:+.0%} | {np.mean(ours):.1%} | {np.mean(oracle):.1%} |", flush=True)
        else:
            print(f"| false alarms | {np.mean(ours):.1%} | {_LEVEL:.1%} |", flush=True)


_Cell = tuple[str, str, float, int]


def _our_power(cell: _Cell, effect: float, rng: Generator) -> float:
    _, order, width, _ = cell
    called = 0
    for values, is_head in (_timings(cell, effect, 1, rng) for _ in range(_TRIALS)):
        times = 1_000 * np.exp(width * values[0])
        verdict = decide(times[~is_head], times[is_head], {"order": order})
        called += verdict == "regressed" or (not effect and verdict == "improved")
    return called / _TRIALS


def _timings(cell: _Cell, effect: float, trials: int, rng: Generator) -> tuple[Floats, NDArray[np.bool_]]:
    """Timings in the order taken, shape [trials, 2 n], in widths of the noise around the middle of the two levels."""
    kind, order, width, n = cell
    is_head = np.arange(2 * n) % 2 == 1 if order == "interleaved" else np.arange(2 * n) >= n
    shifts = _shifts(kind, is_head, math.log1p(effect) / width)
    if kind == "unequal":
        return shifts + rng.standard_normal((trials, 2 * n)) * np.where(is_head, _UNEQUAL, 1.0), is_head
    if kind == "ramp":
        line = np.linspace(-2, 2, 2 * n) * rng.choice([-1.0, 1.0], (trials, 1))
        return shifts + rng.standard_normal((trials, 2 * n)) + line, is_head
    if kind == COARSE:
        phases = rng.uniform(0, 1, (trials, 1))
        rows = [ticked(shifts + rng.standard_normal(2 * n), float(phase)) for phase in phases[:, 0]]
        return np.array(rows), is_head
    return np.array([shifts + NOISES[kind](2 * n, rng) for _ in range(trials)]), is_head


def _shifts(kind: str, is_head: NDArray[np.bool_], size: float) -> Floats:
    """Of each timing from the middle. Which middle, the one that helps least: a level is what nobody is told."""
    of_base = 1 / (1 + _UNEQUAL**2) if kind == "unequal" else 0.5
    return np.where(is_head, (1 - of_base) * size, -of_base * size)


def _oracle_power(cell: _Cell, effect: float, rng: Generator) -> float:
    (same, is_head), (moved, _) = (_timings(cell, size, _ORACLE_TRIALS, rng) for size in (0.0, effect))
    kind, _, width, _ = cell
    shifts = _shifts(kind, is_head, math.log1p(effect) / width)
    quiet, told = (_evidence_of_a_change(kind, values, shifts, is_head) for values in (same, moved))
    return float(np.mean(told > np.quantile(quiet, 1 - _LEVEL / 2)))


def _evidence_of_a_change(kind: str, values: Floats, shifts: Floats, is_head: NDArray[np.bool_]) -> Floats:
    if kind == "unequal":
        values, shifts = (one / np.where(is_head, _UNEQUAL, 1.0) for one in (values, shifts))
    if kind == "ramp":
        line = np.linspace(-2, 2, values.shape[1])
        values = values - line * np.sign(values @ line)[:, None]
    law = law_of("normal" if kind == "unequal" else kind)
    return log_likelihood(law, values - shifts) - log_likelihood(law, values)


# --- paired, in the noise of real histories


def print_paired_histories(folder: Path, rng: Generator) -> None:
    """The same of the cases in a folder of evaluation data, each in the noise of the history it was taken from."""
    histories = {row["id"]: np.array(row["values"]) for row in rows_of(folder / "data" / "real" / "gpu_raw.jsonl")}
    cases = rows_of(folder / "data" / "real" / "paired_gpu.jsonl")
    for effect in _EFFECTS:
        rows = [case for case in cases if case["effect"] == effect]
        verdicts = [decide(np.array(case["base"]), np.array(case["head"]), case["meta"]) for case in rows]
        noises = [around_running_median(np.log(histories[case["tags"]["noise_of"]])) for case in rows]
        powers = [
            _power_in_noise(noise, len(case["base"]), effect, rng) for noise, case in zip(noises, rows, strict=True)
        ]
        ours = np.mean([verdict == "regressed" for verdict in verdicts])
        print(f"| real histories, {effect:+.0%} ({len(rows)}) | {ours:.1%} | {np.mean(powers):.1%} |", flush=True)


def _power_in_noise(noise: Floats, count: int, effect: float, rng: Generator) -> float:
    """Of the likelihood-ratio test between independent values of this very noise, its density smoothed."""
    shift = math.log1p(effect) / 2
    density = _Density(noise)
    quiet, moved = (
        sum(
            density.log_of(values - sign * shift) - density.log_of(values)
            for sign in (-1, 1)
            for values in [rng.choice(noise, (_ORACLE_TRIALS, count)) + sign * size / 2]
        )
        for size in (0.0, 2 * shift)
    )
    return float(np.mean(moved > np.quantile(quiet, 1 - _LEVEL / 2)))


class _Density:
    """A kernel density of noise, by Silverman's rule."""

    def __init__(self, noise: Floats) -> None:
        low, high = np.quantile(noise, [0.25, 0.75])
        self._width = max(0.9 * min(float(noise.std()), (high - low) / 1.34) * len(noise) ** -0.2, 1e-6)
        self._noise = noise

    def log_of(self, values: Floats) -> Floats:
        """Summed over the last axis."""
        apart = (values[..., None] - self._noise) / self._width
        return np.asarray(np.log(np.exp(-0.5 * apart**2).mean(axis=-1) + _LEAST_DENSITY).sum(axis=-1))


# --- estimators chosen in hindsight


def _huber(values: Floats, reach: float) -> Floats:
    return np.asarray(np.clip(values, -reach, reach))


def _biweight(values: Floats, reach: float) -> Floats:
    return np.asarray(values * np.maximum(1 - (values / reach) ** 2, 0.0) ** 2)


_ESTIMATORS: tuple[tuple[Callable[[Floats, float], Floats], float], ...] = (
    *((_huber, reach) for reach in (0.3, 0.732, 1.345, 2.5)),
    *((_biweight, reach) for reach in (1.5, 2.4, 3.44, 4.685, 7.0)),
)
_STRIDE = 8
"""Values from one window of a history to the next."""
_HISTORY_COUNTS = (20, 30, 50)
_TWO_PERCENT = math.log(1.02)


def print_estimators_in_hindsight(folder: Path) -> None:
    """What is found of 2 % in either direction between alternate values of each history, by ours and by that score of a
    family which turns out to be the best for this very history, and is told the width of its noise.
    """
    cases = rows_of(folder / "data" / "real" / "paired_gpu.jsonl")
    histories = {row["id"]: np.array(row["values"]) for row in rows_of(folder / "data" / "real" / "gpu_raw.jsonl")}
    ours, best, alarms = [], [], []
    for name in sorted({case["tags"]["noise_of"] for case in cases}):
        noise = around_running_median(np.log(histories[name]))
        windows = [
            noise[start : start + 2 * count].reshape(count, 2)
            for count in _HISTORY_COUNTS
            for start in range(0, len(noise) - 2 * count + 1, _STRIDE)
        ]
        told = [window + np.array([0.0, size]) for window in windows for size in (_TWO_PERCENT, -_TWO_PERCENT)]
        ours.append(np.mean([_is_called(pairs) for pairs in told]))
        alarms += [_is_called(window) for window in windows]
        width = 1.4826 * float(np.median(np.abs(noise - np.median(noise))))
        shares = [np.mean([_is_told(pairs, width, *one) for pairs in told]) for one in _ESTIMATORS]
        best.append(max(shares))
    print(
        f"| windows of {len(ours)} histories, 2 % ({2 * len(alarms)}) | {np.mean(ours):.1%}, false alarms "
        f"{np.mean(alarms):.1%} | best estimator in hindsight {np.mean(best):.1%} |",
        flush=True,
    )


def _is_called(pairs: Floats) -> bool:
    times = 1_000 * np.exp(pairs)
    return decide(times[:, 0], times[:, 1], {"order": "interleaved"}) in ("regressed", "improved")


def _is_told(pairs: Floats, width: float, score: Callable[[Floats, float], Floats], reach: float) -> bool:
    """By the method of ours, with this score."""
    size = min(len(pairs), _NEIGHBOURS)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(pairs, size, axis=0), axis=(1, 2))
    levels = medians[np.clip(np.arange(len(pairs)) - size // 2, 0, len(medians) - 1)]
    scores = score((pairs - levels[:, None]) / width, reach)
    differences = scores[:, 1] - scores[:, 0]
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return abs(float(differences.mean())) > critical(len(pairs) - 1, 2 * _LEVEL) * error
