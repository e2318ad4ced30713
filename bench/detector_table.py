"""Compare change-point detectors on the same series; called by `make bench-detection`.

    python bench/detector_table.py [FOLDER]

FOLDER contains evaluation data and its harness: `evaluate.py`, with `load` and `offline`, and `data/`. Without it, the
series come from `bench.detector_series`, with a seed that was not used for tuning. Requires `bench/peers.txt`.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detection import detect_offline
from bench.detector_series import PlantedSeries, planted_series

Values = NDArray[np.float64]
Detector = Callable[[Values], Sequence[Any]]

_SEED = 20_261_121
_MARGIN = 5
"""Distance in values at which a step counts as found."""
_MIN_BEFORE, _BEFORE, _AFTER = 12, 24, 12
"""Perfherder's default windows, in values."""
_MIN_T = 7.0
_NEWEST = 10
_MIN_CHANGE = 0.05


def _ruptures(values: Values) -> list[int]:
    import ruptures

    return ruptures.KernelCPD(kernel="rbf", min_size=3).fit(values).predict(pen=2 * math.log(len(values)))[:-1]


def _otava(values: Values) -> list[int]:
    from otava.analysis import compute_change_points

    return [change.index for change in compute_change_points(values.tolist(), window_len=50, max_pvalue=1e-5)[0]]


def _e_divisive(values: Values) -> list[int]:
    from signal_processing_algorithms.energy_statistics import energy_statistics

    np.random.seed(0)  # it uses the global generator
    return energy_statistics.e_divisive(values, pvalue=0.01, permutations=100)


def _asv(values: Values) -> list[int]:
    from asv.step_detect import detect_steps

    return [step[0] for step in detect_steps(values.tolist())[1:]]


def _perfherder(values: Values) -> list[int]:
    """Local maxima of the weighted t statistic.

    Source: mozilla/treeherder, treeherder/perfalert/perfalert/__init__.py.
    """
    count = len(values)
    sizes = np.zeros(count + 1)
    for place in range(_MIN_BEFORE, count - _AFTER + 1):
        sizes[place] = abs(_t(values[max(0, place - _BEFORE) : place][::-1], values[place : place + _AFTER]))
    return [
        place
        for place in range(1, count)
        if sizes[place] >= _MIN_T and sizes[place] >= max(sizes[place - 1], sizes[place + 1])
    ]


def _t(before: Values, after: Values) -> float:
    """Student's t, with weights by proximity; the nearest values come first."""

    def mean(values: Values) -> float:
        return float(np.average(values, weights=np.arange(len(values), 0, -1)))

    distance = mean(after) - mean(before)
    squared_error = sum(
        float(((side - mean(side)) ** 2).sum()) / (len(side) - 1) / len(side) for side in (before, after)
    )
    if distance == 0.0:
        return 0.0
    return float(distance / np.sqrt(squared_error)) if squared_error else float("inf")


def _fixed_change(values: Values) -> list[int]:
    """Starts of stretches that are at least 5 % away from the mean of the ten values before."""
    is_away = [False] * _NEWEST + [
        abs(values[place] / values[place - _NEWEST : place].mean() - 1) >= _MIN_CHANGE
        for place in range(_NEWEST, len(values))
    ]
    return [place for place in range(1, len(values)) if is_away[place] and not is_away[place - 1]]


DETECTORS: dict[str, Detector] = {
    "roofwatch": detect_offline,
    "ruptures KernelCPD rbf, 2 log n": _ruptures,
    "MongoDB E-Divisive": _e_divisive,
    "asv step_detect": _asv,
    "Apache Otava, p = 1e-5": _otava,
    "Perfherder's t-test": _perfherder,
    "fixed 5 % against the last 10": _fixed_change,
}


def judge_by_harness(folder: Path) -> None:
    """Print one table per data set of the folder."""
    spec = importlib.util.spec_from_file_location("evaluate", folder / "evaluate.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder}: no evaluate.py; give a folder with evaluate.py and data/, or none")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    for suite in ("gpu_injected", "synthetic"):
        rows = harness.load(str(folder / "data"), [suite])
        print(f"\n{suite}: {len(rows)} series\n")
        _print_header()
        for name, detector in DETECTORS.items():
            (found,) = harness.offline(lambda values, _=None, detect=detector: detect(values.copy()), rows).values()
            _print_score(name, found["precision"], found["recall"], found["fa_per_1000"])


def judge_on_planted_series() -> None:
    """Print all detectors on all series, then ours for each kind of noise."""
    series = list(planted_series(_SEED))
    _print_header()
    for name, detector in DETECTORS.items():
        _print_score(name, *_score(series, detector))
    for kind in dict.fromkeys(each.kind for each in series):
        same_kind = [each for each in series if each.kind == kind]
        _print_score(f"roofwatch, {kind}", *_score(same_kind, detect_offline))


def _score(series: Sequence[PlantedSeries], detector: Detector) -> tuple[float, float, float]:
    """Precision, recall, and false alarms per 1,000 values of series without a step."""
    hits = reported = planted = quiet_alarms = quiet_values = 0
    for each in series:
        found = {item[0] if isinstance(item, tuple) else int(item) for item in detector(each.values.copy())}
        hits += _matched(each.steps, found)
        reported += len(found)
        planted += len(each.steps)
        if not each.steps:
            quiet_alarms += len(found)
            quiet_values += len(each.values)
    return hits / reported if reported else 1.0, hits / planted, 1000 * quiet_alarms / quiet_values


def _matched(steps: Sequence[int], found: set[int]) -> int:
    left = set(found)
    for step in steps:
        near = [(abs(step - place), place) for place in left if abs(step - place) <= _MARGIN]
        if near:
            left.discard(min(near)[1])
    return len(found) - len(left)


def _print_header() -> None:
    print("| detector | F1 (P / R) | false alarms per 1000 stable points |")
    print("|---|---|---|")


def _print_score(name: str, precision: float, recall: float, alarms_per_1000: float) -> None:
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    print(f"| {name} | {f1:.2f} ({precision:.2f} / {recall:.2f}) | {alarms_per_1000:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        judge_by_harness(Path(sys.argv[1]))
    else:
        judge_on_planted_series()
