"""Run every detector on the same series and print what each finds; called by `make bench-detection`.

    python bench/detector_table.py [FOLDER]

FOLDER has evaluation data and the harness that judges it: `evaluate.py`, with `load` and `offline`, and `data/`.
Without it the series are our own (`bench.detector_series`), with a seed that no constant was chosen by. Runs in an
environment of the peers (`bench/peers.txt`).
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detection import detect_offline as detect
from bench.detector_series import PlantedSeries, planted_series
from bench.plain_rules import fixed_change, t_test

Values = NDArray[np.float64]
Detector = Callable[[Values], Sequence[Any]]

_SEED = 20_261_121
_LENGTH, _COUNT, _STEPPED = 500, 50, 25
"""Of the series that throughput is compared on: as in `bench/judge_scale.py`, two of fifty with a step."""
_MARGIN = 5
"""Values by which a step may be misplaced and still counts as found."""


def _ruptures(values: Values) -> list[int]:
    import ruptures

    return ruptures.KernelCPD(kernel="rbf", min_size=3).fit(values).predict(pen=2 * math.log(len(values)))[:-1]


def _otava(values: Values) -> list[int]:
    from otava.analysis import compute_change_points

    # a list: an array has no truth value, which it asks for
    return [change.index for change in compute_change_points(values.tolist(), window_len=50, max_pvalue=1e-5)[0]]


def _e_divisive(values: Values) -> list[int]:
    from signal_processing_algorithms.energy_statistics import energy_statistics

    np.random.seed(0)  # it permutes with the global generator
    return energy_statistics.e_divisive(values, pvalue=0.01, permutations=100)


def _asv(values: Values) -> list[int]:
    from asv.step_detect import detect_steps

    return [step[0] for step in detect_steps(values.tolist())[1:]]


DETECTORS: dict[str, Detector] = {
    "roofwatch": detect,
    "ruptures KernelCPD rbf, 2 log n": _ruptures,
    "MongoDB E-Divisive": _e_divisive,
    "asv step_detect": _asv,
    "Apache Otava, p = 1e-5": _otava,
    "Perfherder's t-test": t_test,
    "fixed 5 % against the last 10": fixed_change,
}


class _Timed:
    """A detector, and the CPU time that it took for each series."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.times_s: list[float] = []
        detector(1_000.0 + np.sin(np.arange(100.0)))  # some import what they need at their first call

    def __call__(self, values: Values, _index: Any = None) -> Sequence[Any]:
        begin = time.process_time()
        found = self._detector(values.copy())
        self.times_s.append(time.process_time() - begin)
        return found


@dataclass(frozen=True)
class _Score:
    precision: float
    recall: float
    alarms_per_1000: float
    times_s: list[float]

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def judge_by_harness(folder: Path) -> None:
    """One table for each set of the folder, by its harness."""
    spec = importlib.util.spec_from_file_location("evaluate", folder / "evaluate.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder}: no evaluate.py; give a folder that has it and data/, or none")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    for suite in ("gpu_injected", "synthetic"):
        rows = harness.load(str(folder / "data"), [suite])
        print(f"\n{suite}: {len(rows)} series\n")
        _print_scores({name: partial(_by_harness, harness, rows, detector) for name, detector in DETECTORS.items()})


def _by_harness(harness: Any, rows: Sequence[Any], detector: Detector) -> _Score:
    timed = _Timed(detector)
    (found,) = harness.offline(timed, rows).values()
    return _Score(found["precision"], found["recall"], found["fa_per_1000"], timed.times_s)


def judge_on_our_series() -> None:
    """All detectors on our own series, then ours for each kind of noise."""
    series = list(planted_series(_SEED))
    _print_scores({name: partial(_on_our_series, series, detector) for name, detector in DETECTORS.items()})
    kinds = dict.fromkeys(one.kind for one in series)
    by_kind = {kind: [one for one in series if one.kind == kind] for kind in kinds}
    _print_scores({f"roofwatch, {kind}": partial(_on_our_series, own, detect) for kind, own in by_kind.items()})


def _on_our_series(series: Sequence[PlantedSeries], detector: Detector) -> _Score:
    timed = _Timed(detector)
    hits = told = planted = quiet_alarms = quiet_values = 0
    for one in series:
        found = {item[0] if isinstance(item, tuple) else int(item) for item in timed(one.values)}
        hits += _matched(one.steps, found)
        told += len(found)
        planted += len(one.steps)
        if not one.steps:
            quiet_alarms += len(found)
            quiet_values += len(one.values)
    return _Score(hits / told if told else 1.0, hits / planted, 1000 * quiet_alarms / quiet_values, timed.times_s)


def _print_scores(judges: Mapping[str, Callable[[], _Score]]) -> None:
    """A line for each; in the last column, how many times as many series a second of CPU time the first one judges."""
    print("| detector | F1 (P / R) | false alarms per 1000 stable points | CPU ms per series | the first over it |")
    print("|---|---|---|---|---|")
    first_s = 0.0
    for name, judge in judges.items():
        score = judge()
        first_s = first_s or sum(score.times_s)
        print(
            f"| {name} | {score.f1:.2f} ({score.precision:.2f} / {score.recall:.2f}) | {score.alarms_per_1000:.2f} "
            f"| {1e3 * float(np.median(score.times_s)):.1f} | {sum(score.times_s) / first_s:.2f} |",
            flush=True,
        )


def compare_throughput() -> None:
    """One line per detector: how many of the same series of 500 values it judges in a second, and ours beside that."""
    rng = np.random.default_rng(_SEED)
    series = [1_000.0 * np.exp(rng.normal(0, 0.02, _LENGTH)) for _ in range(_COUNT)]
    for one in series[::_STEPPED]:
        one[_LENGTH // 2 :] *= 1.2
    ours_s = 0.0
    print(f"\n| detector | series of {_LENGTH} values in a second of CPU time | ours over it |\n|---|---|---|")
    for name, detector in DETECTORS.items():
        timed = _Timed(detector)
        for one in series:
            timed(one)
        spent_s = sum(timed.times_s)
        ours_s = ours_s or spent_s
        print(f"| {name} | {len(series) / spent_s:.0f} | {spent_s / ours_s:.2f} |", flush=True)


def _matched(steps: Sequence[int], found: set[int]) -> int:
    left = set(found)
    for step in steps:
        near = [(abs(step - place), place) for place in left if abs(step - place) <= _MARGIN]
        if near:
            left.discard(min(near)[1])
    return len(found) - len(left)


def main() -> None:
    if len(sys.argv) > 1:
        judge_by_harness(Path(sys.argv[1]))
    else:
        judge_on_our_series()
    compare_throughput()


if __name__ == "__main__":
    main()
