"""How well steps in the noise of real histories can be found: ours beside an oracle that is told that noise.

The noise is what a history's values do around their running median. It is put together anew in blocks of six values in
a row, so that neighbours stay as dependent as they are, and steps are planted into it. All oracles know the density of
that noise, smoothed, and between which other steps one may be. They take values for independent, which those of a block
are not.

- *Told the noise*: it has to say whether there is a step, and where, by the likelihood ratio under the best levels.
- *And the levels*: likewise, of a step of known size away from a known level.
- *And how many*: it only has to say where.

The first two have the least threshold that raises at most 0.1 false alarms in 1000 values of series without a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detector_series import STEPS, Generator, places_of_steps
from bench.detectors import detect

Floats = NDArray[np.float64]

_NEIGHBOURS = 15
"""On either side of the running median."""
BLOCK = 6
"""Values in a row that are taken from a history together."""
_REPEATS = 8
"""Series with steps, and without, in the noise of each history."""
_MARGIN = 5
_FALSE_ALARMS = 1e-4
"""Per value of a series without a step."""
_GRID = np.linspace(-15.0, 15.0, 1_501)
_LEVEL_COUNT = 60
_SHORTEST = 3
"""Values of a level, as of our own."""
_LEAST_DENSITY = 1e-4
"""So that a value of which the history has none like it does not decide alone."""


@dataclass(frozen=True)
class _Case:
    """Logarithms of the values, and what the oracle is told of them."""

    logs: Floats
    noise: Floats
    steps: tuple[int, ...]
    sizes: tuple[float, ...]
    """Of the steps; of a series without any, of the one that the oracle looks for."""


@dataclass
class _Found:
    hits: int = 0
    told: int = 0
    planted: int = 0
    quiet_alarms: int = 0
    quiet_count: int = 0

    def add(self, case: _Case, places: Sequence[int]) -> None:
        left = set(places)
        for step in case.steps:
            near = min(
                (place for place in left if abs(place - step) <= _MARGIN), key=lambda p: abs(p - step), default=0
            )
            left.discard(near)
        self.hits += len(set(places)) - len(left)
        self.told += len(set(places))
        self.planted += len(case.steps)
        if not case.steps:
            self.quiet_alarms += len(places)
            self.quiet_count += len(case.logs)

    def __str__(self) -> str:
        precision, recall = self.hits / max(self.told, 1), self.hits / self.planted
        alarms = 1_000 * self.quiet_alarms / self.quiet_count
        return f"{2 * self.hits / (self.told + self.planted):.2f} ({precision:.2f} / {recall:.2f}), {alarms:.2f}"


def print_steps_in_histories(folder: Path, rng: Generator) -> None:
    """F1, precision, recall, and false alarms per 1000 stable values, on the folder's own series and on new ones."""
    rows = rows_of(folder / "data" / "real" / "gpu_injected.jsonl")
    histories = {row["id"]: np.array(row["values"]) for row in rows_of(folder / "data" / "real" / "gpu_raw.jsonl")}
    noises = {
        name: around_running_median(np.log(histories[name])) for name in {row["tags"]["noise_of"] for row in rows}
    }
    sets = {
        "the folder's": [_given(row, noises[row["tags"]["noise_of"]], rng) for row in rows],
        "made anew": [case for name in sorted(noises) for case in _planted(noises[name], rng)],
    }
    print("\n| steps in the noise of real histories | series | ours | told the noise | and the levels | and how many |")
    print("|---|---|---|---|---|---|")
    for name, cases in sets.items():
        ours = _judged(cases, [[place for place, _ in detect(np.exp(case.logs))] for case in cases])
        told_noise = _judged_at_rate(cases, [_evidence_of_any(case) for case in cases])
        of_levels = [_evidence(case) for case in cases]
        told_levels = _judged_at_rate(cases, of_levels)
        told_number = _judged(
            cases,
            [[place for place, _ in found] if case.steps else [] for case, found in zip(cases, of_levels, strict=True)],
        )
        print(f"| {name} | {len(cases)} | {ours} | {told_noise} | {told_levels} | {told_number} |", flush=True)


def around_running_median(logs: Floats) -> Floats:
    """What a history's values do around the median of their neighbours, of as many as there are at the ends."""
    windows = [logs[max(0, index - _NEIGHBOURS) : index + _NEIGHBOURS + 1] for index in range(len(logs))]
    return np.asarray(logs - np.array([np.median(window) for window in windows]))


def _planted(noise: Floats, rng: Generator) -> Iterator[_Case]:
    for is_quiet in (False, True) * _REPEATS:
        count = int(rng.integers(110, 280))
        begins = rng.integers(0, len(noise) - BLOCK + 1, count // BLOCK + 1)
        logs = np.concatenate([noise[begin : begin + BLOCK] for begin in begins])[:count]
        steps = () if is_quiet else places_of_steps(count, 1 if rng.random() < 2 / 3 else 2, rng)
        sizes = tuple(_size(rng) for _ in steps or [0])
        for step, size in zip(steps, sizes, strict=False):
            logs[step:] += size
        yield _Case(logs, noise, steps, sizes)


def _size(rng: Generator) -> float:
    return math.log1p(float(rng.choice(STEPS))) * (1 if rng.random() < 0.7 else -1)


def _given(row: dict[str, Any], noise: Floats, rng: Generator) -> _Case:
    steps = tuple(row["annotations"]["truth"])
    sizes = tuple(
        math.log1p(step) * row["directions"][str(place)]
        for place, step in zip(steps, row["tags"]["steps"], strict=True)
    )
    logs = np.log(np.array(row["values"]))
    flat = logs - np.repeat(np.cumsum([0.0, *sizes]), np.diff([0, *steps, len(logs)]))
    return _Case(logs - np.median(flat) + np.median(noise), noise, steps, sizes or (_size(rng),))


def _judged(cases: Sequence[_Case], places: Sequence[Sequence[int]]) -> _Found:
    found = _Found()
    for case, told in zip(cases, places, strict=True):
        found.add(case, told)
    return found


def _judged_at_rate(cases: Sequence[_Case], evidence: Sequence[_Evidence]) -> _Found:
    """What stands out above the quiet series, but for as many of them as may raise an alarm."""
    quiet = [(found[0][1], len(case.logs)) for case, found in zip(cases, evidence, strict=True) if not case.steps]
    allowed = int(_FALSE_ALARMS * sum(count for _, count in quiet))
    threshold = sorted((ratio for ratio, _ in quiet), reverse=True)[allowed]
    return _judged(cases, [[place for place, ratio in found if ratio > threshold] for found in evidence])


_Evidence = list[tuple[int, float]]
"""The likeliest place of each step between its neighbours, and the log likelihood ratio of a step there."""


def _neighbourhoods(case: _Case) -> Iterator[tuple[int, int]]:
    edges = [0, *(case.steps or [len(case.logs)]), len(case.logs)]
    yield from zip(edges, edges[2:], strict=False)


def _evidence(case: _Case) -> _Evidence:
    """Of steps between known levels."""
    log_density = _log_density(case.noise)
    levels = np.cumsum([0.0, *case.sizes])
    found = []
    for index, (start, end) in enumerate(_neighbourhoods(case)):
        own = case.logs[start:end]
        gains = log_density(own - levels[index + 1]) - log_density(own - levels[index])
        ahead = np.cumsum(gains[::-1])[::-1][1:]
        found.append((start + 1 + int(ahead.argmax()), float(ahead.max())))
    return found


def _evidence_of_any(case: _Case) -> _Evidence:
    """Of steps between levels that are to be found."""
    log_density = _log_density(case.noise)
    found = []
    for start, end in _neighbourhoods(case):
        own = case.logs[start:end]
        levels = np.quantile(own, np.linspace(0.02, 0.98, _LEVEL_COUNT)) - np.median(case.noise)
        told = log_density(own[:, None] - levels)
        before = np.cumsum(told, axis=0)
        whole = before[-1]
        ratios = (before.max(axis=1) + (whole - before).max(axis=1) - whole.max())[_SHORTEST - 1 : -_SHORTEST]
        found.append((start + _SHORTEST + int(ratios.argmax()), float(ratios.max())))
    return found


def spread_of(noise: Floats) -> float:
    """As a normal distribution's standard deviation, by the quartiles where outliers make the other one larger."""
    low, high = np.quantile(noise, [0.25, 0.75])
    return min(float(noise.std()), float(high - low) / 1.34)


def kernel_width(noise: Floats) -> float:
    """Silverman's, of a kernel estimate of the density."""
    return 0.9 * spread_of(noise) * float(len(noise) ** -0.2)


def _log_density(noise: Floats) -> Callable[[Floats], Floats]:
    """By a kernel of Silverman's width."""
    spread, width = spread_of(noise), kernel_width(noise)
    grid = _GRID * spread
    known = np.log(np.exp(-0.5 * ((grid[:, None] - noise) / width) ** 2).mean(axis=1) + _LEAST_DENSITY)
    return lambda values: np.asarray(np.interp(values, grid, known))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Of a file with one JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
