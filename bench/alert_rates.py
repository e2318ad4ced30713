"""False alerts, delays and probabilities of steps that alert without a pair, on noise of histories.

    PYTHONPATH=. python bench/alert_rates.py FOLDER [--series N] [--seed N]

FOLDER contains `data/real/gpu_raw.jsonl`, histories of several projects, and `synth.py`, with
`noise`. Steps are planted in noise drawn from each project: six neighbouring residuals at a time,
off a running median of 31 values. All values are analysed again whenever one is new, as the service
does.

The probability that an alert is real begins at the share of real alerts of the other sources.
"""

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.noise_sources import (
    PlantedSeries,
    StepPlaces,
    Values,
    draw_series,
    import_synth,
    read_histories,
)
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
"""Sizes of steps and how often each is planted: most of what people act on is 10 % or more."""
_LARGE_STEP = 0.2
"""Where the noise hides the others."""
_MARGIN = 5
"""Values by which the position of an alarm may differ from that of the step."""
_LONG = 400
"""Values of a series without a step."""
_PLACES = StepPlaces(
    first=60,
    last=160,
    values_after=50,
    values_without_step=_LONG,
)
_SPANS = (
    (_LEARNING, _LONG),
    (_LEARNING, 50),
    (50, 200),
    (200, _LONG),
)
"""Values seen, from and to: a young series alerts more easily than an old one."""
_BINS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass
class AlertScore:
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
        value_count = 0
        for count in self.value_counts:
            # a series that ended before the span adds nothing
            seen_within = min(count, high) - low
            value_count += max(seen_within, 0)
        false_count = sum(low < seen_count <= high for seen_count in self.false_at)
        return 1_000 * false_count / value_count

    def row(self, spans: Sequence[tuple[int, int]] = _SPANS) -> str:
        """Rates by the values seen, and share of steps found within 5 and 10 values."""
        cells = [f"{self.rate(*span):.2f}" for span in spans]
        for max_delay in (5, 10):
            early_count = sum(delay <= max_delay for delay in self.delays)
            cells.append(f"{early_count / self.step_count:.0%}")
        return " | ".join(cells)


def alerting_steps(values: Values, seen_counts: Iterable[int]) -> Iterator[tuple[int, Step]]:
    """Yield the values seen and each step of a time that may raise an alert then.

    Args:
        values: Of a series, in time order.
        seen_counts: How many of them there are at each analysis.
    """
    for seen in seen_counts:
        # The service analyses all values whenever one is new.
        seen_values = values[:seen]
        # histories of others have no spread of each value
        unknown_spreads = np.full(seen, math.nan)
        steps = find_time_steps(seen_values, unknown_spreads)
        chances = chances_of_steps(seen_values, steps)
        for step, chance in zip(steps, chances, strict=True):
            if is_sure_step(step, chance):
                yield seen, step


def score(series: Sequence[PlantedSeries]) -> AlertScore:
    """Feed each series value by value. An alarm that repeats an earlier one does not count."""
    total = AlertScore()
    for planted in series:
        total.value_counts.append(len(planted.values))
        total.step_count += planted.step_at is not None
        _score_series(planted, total)
    return total


def _score_series(planted: PlantedSeries, total: AlertScore) -> None:
    """Count found steps, false alerts and their delays in one series."""
    alarm_indices: list[int] = []
    is_found = False
    every_value = range(1, len(planted.values) + 1)
    for seen, step in alerting_steps(planted.values, every_value):
        delay = _delay(planted, step, seen)
        # a step is found once; a second alert about it is a false one
        if delay is not None and not is_found:
            is_found = True
            total.delays.append(delay)
            total.are_real.append(True)
        elif _is_repeated(step, alarm_indices):
            continue
        else:
            total.false_at.append(seen)
            total.are_real.append(False)
        alarm_indices.append(step.index)


def _is_repeated(step: Step, alarm_indices: Sequence[int]) -> bool:
    """Whether a step is one that has raised an alarm, seen again with more values."""
    distances = (abs(step.index - alarm_index) for alarm_index in alarm_indices)
    return any(distance <= _MARGIN for distance in distances)


def _delay(planted: PlantedSeries, step: Step, seen: int) -> int | None:
    """Values between the planted step and the alarm; None if the alarm means something else."""
    if planted.step_at is None or seen <= planted.step_at:
        return None
    if abs(step.index - planted.step_at) > _MARGIN:
        return None
    return seen - planted.step_at


# --- series


def _draw_log_step(width: float, rng: np.random.Generator) -> float:
    """A visible change of the log level."""
    steps: list[float] = []
    shares: list[float] = []
    for step, share in zip(_STEPS, _SHARES, strict=True):
        # A step within the noise is found by nobody, and says nothing about a rule.
        if step >= _MIN_WIDTHS * width:
            steps.append(step)
            shares.append(share)
    if not steps:
        steps.append(_LARGE_STEP)
        shares.append(1.0)
    # the shares of the steps that are left add up to one again
    weights = np.array(shares) / sum(shares)
    relative_step = rng.choice(steps, p=weights)
    sign = float(rng.choice([-1, 1]))
    return sign * math.log1p(relative_step)


def _series(
    histories: Sequence[Values],
    synth: ModuleType,
    count: int,
    rng: np.random.Generator,
) -> Iterator[PlantedSeries]:
    """Make series in noise of a source; half of them with a step."""
    for noise in draw_series(
        histories=histories,
        synth=synth,
        count=count,
        places=_PLACES,
        rng=rng,
    ):
        logs = noise.logs
        if noise.step_at is not None:
            logs[noise.step_at :] += _draw_log_step(noise.width, rng)
        yield PlantedSeries(1_000 * np.exp(logs), noise.step_at)


def _print_reliability(scores: Mapping[str, AlertScore]) -> None:
    """How many alarms are real, by the probability stated before each."""
    print("\nReal alarms by their stated probability\n")
    columns = [f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BINS)]
    print(f"| source | {' | '.join(columns)} |")
    # and one for the source
    print(f"|{'---|' * (len(columns) + 1)}")
    all_real_count = 0
    alarm_count = 0
    for score_of_source in scores.values():
        all_real_count += sum(score_of_source.are_real)
        alarm_count += len(score_of_source.are_real)
    for name, score_of_source in scores.items():
        are_real = score_of_source.are_real
        # The prior is the share of the other sources: a project begins without alarms of its own.
        other_real_count = all_real_count - sum(are_real)
        other_alarm_count = alarm_count - len(are_real)
        prior = other_real_count / other_alarm_count
        chances: list[float] = []
        # each alarm has the probability that the alarms before it gave
        for count in range(len(are_real)):
            earlier_real_count = sum(are_real[:count])
            chances.append(share_real(earlier_real_count, count, prior=prior))
        cells: list[str] = []
        for low, high in pairwise(_BINS):
            cell = _real_in_bin(
                chances=chances,
                are_real=are_real,
                low=low,
                high=high,
            )
            cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nReal alarms of all sources: {all_real_count} of {alarm_count}")


def _real_in_bin(
    chances: Sequence[float],
    are_real: Sequence[bool],
    low: float,
    high: float,
) -> str:
    """How many alarms of a stated probability were real."""
    in_bin: list[bool] = []
    for chance, is_real in zip(chances, are_real, strict=True):
        if low < chance <= high:
            in_bin.append(is_real)
    if not in_bin:
        return ""
    return f"{sum(in_bin)} of {len(in_bin)}"


def main() -> None:
    """Print the rates of each source, and the reliability of stated probabilities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--series",
        type=int,
        default=160,
        help="series of each source, half of them with a step",
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    synth = import_synth(arguments.folder)
    rng = np.random.default_rng(arguments.seed)
    histories = {**read_histories(arguments.folder), "synthetic": []}
    sources: dict[str, list[PlantedSeries]] = {}
    for name, source_histories in histories.items():
        series = _series(
            histories=source_histories,
            synth=synth,
            count=arguments.series,
            rng=rng,
        )
        sources[name] = list(series)
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
