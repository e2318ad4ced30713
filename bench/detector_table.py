"""Compare change-point detectors on the same series; called by `make bench-detection`.

    python bench/detector_table.py FOLDER

FOLDER contains evaluation data and its harness: `evaluate.py`, with `load` and `offline`, and `data/`. Requires
`bench/peers.txt`.
"""

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detection import detect_offline

Values = NDArray[np.float64]
Detector = Callable[[Values], Sequence[Any]]

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


def main() -> None:
    """Print one table per data set of the folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else Path()
    spec = importlib.util.spec_from_file_location("evaluate", folder / "evaluate.py")
    if spec is None or spec.loader is None or not folder.joinpath("evaluate.py").is_file():
        raise SystemExit(f"{folder}: no evaluate.py; give a folder with evaluate.py and data/")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    for suite in ("gpu_injected", "synthetic"):
        rows = harness.load(str(folder / "data"), [suite])
        print(f"\n{suite}: {len(rows)} series\n")
        print("| detector | F1 (P / R) | false alarms per 1000 stable points |")
        print("|---|---|---|")
        for name, detector in DETECTORS.items():
            (found,) = harness.offline(lambda values, _=None, detect=detector: detect(values.copy()), rows).values()
            quality = f"{found['f1']:.2f} ({found['precision']:.2f} / {found['recall']:.2f})"
            print(f"| {name} | {quality} | {found['fa_per_1000']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
