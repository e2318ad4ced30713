"""False alarms, delays and probabilities of the online detector on noise that it was not tuned on.

    PYTHONPATH=. python bench/online_rates.py FOLDER [--series N] [--seed N] [--service]

FOLDER contains `data/real/gpu_raw.jsonl`, histories of several projects, and `synth.py`, with
`noise`. Steps are planted in noise drawn from each project: six neighbouring residuals at a time,
off a running median of 31 values.

The threshold is the lowest at which no source has more than 1.2 false alarms per 1,000 values. The
rates of a source are those at the threshold of the other sources. `--service` measures what the
service does instead: it analyses all values offline whenever one is new.

The probability that an alarm is real begins at the share of real alarms of the other sources.
"""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.ci.changepoint.online import LEARNING, Alarm, OnlineDetector, is_seen_online
from roofwatch.ci.history.steps import find_time_steps
from roofwatch.ci.history.summary import share_real
from roofwatch.model.verdict import THRESHOLDS

Values = NDArray[np.float64]

_MEDIAN, _BLOCK = 31, 6
"""Neighbouring residuals are drawn together, as noise is correlated over a few values."""
_MIN_HISTORY = 50
_MIN_NOISE = 5e-4
"""Quieter histories are those of counters, not times."""
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
_THRESHOLDS = (22.0, 24.0, 26.0)
_MOST = 1.2
"""False alarms per 1,000 values of the worst source, at the threshold chosen."""
_SPANS = (
    (LEARNING, _LONG),
    (LEARNING, 50),
    (50, 200),
    (200, _LONG),
)
_BINS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass(frozen=True)
class PlantedSeries:
    """A series with at most one step."""

    values: Values
    step_at: int | None


@dataclass
class Score:
    """Alarms of some series."""

    value_counts: list[int] = field(default_factory=list)
    """Of each series."""
    step_count: int = 0
    delays: list[int] = field(default_factory=list)
    false_at: list[int] = field(default_factory=list)
    """Values seen at each false alarm."""
    are_real: list[bool] = field(default_factory=list)
    """Of the alarms, in their order."""

    def rate(self, low: int = LEARNING, high: int = _LONG) -> float:
        """False alarms per 1,000 values, after so many values."""
        value_count = sum(max(min(count, high) - low, 0) for count in self.value_counts)
        false_count = sum(low < seen <= high for seen in self.false_at)
        return 1_000 * false_count / value_count

    def share_within(self, value_count: int) -> float:
        """Share of the steps that are found within so many values."""
        return sum(delay <= value_count for delay in self.delays) / self.step_count

    def row(self, spans: Sequence[tuple[int, int]] = _SPANS) -> str:
        """Rates by the values seen, and share of steps found within 5 and 10 values."""
        cells = [f"{self.rate(*span):.2f}" for span in spans]
        cells += [f"{self.share_within(5):.0%}", f"{self.share_within(10):.0%}"]
        return " | ".join(cells)


Found = Iterator[tuple[int, Alarm | Step]]
"""Values seen, and what they show."""


def online(values: Values, threshold: float) -> Found:
    """Feed the detector value by value."""
    detector = OnlineDetector(min_relative_change=0.005, threshold=threshold)
    for seen, value in enumerate(values, start=1):
        alarm = detector.update(float(value))
        if alarm is not None and not alarm.is_return:
            yield seen, alarm


def service(values: Values) -> Found:
    """Analyse all values again after each, as the service does, for steps of a time that may raise
    an alert.
    """
    for seen in range(1, len(values) + 1):
        newest = values[:seen]
        steps = find_time_steps(newest, np.full(seen, math.nan))
        for step, chance in zip(steps, chances_of_steps(newest, steps), strict=True):
            if chance > THRESHOLDS.false_discovery_rate:
                continue
            if is_seen_online(newest.tolist(), step, THRESHOLDS.trend_relative_change):
                yield seen, step


def score(series: Sequence[PlantedSeries], detect: Callable[[Values], Found]) -> Score:
    """Feed each series value by value. An alarm that repeats an earlier one does not count."""
    total = Score()
    for planted in series:
        alarm_indices: list[int] = []
        is_detected = False
        step_at = planted.step_at
        total.value_counts.append(len(planted.values))
        total.step_count += step_at is not None
        for seen, alarm in detect(planted.values):
            is_real = False
            # no alarm is real before the step, and none after the first that found it
            if step_at is not None and seen > step_at and not is_detected:
                is_real = abs(alarm.index - step_at) <= _MARGIN
            is_repeated = any(abs(alarm.index - index) <= _MARGIN for index in alarm_indices)
            if is_real and step_at is not None:
                is_detected = True
                total.delays.append(seen - step_at)
            elif is_repeated:
                continue
            else:
                total.false_at.append(seen)
            alarm_indices.append(alarm.index)
            total.are_real.append(is_real)
    return total


# --- series


def _residuals(values: Values) -> Values:
    logs = np.log(values)
    half = _MEDIAN // 2
    windows = [logs[max(0, index - half) : index + half + 1] for index in range(len(logs))]
    residuals: Values = logs - np.array([np.median(window) for window in windows])
    return residuals


def _histories(folder: Path) -> dict[str, list[Values]]:
    """Residuals of the histories of each project."""
    histories: dict[str, list[Values]] = {}
    for line in (folder / "data" / "real" / "gpu_raw.jsonl").read_text().splitlines():
        row = json.loads(line)
        values = np.array(row["values"], dtype=np.float64)
        if len(values) >= _MIN_HISTORY and values.min() > 0:
            residuals = _residuals(values)
            if _width(residuals) >= _MIN_NOISE:
                project = row["tags"]["source"].split("/")[-1]
                histories.setdefault(project, []).append(residuals)
    return histories


def _width(residuals: Values) -> float:
    return MAD_TO_DEVIATION * float(np.median(np.abs(residuals - np.median(residuals))))


def _drawn(history: Values, count: int, rng: np.random.Generator) -> Values:
    begins = rng.integers(
        0,
        len(history) - _BLOCK + 1,
        count // _BLOCK + 1,
    )
    return np.concatenate([history[begin : begin + _BLOCK] for begin in begins])[:count]


def _step(width: float, rng: np.random.Generator) -> float:
    """A visible change of the log level."""
    visible = [
        (step, share)
        for step, share in zip(_STEPS, _SHARES, strict=True)
        if step >= _MIN_WIDTHS * width
    ]
    steps, shares = zip(*visible or [(0.2, 1.0)], strict=True)
    size = rng.choice(steps, p=np.array(shares) / sum(shares))
    sign = float(rng.choice([-1, 1]))
    return math.log1p(size) * sign


def _series(
    histories: Sequence[Values],
    synth: ModuleType,
    count: int,
    rng: np.random.Generator,
) -> Iterator[PlantedSeries]:
    """Series in noise drawn from histories, or synthetic if there are none; half of them with a
    step.
    """
    for number in range(count):
        step_at = None
        length = _LONG
        if number % 2:
            step_at = int(rng.integers(_FIRST, _LAST))
            length = step_at + _AFTER
        if histories:
            history = histories[number // 2 % len(histories)]
            width = _width(history)
            noise = _drawn(history, length, rng)
        else:
            width = float(rng.choice([0.005, 0.01, 0.02]))
            relative = synth.noise(
                synth.KINDS[number // 2 % len(synth.KINDS)],
                length,
                width,
                rng,
            )
            noise = np.log1p(np.maximum(relative, -0.6))
        if step_at is not None:
            noise[step_at:] += _step(width, rng)
        yield PlantedSeries(1_000 * np.exp(noise), step_at)


def _print_reliability(scores: Mapping[str, Score]) -> None:
    """How many alarms are real, by the probability stated before each."""
    print("\nReal alarms by their stated probability\n")
    bins = " | ".join(f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BINS))
    print(f"| source | {bins} |\n|{'---|' * len(_BINS)}")
    for name, source in scores.items():
        of_others = [other.are_real for key, other in scores.items() if key != name]
        others_are_real = [is_real for are_real in of_others for is_real in are_real]
        prior = sum(others_are_real) / len(others_are_real)
        chances: list[float] = []
        for count in range(len(source.are_real)):
            real_so_far = sum(source.are_real[:count])
            chances.append(share_real(real_so_far, count, prior=prior))
        cells = [_bin_text(chances, source.are_real, low, high) for low, high in pairwise(_BINS)]
        print(f"| {name} | {' | '.join(cells)} |")
    all_are_real = [is_real for source in scores.values() for is_real in source.are_real]
    print(f"\nReal alarms of all sources: {sum(all_are_real)} of {len(all_are_real)}")


def _bin_text(
    chances: Sequence[float],
    are_real: Sequence[bool],
    low: float,
    high: float,
) -> str:
    """How many of the alarms with a stated probability in a range are real; empty without any."""
    in_bin = [
        is_real for chance, is_real in zip(chances, are_real, strict=True) if low < chance <= high
    ]
    if not in_bin:
        return ""
    return f"{sum(in_bin)} of {len(in_bin)}"


def main() -> None:
    """Print the rates by threshold, those at the threshold of the other sources, and the
    reliability.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--series",
        type=int,
        default=160,
        help="series of each source, half of them with a step",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--service", action="store_true", help="measure what the service alerts to")
    arguments = parser.parse_args()
    if not (arguments.folder / "synth.py").is_file():
        raise SystemExit(
            f"{arguments.folder}: no synth.py; give a folder with synth.py and "
            f"data/real/gpu_raw.jsonl"
        )
    sys.path.insert(0, str(arguments.folder))
    synth = importlib.import_module("synth")
    rng = np.random.default_rng(arguments.seed)
    histories = {**_histories(arguments.folder), "synthetic": []}
    sources: dict[str, list[PlantedSeries]] = {}
    for name, residuals in histories.items():
        sources[name] = list(_series(residuals, synth, arguments.series, rng))
    spans = _SPANS
    if arguments.service:  # it judges the first values too
        spans = ((0, LEARNING), *_SPANS)
    columns = " | ".join(
        f"false alarms per 1,000 after {low} to {high} values" for low, high in spans
    )
    if arguments.service:
        print(f"| source | {columns} | within 5 | within 10 |\n|{'---|' * 8}")
        served = {name: score(planted, service) for name, planted in sources.items()}
        for name, source in served.items():
            print(f"| {name} | {source.row(spans)} |")
        _print_reliability(served)
        return
    scores: dict[str, dict[float, Score]] = {name: {} for name in sources}
    for name, planted in sources.items():
        for limit in _THRESHOLDS:
            scores[name][limit] = score(planted, partial(online, threshold=limit))
    print(f"| source | threshold | {columns} | within 5 | within 10 |\n|{'---|' * 8}")
    for name, by_threshold in scores.items():
        for limit in _THRESHOLDS:
            print(f"| {name} | {limit:g} | {by_threshold[limit].row()} |")
    threshold = _chosen(scores.values())
    print(f"\nThreshold chosen on all: {threshold:g}. Chosen on the other sources:\n")
    for name, by_threshold in scores.items():
        limit = _chosen(other for key, other in scores.items() if key != name)
        print(f"| {name} | {limit:g} | {by_threshold[limit].row()} |")

    _print_reliability({name: by_threshold[threshold] for name, by_threshold in scores.items()})


def _chosen(scores: Iterable[Mapping[float, Score]]) -> float:
    """The lowest threshold at which no source has too many false alarms."""
    all_scores = list(scores)
    for threshold in _THRESHOLDS:
        highest_rate = max(by_threshold[threshold].rate() for by_threshold in all_scores)
        if highest_rate <= _MOST:
            return threshold
    return _THRESHOLDS[-1]


if __name__ == "__main__":
    main()
