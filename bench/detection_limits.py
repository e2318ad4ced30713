"""How near the detectors come to what can be had: ours beside an oracle that is told what a detector has to learn.

    python -m bench.detection_limits [FOLDER]

Both judge the very same made-up cases, in the nine kinds of noise of `bench.detector_series`. The oracle knows the law
of the noise, its width, and the levels.

- *Place*: told that there is a step between two known levels, it says where, by maximum likelihood. Nobody who has to
  find out how many there are can place more of them.
- *Online*: the likelihood ratio of every recent place of the step, against the threshold that gives the promised false
  alarms over all kinds together (Page 1954; of all rules the quickest at that rate: Lorden 1971, Moustakides 1986).
  Once told the size of the step, and once not, when it averages over all of 2 to 12 widths (Pollak 1978).
- *Paired*: `bench.paired_limits`.

FOLDER has evaluation data of real histories as `make bench-detection` takes them; then the paired oracle is given the
noise of each history too, and there are steps planted into such noise (`bench.history_limits`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.detection_time import print_times
from bench.detector_series import NOISES, Generator, on_levels
from bench.detectors import detect
from bench.history_limits import print_steps_in_histories
from bench.history_online import print_online_in_histories
from bench.noise_laws import Law, evidence_of_steps, law_of
from bench.paired_limits import print_estimators_in_hindsight, print_paired, print_paired_histories
from bench.watches import Alarm, Watched, our_alarms, print_watches, together, watch, watch_at_rate

Floats = NDArray[np.float64]

_SEED = 20_261_121
_MARGIN = 5
_WINDOW = 40
_LENGTH_AFTER = 50
_ONLINE_STEPS = (2.5, 4.0, 5.0, 5.0, 10.0)
"""In widths of the noise: with 50 values on either side all stand out by 12 standard errors and more, where values are
independent."""
_LEAST_AUTOCORRELATED = 4.0
"""There smaller ones stand out by less than 6 standard errors."""
_ANY_SIZE = [[sign * size] for size in (2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0) for sign in (-1, 1)]
_ONLINE_REPEATS = 6
_NULLS = 3


def main() -> None:
    rng = np.random.default_rng(_SEED)
    print("| kind of noise | step placed within 5 values: ours | oracle |\n|---|---|---|")
    _print_places(rng)
    print(
        "\n| kind of noise | online within 5 / 10: ours | told the law | and the size | false alarms per 1000 of each |"
    )
    print("|---|---|---|---|---|")
    _print_online(rng)
    print("\n| paired, at 1 % | ours | oracle |\n|---|---|---|")
    print_paired(rng)
    if len(sys.argv) > 1:
        print_paired_histories(Path(sys.argv[1]), rng)
        print_estimators_in_hindsight(Path(sys.argv[1]))
    print()
    print_times(rng)
    if len(sys.argv) > 1:
        print_steps_in_histories(Path(sys.argv[1]), rng)
        print_online_in_histories(Path(sys.argv[1]), rng)


def _noise_around(kind: str, levels: Floats, rng: Generator) -> tuple[Floats, Floats]:
    """Values around levels, and what of them whoever knows the kind takes off: the ramp."""
    values = on_levels(kind, levels, rng)
    if kind != "ramp":
        return values, np.zeros(len(values))
    line = np.linspace(-2, 2, len(values))
    return values, line * np.sign((values - levels) @ line)


# --- places


def _print_places(rng: Generator) -> None:
    totals = np.zeros(3)
    for kind in NOISES:
        counts = np.zeros(3)
        for values, line, levels, steps, width in _planted(kind, rng):
            found = [place for place, _ in detect(1_000 * np.exp(width * values))]
            counts += [
                sum(any(abs(step - place) <= _MARGIN for place in found) for step in steps),
                sum(
                    abs(step - place) <= _MARGIN for step, place in _placed(law_of(kind), values - line, levels, steps)
                ),
                len(steps),
            ]
        totals += counts
        print(f"| {kind} | {counts[0] / counts[2]:.2f} | {counts[1] / counts[2]:.2f} |", flush=True)
    print(f"| all | {totals[0] / totals[2]:.2f} | {totals[1] / totals[2]:.2f} |", flush=True)


def _planted(kind: str, rng: Generator) -> Iterator[tuple[Floats, Floats, Floats, list[int], float]]:
    """Steps of 1 to 20 % in noise of 0.2 to 5 %, as the table of detectors has them."""
    for width in (0.002, 0.005, 0.01, 0.02, 0.05):
        for size in (0.01, 0.02, 0.05, 0.10, 0.20):
            count = int(rng.integers(110, 280))
            steps = [int(rng.integers(25, count // 2 - 12)), int(rng.integers(count // 2 + 13, count - 25))]
            levels = np.zeros(count)
            for step in steps:
                levels[step:] += math.log1p(size) / width * rng.choice([-1.0, 1.0])
            values, line = _noise_around(kind, levels, rng)
            yield values, line, levels, steps, width


def _placed(law: Law, values: Floats, levels: Floats, steps: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Each step with its likeliest place between its neighbours."""
    edges = [0, *steps, len(values)]
    for (start, step), (_, end) in pairwise(pairwise(edges)):
        before, after = values[start:end] - levels[step - 1], values[start:end] - levels[step]
        ratios = evidence_of_steps(law, before, after[None], end - start)[-1, 0]
        yield step, end - 1 - int(ratios[: end - start - 1].argmax())


# --- online


@dataclass(frozen=True)
class _OnlineCase:
    watched: Watched
    ours: list[Alarm]
    of_law: Floats
    """Log likelihood ratio of a step of any size, shape [values, window]."""
    of_size: Floats
    """The same of a step of the true size."""


def _print_online(rng: Generator) -> None:
    cases = list(_online_cases(rng))
    series = [case.watched for case in cases]
    watchers = (
        watch(series, [case.ours for case in cases]),
        watch_at_rate(series, [case.of_law for case in cases]),
        watch_at_rate(series, [case.of_size for case in cases]),
    )
    for kind in NOISES:
        print_watches(kind, [watches[kind] for watches in watchers])
    print_watches("all", [together(watches.values()) for watches in watchers])


def _online_cases(rng: Generator) -> Iterator[_OnlineCase]:
    for kind in NOISES:
        sizes = [size for size in _ONLINE_STEPS if kind != "autocorrelated" or size >= _LEAST_AUTOCORRELATED]
        for size in (*sizes * _ONLINE_REPEATS, *(0.0,) * _NULLS * _ONLINE_REPEATS):
            step = int(rng.integers(80, 100)) if size else None
            sign = 1 if rng.random() < 0.7 else -1
            levels = np.zeros(step + _LENGTH_AFTER if step else 140)
            levels[step or len(levels) :] = sign * size
            values, line = _noise_around(kind, levels, rng)
            # where nothing happens, it watches for a step of one of these sizes
            told = sign * (size or float(rng.choice(sizes)))
            distances = values - line
            evidence = evidence_of_steps(law_of(kind), distances, distances - np.array([[told], *_ANY_SIZE]), _WINDOW)
            of_law = np.logaddexp.reduce(evidence[:, 1:], axis=1) - math.log(len(_ANY_SIZE))
            watched = Watched(kind, step, len(values))
            yield _OnlineCase(watched, our_alarms(1_000 * np.exp(0.01 * values)), of_law, evidence[:, 0])


if __name__ == "__main__":
    main()
