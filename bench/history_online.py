"""How soon steps in the noise of real histories can be told: ours beside oracles that are told that noise.

The noise is that of `bench.history_limits`, put together anew in blocks of six values in a row. The oracles know the
level and the sizes that a step may have, over which they average the likelihood ratio (Pollak 1978), of every place in
the newest forty values.

- *Told the density* of that history's noise, smoothed. It takes values for independent.
- *Told every run*: where blocks begin, and that each is one of the runs of six values of that history, blurred as
  much. A new level of six values has no such run, so it recognises what it knows by heart: nobody who learns from the
  series itself can.

Left out are steps that stand less than six standard errors out, as by the harness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.detector_series import Generator
from bench.history_limits import BLOCK, around_running_median, kernel_width, rows_of, spread_of
from bench.watches import Alarm, Watched, our_alarms, print_watches, watch, watch_at_rate

Floats = NDArray[np.float64]

_REPEATS = 6
"""Series with a step, and without, in the noise of each history."""
_STEPS = (0.02, 0.05, 0.1, 0.2)
_LENGTH_AFTER = 50
_LENGTH = 140
"""Of a series without a step."""
_RESOLVABLE = 6.0
"""Standard errors."""
_WINDOW = 40
_SIZES = np.array([sign * math.log1p(step) for step in _STEPS for sign in (-1, 1)])
_LEAST_DENSITY = 1e-4
"""So that a value of which the history has none like it does not decide alone."""


def print_online_in_histories(folder: Path, rng: Generator) -> None:
    """Found within 5 / 10 values, and false alarms in 1000 values: ours, and the oracle's."""
    rows = rows_of(folder / "data" / "real" / "gpu_injected.jsonl")
    histories = {row["id"]: np.array(row["values"]) for row in rows_of(folder / "data" / "real" / "gpu_raw.jsonl")}
    noises = {
        name: around_running_median(np.log(histories[name])) for name in {row["tags"]["noise_of"] for row in rows}
    }
    series: list[Watched] = []
    ours: list[list[Alarm]] = []
    of_density: list[Floats] = []
    of_runs: list[Floats] = []
    for name in sorted(noises):
        for watched, logs in _planted(noises[name], rng):
            series.append(watched)
            ours.append(our_alarms(1e5 * np.exp(logs)))
            of_density.append(_evidence(logs, noises[name], 1))
            of_runs.append(_evidence(logs, noises[name], BLOCK))
    print(
        "\n| steps in the noise of real histories, online | ours | told the density | told every run "
        "| false alarms per 1000 of each |"
    )
    print("|---|---|---|---|---|")
    seen = watch(series, ours), watch_at_rate(series, of_density), watch_at_rate(series, of_runs)
    watches = [one for by_kind in seen for one in by_kind.values()]
    print_watches(f"within 5 / 10 values, {len(series)} series", watches)


def _planted(noise: Floats, rng: Generator) -> Iterator[tuple[Watched, Floats]]:
    for is_quiet in (False, True) * _REPEATS:
        step = None if is_quiet else int(rng.integers(80, 100))
        count = _LENGTH if step is None else step + _LENGTH_AFTER
        begins = rng.integers(0, len(noise) - BLOCK + 1, count // BLOCK + 1)
        logs = np.concatenate([noise[begin : begin + BLOCK] for begin in begins])[:count]
        if step is not None:
            size = math.log1p(float(rng.choice(_STEPS)))
            if size / (spread_of(noise) * math.sqrt(2 / _LENGTH_AFTER)) < _RESOLVABLE:
                continue
            logs[step:] += size * (1 if rng.random() < 0.7 else -1)
        yield Watched("histories", step, count), logs


def _evidence(logs: Floats, noise: Floats, run: int) -> Floats:
    """Log likelihood ratio of a step 1, 2, ... values ago against none, after each value, shape [values, window].

    Args:
        logs: Of a series whose level is 0.
        noise: Of its history.
        run: Values that are drawn from the history together.
    """
    width = kernel_width(noise)
    count = len(logs) - len(logs) % run
    values = logs[:count].reshape(-1, run)
    runs = np.lib.stride_tricks.sliding_window_view(noise, run)

    def told(sizes: Floats) -> Floats:
        """Log density of each value, by the run it may come from, shape [sizes, blocks, in block, runs]."""
        distances = (values[None, :, :, None] - sizes[:, None, None, None] - runs.T[None, None]) / width
        return np.log(np.exp(-0.5 * distances**2) + _LEAST_DENSITY)

    stays, moves = told(np.zeros(1))[0], told(_SIZES)
    until = np.concatenate([np.zeros_like(stays[:, :1]), np.cumsum(stays, axis=1)], axis=1)
    none = np.logaddexp.reduce(until[:, 1:], axis=-1)
    """Of a block's values up to each, if nothing happens, shape [blocks, in block]."""
    moved = np.cumsum(moves, axis=2)
    # [sizes, blocks, first moved value, last value]; what ends before it begins means nothing
    within = np.full((len(_SIZES), len(values), run, run), -np.inf)
    for first in range(run):
        since = moved[:, :, first:] - (moved[:, :, first - 1 : first] if first else 0.0)
        within[:, :, first, first:] = np.logaddexp.reduce(since + until[None, :, first : first + 1], axis=-1)
    ratios = within - none[None, :, None, :]
    whole = np.concatenate([np.zeros((len(_SIZES), 1)), np.cumsum(ratios[:, :, 0, -1], axis=1)], axis=1)
    evidence = np.full((len(logs), _WINDOW), -np.inf)
    for last in range(count):
        for length in range(1, min(_WINDOW, last + 1) + 1):
            block, first = divmod(last + 1 - length, run)
            newest, end = divmod(last, run)
            if block == newest:
                by_size = ratios[:, block, first, end]
            else:
                between = whole[:, newest] - whole[:, block + 1]
                by_size = ratios[:, block, first, -1] + between + ratios[:, newest, 0, end]
            evidence[last, length - 1] = np.logaddexp.reduce(by_size) - math.log(len(_SIZES))
    return evidence
