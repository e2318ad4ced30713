"""Our detectors and our A/B rule as plain functions of numbers, for an evaluation harness.

    python bench/detection.py FOLDER

compares change-point detectors on the same series, for `make bench-detection`. FOLDER contains
evaluation data and its harness: `evaluate.py`, with `load` and `offline`, and `data/`. Requires
`bench/peers.txt`.
"""

import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.ci.changepoint.detector import Detector, Values, detect_offline

_THRESHOLD = 0.001
_ERROR_RATE = 0.02
"""Error rate of the paired rule without a threshold: one false alarm in a hundred in each
direction.
"""


detect = detect_offline
detect_online = Detector()


def decide(base: Values, head: Values, meta: Mapping[str, Any] | None = None) -> str:
    """Compare two samples of timings; larger is slower.

    Args:
        base: Timings in the order taken, shape [timings].
        head: Likewise.
        meta: `order` (`interleaved` or `blocked`); if processes were restarted, `base_launch` and
            `head_launch`, the process of each timing.

    Returns:
        `regressed`, `improved`, `unchanged` or `inconclusive`.
    """
    # here, as the detectors are also imported where only numpy is installed
    from roofwatch.ci.ab.compare import compare
    from tests.ci.ab.timings import Order, compare_timings

    meta = meta or {}
    if "base_launch" in meta and "head_launch" in meta:
        comparison = compare(
            _by_start(base, meta["base_launch"]),
            _by_start(head, meta["head_launch"]),
            threshold=_THRESHOLD,
            error_rate=_ERROR_RATE,
        )
    else:
        comparison = compare_timings(
            base,
            head,
            order=Order(meta.get("order", Order.INTERLEAVED)),
            threshold=_THRESHOLD,
            error_rate=_ERROR_RATE,
        )
    return comparison.verdict.value


def _by_start(timings: Values, starts: Sequence[int]) -> list[Values]:
    """Split timings by the process that took them: processes differ more than launches."""
    start_of = np.asarray(starts)
    return [timings[start_of == start] for start in dict.fromkeys(starts)]


_MIN_BEFORE = 12
_BEFORE = 24
_AFTER = 12
"""Perfherder's default windows, in values."""
_MIN_T = 7.0


def _ruptures(values: Values) -> list[int]:
    """Kernel change points of ruptures, with the penalty of the BIC."""
    import ruptures

    detector = ruptures.KernelCPD(kernel="rbf", min_size=3).fit(values)
    # The penalty of the Bayesian information criterion for a mean and a variance.
    penalty = 2 * math.log(len(values))
    ends: list[int] = detector.predict(pen=penalty)
    # the last one ends the series
    return ends[:-1]


def _otava(values: Values) -> list[int]:
    """Change points of Apache Otava."""
    from otava.analysis import compute_change_points

    # A window of 50 values is Otava's default.
    changes, _ = compute_change_points(values.tolist(), window_len=50, max_pvalue=1e-5)
    return [change.index for change in changes]


def _e_divisive(values: Values) -> list[int]:
    """Change points of MongoDB's E-Divisive means."""
    from signal_processing_algorithms.energy_statistics import energy_statistics

    np.random.seed(0)  # it uses the global generator
    # At 1 %, a hundred permutations are the fewest that can tell.
    changes: list[int] = energy_statistics.e_divisive(values, pvalue=0.01, permutations=100)
    return changes


def _asv(values: Values) -> list[int]:
    """Steps of airspeed velocity."""
    from asv.step_detect import detect_steps

    # Each step has its begin, end and level; the first begins the series.
    steps = detect_steps(values.tolist())
    return [step[0] for step in steps[1:]]


def _perfherder(values: Values) -> list[int]:
    """Local maxima of the weighted t statistic.

    Source: mozilla/treeherder, treeherder/perfalert/perfalert/__init__.py.
    """
    count = len(values)
    sizes = np.zeros(count + 1)
    for index in range(_MIN_BEFORE, count - _AFTER + 1):
        last_values = values[max(0, index - _BEFORE) : index]
        next_values = values[index : index + _AFTER]
        sizes[index] = abs(_t(last_values[::-1], next_values))
    change_points: list[int] = []
    for index in range(1, count):
        # neighbours of a step have large statistics too
        highest_neighbour = max(sizes[index - 1], sizes[index + 1])
        is_local_maximum = sizes[index] >= highest_neighbour
        if sizes[index] >= _MIN_T and is_local_maximum:
            change_points.append(index)
    return change_points


def _t(last_values: Values, next_values: Values) -> float:
    """Student's t, with weights by proximity; the nearest values come first."""

    def mean(values: Values) -> float:
        weights = np.arange(len(values), 0, -1)
        return float(np.average(values, weights=weights))

    def squared_error(values: Values) -> float:
        squares = float(((values - mean(values)) ** 2).sum())
        variance = squares / (len(values) - 1)
        return variance / len(values)

    distance = mean(next_values) - mean(last_values)
    # equal means need no variance
    if distance == 0.0:
        return 0.0
    variance = squared_error(last_values) + squared_error(next_values)
    if variance == 0.0:
        return math.inf
    return distance / math.sqrt(variance)


DETECTORS: dict[str, Callable[[Values], Sequence[Any]]] = {
    "roofwatch": detect_offline,
    "ruptures KernelCPD rbf, 2 log n": _ruptures,
    "MongoDB E-Divisive": _e_divisive,
    "asv step_detect": _asv,
    "Apache Otava, p = 1e-5": _otava,
    "Perfherder's t-test": _perfherder,
}


def main() -> None:
    """Print one table per data set of the folder."""
    folder = Path()
    if len(sys.argv) == 2:
        folder = Path(sys.argv[1])
    if not (folder / "evaluate.py").is_file():
        raise SystemExit(f"{folder}: no evaluate.py; give a folder with evaluate.py and data/")
    sys.path.insert(0, str(folder))
    harness = importlib.import_module("evaluate")
    for suite in ("gpu_injected", "synthetic"):
        rows = harness.load(str(folder / "data"), [suite])
        print(f"\n{suite}: {len(rows)} series\n")
        print("| detector | F1 (P / R) | false alarms per 1000 stable points |")
        print("|---|---|---|")
        for name, detector in DETECTORS.items():
            # The harness passes more than the values, and a detector must not change them.
            results = harness.offline(
                lambda values, _=None, detect=detector: detect(values.copy()), rows
            )
            (rates,) = results.values()
            precision = rates["precision"]
            recall = rates["recall"]
            quality = f"{rates['f1']:.2f} ({precision:.2f} / {recall:.2f})"
            false_alarms = f"{rates['fa_per_1000']:.2f}"
            print(f"| {name} | {quality} | {false_alarms} |", flush=True)


if __name__ == "__main__":
    main()
