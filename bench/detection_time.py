"""Processor time that our detector takes of a series of 500 values, by its noise and its steps, and of one value more.

    python -m bench.detection_time

Each series is judged nine times and the least counts: what others do on this machine only adds to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from bench.detector_series import NOISES, Generator, Values, on_levels
from bench.detectors import detect
from roofwatch.ci.changepoint import online

_SEED = 20_261_121
_COUNT = 500
_SIZE = 5.0
"""Of a step, in widths of the noise, which are one part in a hundred."""
_SERIES = 6
"""Of each kind."""
_RUNS = 9
_STEPS = {"none": (), "one": (250,), "two": (150, 330), "five": (80, 160, 250, 330, 420)}
"""Where the series step: up and back again."""


def main() -> None:
    print_times(np.random.default_rng(_SEED))


def print_times(rng: Generator) -> None:
    """Print milliseconds: the median of the series of each kind, at the end that of all series and their mean."""
    own = np.random.default_rng(_SEED)
    print(f"| steps among {_COUNT} values, CPU ms | {' | '.join(_STEPS)} |\n|{'---|' * (len(_STEPS) + 1)}")
    taken: dict[str, list[float]] = {steps: [] for steps in _STEPS}
    for kind in NOISES:
        for steps, places in _STEPS.items():
            # who prints these times among others draws what came after them as before
            drawn = rng if steps in ("none", "two") else own
            taken[steps] += [_least_ms(_judging(_series(kind, places, drawn))) for _ in range(_SERIES)]
        print(f"| {kind} | {' | '.join(f'{np.median(taken[steps][-_SERIES:]):.2f}' for steps in _STEPS)} |", flush=True)
    totals = " | ".join(f"{np.median(times):.2f}, mean {np.mean(times):.2f}" for times in taken.values())
    print(f"| all | {totals} |", flush=True)
    values = _series("normal", (), rng)
    print(f"\nOne value more, online: {_least_ms(lambda: _follow(values)) / _COUNT:.3f} ms", flush=True)


def _series(kind: str, places: tuple[int, ...], rng: Generator) -> Values:
    levels = np.zeros(_COUNT)
    for turn, place in enumerate(places):
        levels[place:] = 0.0 if turn % 2 else _SIZE
    return np.asarray(1_000 * np.exp(0.01 * on_levels(kind, levels, rng)))


def _judging(values: Values) -> Callable[[], object]:
    return lambda: detect(values)


def _follow(values: Values) -> None:
    state = online.start()
    for value in values:
        state, _ = online.update(state, float(value))


def _least_ms(work: Callable[[], object]) -> float:
    least = math.inf
    for _ in range(_RUNS):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return 1e3 * least


if __name__ == "__main__":
    main()
