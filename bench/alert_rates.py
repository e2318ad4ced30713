"""False alerts, delays and probabilities of steps that alert without a pair, on noise of histories.

    PYTHONPATH=. python bench/alert_rates.py FOLDER [--series N] [--seed N]

FOLDER contains `data/real/gpu_raw.jsonl`, histories of several projects, and `synth.py`, with
`noise`. Steps are planted in noise drawn from each project: six neighbouring residuals at a time,
off a running median of 31 values. All values are analysed again whenever one is new, as the service
does.

The probability that an alert is real begins at the share of real alerts of the other sources.
"""

import argparse
import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.noise_sources import Planted, Values, drawn, read_histories, width_of
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.history.step_findings import is_sure_step
from roofwatch.ci.history.steps import find_time_steps
from roofwatch.ci.history.summary import share_real

_LEARNING = 30
"""Values of a young series."""
_MIN_WIDTHS = 1.6
"""Noise widths of the smallest step that counts as visible."""
_STEPS = (0.02, 0.05, 0.1)
_SHARES = (0.1, 0.2, 0.7)
_FIRST, _LAST, _AFTER = 60, 160, 50
"""Range of the position of a step, and values after it."""
_MARGIN = 5
"""Values by which the position of an alarm may differ from that of the step."""
_LONG = 400
"""Values of a series without a step."""
_SPANS = ((_LEARNING, _LONG), (_LEARNING, 50), (50, 200), (200, _LONG))
_BINS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass
class Score:
    """Alerts of some series."""

    value_counts: list[int] = field(default_factory=list)
    """Of each series."""
    step_count: int = 0
    delays: list[int] = field(default_factory=list)
    false_at: list[int] = field(default_factory=list)
    """Values seen at each false alarm."""
    are_real: list[bool] = field(default_factory=list)
    """Of the alarms, in their order."""

    def rate(self, low: int = _LEARNING, high: int = _LONG) -> float:
        """False alarms per 1,000 values, after so many values."""
        values = sum(max(min(count, high) - low, 0) for count in self.value_counts)
        return 1_000 * sum(low < seen_count <= high for seen_count in self.false_at) / values

    def row(self, spans: Sequence[tuple[int, int]] = _SPANS) -> str:
        """Rates by the values seen, and share of steps found within 5 and 10 values."""
        cells = [f"{self.rate(*span):.2f}" for span in spans]
        for max_delay in (5, 10):
            early_count = sum(delay <= max_delay for delay in self.delays)
            cells.append(f"{early_count / self.step_count:.0%}")
        return " | ".join(cells)


def alerting_steps(values: Values) -> Iterator[tuple[int, Step]]:
    """Yield the values seen and each step of a time that may raise an alert then."""
    for seen in range(1, len(values) + 1):
        seen_values = values[:seen]
        steps = find_time_steps(seen_values, np.full(seen, math.nan))
        for step, chance in zip(steps, chances_of_steps(seen_values, steps), strict=True):
            if is_sure_step(step, chance):
                yield seen, step


def score(series: Sequence[Planted]) -> Score:
    """Feed each series value by value. An alarm that repeats an earlier one does not count."""
    total = Score()
    for planted in series:
        alarm_indices: list[int] = []
        is_found = False
        total.value_counts.append(len(planted.values))
        total.step_count += planted.step_at is not None
        for seen, step in alerting_steps(planted.values):
            is_near = (
                planted.step_at is not None
                and seen > planted.step_at
                and abs(step.index - planted.step_at) <= _MARGIN
            )
            if is_near and not is_found and planted.step_at is not None:
                is_found = True
                total.delays.append(seen - planted.step_at)
            elif any(abs(step.index - alarm_index) <= _MARGIN for alarm_index in alarm_indices):
                continue
            else:
                is_near = False
                total.false_at.append(seen)
            alarm_indices.append(step.index)
            total.are_real.append(is_near)
    return total


# --- series


def _step(width: float, rng: np.random.Generator) -> float:
    """A visible change of the log level."""
    visible = [
        (step, share)
        for step, share in zip(_STEPS, _SHARES, strict=True)
        if step >= _MIN_WIDTHS * width
    ]
    steps, shares = zip(*visible or [(0.2, 1.0)], strict=True)
    return math.log1p(rng.choice(steps, p=np.array(shares) / sum(shares))) * float(
        rng.choice([-1, 1])
    )


def _series(
    histories: Sequence[Values], synth: ModuleType, count: int, rng: np.random.Generator
) -> Iterator[Planted]:
    """Series in noise drawn from histories, or synthetic if there are none; half of them with a
    step.
    """
    for number in range(count):
        step_at = int(rng.integers(_FIRST, _LAST)) if number % 2 else None
        length = _LONG if step_at is None else step_at + _AFTER
        if histories:
            history = histories[number // 2 % len(histories)]
            width, noise = width_of(history), drawn(history, length, rng)
        else:
            width = float(rng.choice([0.005, 0.01, 0.02]))
            relative = synth.noise(synth.KINDS[number // 2 % len(synth.KINDS)], length, width, rng)
            noise = np.log1p(np.maximum(relative, -0.6))
        if step_at is not None:
            noise[step_at:] += _step(width, rng)
        yield Planted(1_000 * np.exp(noise), step_at)


def _print_reliability(scores: Mapping[str, Score]) -> None:
    """How many alarms are real, by the probability stated before each."""
    print("\nReal alarms by their stated probability\n")
    bins = " | ".join(f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BINS))
    print(f"| source | {bins} |\n|{'---|' * len(_BINS)}")
    all_real_count = sum(sum(score_of_source.are_real) for score_of_source in scores.values())
    alarm_count = sum(len(score_of_source.are_real) for score_of_source in scores.values())
    for name, score_of_source in scores.items():
        are_real = score_of_source.are_real
        # the prior is the share of the other sources
        prior = (all_real_count - sum(are_real)) / (alarm_count - len(are_real))
        chances = [
            share_real(sum(are_real[:count]), count, prior=prior) for count in range(len(are_real))
        ]
        cells = [_real_in_bin(chances, are_real, low, high) for low, high in pairwise(_BINS)]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nReal alarms of all sources: {all_real_count} of {alarm_count}")


def _real_in_bin(
    chances: Sequence[float], are_real: Sequence[bool], low: float, high: float
) -> str:
    in_bin = [
        is_real for chance, is_real in zip(chances, are_real, strict=True) if low < chance <= high
    ]
    if not in_bin:
        return ""
    return f"{sum(in_bin)} of {len(in_bin)}"


def main() -> None:
    """Print the rates of each source, and the reliability of stated probabilities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--series", type=int, default=160, help="series of each source, half of them with a step"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not (arguments.folder / "synth.py").is_file():
        raise SystemExit(
            f"{arguments.folder}: no synth.py; give a folder with synth.py and "
            f"data/real/gpu_raw.jsonl"
        )
    sys.path.insert(0, str(arguments.folder))
    synth = importlib.import_module("synth")
    rng = np.random.default_rng(arguments.seed)
    histories = {**read_histories(arguments.folder), "synthetic": []}
    sources = {
        name: list(_series(of_source, synth, arguments.series, rng))
        for name, of_source in histories.items()
    }
    spans = ((0, _LEARNING), *_SPANS)
    columns = " | ".join(
        f"false alerts per 1,000 after {low} to {high} values" for low, high in spans
    )
    print(f"| source | {columns} | within 5 | within 10 |\n|{'---|' * 8}")
    scores = {name: score(planted) for name, planted in sources.items()}
    for name, score_of_source in scores.items():
        print(f"| {name} | {score_of_source.row(spans)} |")
    _print_reliability(scores)


if __name__ == "__main__":
    main()
