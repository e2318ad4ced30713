"""False alarms, delays and probabilities of the online detector on noise that it was not tuned on.

    PYTHONPATH=. python bench/online_rates.py FOLDER [--series N]

FOLDER contains `data/real/gpu_raw.jsonl`, histories of several projects, and `synth.py`, with `noise`. Steps are
planted in noise drawn from each project: six neighbouring residuals at a time, off a running median of 31 values. A
threshold is chosen on all sources but one and reported on that one, and so is the fit of probabilities.
"""

import argparse
import importlib.util
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.ci.changepoint.online import LEARNING, THRESHOLD, Alarm, OnlineDetector

Values = NDArray[np.float64]

_SEED = 20260101
_MEDIAN, _BLOCK = 31, 6
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
_THRESHOLDS = (14.0, 15.5, 17.0, 18.5)
_PROMISE = 1.5
"""False alarms per 1,000 values."""
_SPANS = ((LEARNING, 50), (50, 200), (200, 400))
_BINS = (0.0, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Planted:
    """A series with at most one step."""

    values: Values
    step_at: int | None


@dataclass
class Score:
    """Alarms of some series."""

    value_count: int = 0
    step_count: int = 0
    delays: list[int] = field(default_factory=list)
    false_at: list[int] = field(default_factory=list)
    """Values seen at each false alarm."""
    judged: list[tuple[Alarm, bool]] = field(default_factory=list)
    """Alarms, and whether each is real."""

    @property
    def rate(self) -> float:
        """False alarms per 1,000 values."""
        return 1_000 * len(self.false_at) / self.value_count

    def row(self) -> str:
        """Rate, and share of steps found within 5 and 10 values."""
        early = [sum(delay <= most for delay in self.delays) / self.step_count for most in (5, 10)]
        return f"{self.rate:.2f} | {early[0]:.0%} | {early[1]:.0%}"


def score(series: Sequence[Planted], threshold: float) -> Score:
    """Feed each series value by value. An alarm that repeats an earlier one does not count."""
    total = Score()
    for one in series:
        detector = OnlineDetector(min_relative_change=0.005, threshold=threshold)
        places: list[int] = []
        is_found = False
        total.value_count += len(one.values) - LEARNING
        total.step_count += one.step_at is not None
        for seen, value in enumerate(one.values, start=1):
            alarm = detector.update(float(value))
            if alarm is None or alarm.is_return:
                continue
            is_near = one.step_at is not None and seen > one.step_at and abs(alarm.index - one.step_at) <= _MARGIN
            if is_near and not is_found and one.step_at is not None:
                is_found = True
                total.delays.append(seen - one.step_at)
            elif any(abs(alarm.index - place) <= _MARGIN for place in places):
                continue
            else:
                is_near = False
                total.false_at.append(seen)
            places.append(alarm.index)
            total.judged.append((alarm, is_near))
    return total


# --- series


def _residuals(values: Values) -> Values:
    logs, half = np.log(values), _MEDIAN // 2
    medians = np.array([np.median(logs[max(0, at - half) : at + half + 1]) for at in range(len(logs))])
    residuals: Values = logs - medians
    return residuals


def _histories(folder: Path) -> dict[str, list[Values]]:
    """Residuals of the histories of each project."""
    found: dict[str, list[Values]] = {}
    for line in (folder / "data" / "real" / "gpu_raw.jsonl").read_text().splitlines():
        row = json.loads(line)
        values = np.array(row["values"], dtype=np.float64)
        if len(values) >= _MIN_HISTORY and values.min() > 0:
            residuals = _residuals(values)
            if _width(residuals) >= _MIN_NOISE:
                found.setdefault(row["tags"]["source"].split("/")[-1], []).append(residuals)
    return found


def _width(residuals: Values) -> float:
    return MAD_TO_DEVIATION * float(np.median(np.abs(residuals - np.median(residuals))))


def _drawn(history: Values, count: int, rng: np.random.Generator) -> Values:
    begins = rng.integers(0, len(history) - _BLOCK + 1, count // _BLOCK + 1)
    return np.concatenate([history[begin : begin + _BLOCK] for begin in begins])[:count]


def _planted(noise: Values, width: float, at: int | None, rng: np.random.Generator) -> Planted:
    logs = noise.copy()
    if at is not None:
        visible = [(step, share) for step, share in zip(_STEPS, _SHARES, strict=True) if step >= _MIN_WIDTHS * width]
        steps, shares = zip(*visible or [(0.2, 1.0)], strict=True)
        logs[at:] += math.log1p(rng.choice(steps, p=np.array(shares) / sum(shares))) * rng.choice([-1, 1])
    return Planted(1_000 * np.exp(logs), at)


def _series_of(histories: Sequence[Values], count: int, rng: np.random.Generator) -> Iterator[Planted]:
    """Half of them with a step."""
    for number in range(count):
        history = histories[number // 2 % len(histories)]
        at = int(rng.integers(_FIRST, _LAST))
        yield _planted(_drawn(history, at + _AFTER, rng), _width(history), at if number % 2 else None, rng)


def _synthetic(synth: ModuleType, count: int, rng: np.random.Generator) -> Iterator[Planted]:
    for number in range(count):
        width, at = float(rng.choice([0.005, 0.01, 0.02])), int(rng.integers(_FIRST, _LAST))
        noise = np.maximum(synth.noise(synth.KINDS[number // 2 % len(synth.KINDS)], at + _AFTER, width, rng), -0.6)
        yield _planted(np.log1p(noise), width, at if number % 2 else None, rng)


# --- probabilities


def _features(judged: Sequence[tuple[Alarm, bool]]) -> tuple[Values, Values]:
    rows = [[1.0, math.log(alarm.count_after)] for alarm, _ in judged]
    return np.array(rows), np.array([float(is_real) for _, is_real in judged])


def _fit(judged: Sequence[tuple[Alarm, bool]]) -> Values:
    """Logistic regression by Newton's method."""
    rows, is_real = _features(judged)
    odds = np.zeros(rows.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-rows @ odds))
        curvature = (rows.T * (chances * (1 - chances))) @ rows + 0.01 * np.eye(len(odds))
        odds += np.linalg.solve(curvature, rows.T @ (is_real - chances) - 0.01 * odds)
    return odds


def main() -> None:
    """Print four tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--series", type=int, default=400, help="series of each source, half of them with a step")
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("synth", arguments.folder / "synth.py")
    if spec is None or spec.loader is None or not (arguments.folder / "synth.py").is_file():
        raise SystemExit(f"{arguments.folder}: no synth.py; give a folder with synth.py and data/real/gpu_raw.jsonl")
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    rng = np.random.default_rng(_SEED)
    histories = _histories(arguments.folder)
    sources = {name: list(_series_of(own, arguments.series, rng)) for name, own in histories.items()}
    sources["synthetic"] = list(_synthetic(synth, arguments.series, rng))
    scores = {name: {limit: score(own, limit) for limit in _THRESHOLDS} for name, own in sources.items()}

    print("| source | threshold | false alarms per 1,000 | within 5 | within 10 |\n|---|---|---|---|---|")
    for name, own in scores.items():
        for limit in _THRESHOLDS:
            print(f"| {name} | {limit:g} | {own[limit].row()} |")
    print("\n| left out | threshold of the others | false alarms | within 5 | within 10 |\n|---|---|---|---|---|")
    for name, own in scores.items():
        rates = {limit: max(other[limit].rate for key, other in scores.items() if key != name) for limit in _THRESHOLDS}
        limit = min((limit for limit in _THRESHOLDS if rates[limit] <= _PROMISE), default=_THRESHOLDS[-1])
        print(f"| {name} | {limit:g} | {own[limit].row()} |")

    print(f"\nAt {THRESHOLD:g}, false alarms per 1,000 values by the values seen:\n")
    print(f"| source | {' | '.join(f'{low} to {high}' for low, high in _SPANS)} |\n|---|---|---|---|")
    for name, known in histories.items():
        count = arguments.series // 4
        drawn = [_drawn(known[number % len(known)], _SPANS[-1][1], rng) for number in range(count)]
        alarms = score([Planted(1_000 * np.exp(noise), None) for noise in drawn], THRESHOLD).false_at
        by_span = [sum(low < at <= high for at in alarms) / (count * (high - low)) for low, high in _SPANS]
        print(f"| {name} | {' | '.join(f'{1_000 * rate:.2f}' for rate in by_span)} |")

    judged = {name: own[THRESHOLD].judged for name, own in scores.items()}
    print("\nShare of real alarms (number of alarms) by stated probability, fitted without the source\n")
    print(f"| source | {' | '.join(f'{low:g} to {high:g}' for low, high in pairwise(_BINS))} |")
    print("|---|---|---|---|---|")
    for name, own_alarms in judged.items():
        odds = _fit([alarm for key, others in judged.items() if key != name for alarm in others])
        rows, is_real = _features(own_alarms)
        chances = 1 / (1 + np.exp(-rows @ odds))
        within = [is_real[(chances > low) & (chances <= high)] for low, high in pairwise(_BINS)]
        print(f"| {name} | {' | '.join(f'{one.mean():.2f} ({len(one)})' if len(one) else '' for one in within)} |")
    everything = [alarm for own_alarms in judged.values() for alarm in own_alarms]
    print("\nLog odds fitted to all sources:", _fit(everything).round(2).tolist())


if __name__ == "__main__":
    main()
