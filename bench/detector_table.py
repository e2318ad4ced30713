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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detector_series import planted_series
from bench.detectors import detect

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
}


def judge_by_harness(folder: Path) -> None:
    """One line per set and detector, by the harness of the folder."""
    spec = importlib.util.spec_from_file_location("evaluate", folder / "evaluate.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder}: no evaluate.py; give a folder that has it and data/, or none")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    rows = harness.load(str(folder / "data"), ["gpu_injected", "synthetic"])
    for name, detector in DETECTORS.items():
        for suite, found in harness.offline(partial(_without_index, detector), rows).items():
            _print_line(
                f"{name} | {suite}",
                found["precision"],
                found["recall"],
                found["fa_per_1000"],
                found["runtime_ms_median"],
            )


def _without_index(detector: Detector, values: Values, _index: Any) -> Sequence[Any]:
    return detector(values)


def judge_on_our_series() -> None:
    """One line per detector on our own series, then ours per kind of noise."""
    series = list(planted_series(_SEED))
    for name, detector in DETECTORS.items():
        _judge(name, detector, series)
    for kind in dict.fromkeys(one.kind for one in series):
        _judge(f"roofwatch, {kind}", detect, [one for one in series if one.kind == kind])


def _judge(name: str, detector: Detector, series: Sequence[Any]) -> None:
    hits = told = planted = quiet_alarms = quiet_values = 0
    times_ms = []
    for one in series:
        begin = time.process_time()
        raw = detector(one.values.copy())
        times_ms.append(1e3 * (time.process_time() - begin))
        found = {item[0] if isinstance(item, tuple) else int(item) for item in raw}
        hits += _matched(one.steps, found)
        told += len(found)
        planted += len(one.steps)
        if not one.steps:
            quiet_alarms += len(found)
            quiet_values += len(one.values)
    _print_line(
        name,
        hits / told if told else 1.0,
        hits / planted,
        1000 * quiet_alarms / quiet_values,
        float(np.median(times_ms)),
    )


def compare_throughput() -> None:
    """One line per detector: how many of the same series of 500 values it judges in a second, and ours beside that."""
    rng = np.random.default_rng(_SEED)
    series = [1_000.0 * np.exp(rng.normal(0, 0.02, _LENGTH)) for _ in range(_COUNT)]
    for one in series[::_STEPPED]:
        one[_LENGTH // 2 :] *= 1.2
    ours_per_s = 0.0
    print(f"\n| detector | series of {_LENGTH} values a second | ours over it |\n|---|---|---|")
    for name, detector in DETECTORS.items():
        begin = time.perf_counter()
        for one in series:
            detector(one.copy())
        per_s = len(series) / (time.perf_counter() - begin)
        ours_per_s = ours_per_s or per_s
        print(f"| {name} | {per_s:.0f} | {ours_per_s / per_s:.2f} |", flush=True)


def _matched(steps: Sequence[int], found: set[int]) -> int:
    left = set(found)
    for step in steps:
        near = [(abs(step - place), place) for place in left if abs(step - place) <= _MARGIN]
        if near:
            left.discard(min(near)[1])
    return len(found) - len(left)


def _print_line(name: str, precision: float, recall: float, alarms: float, time_ms: float) -> None:
    total = precision + recall
    score = 2 * precision * recall / total if total else 0.0
    print(f"| {name} | {score:.2f} ({precision:.2f} / {recall:.2f}) | {alarms:.2f} | {time_ms:.1f} |", flush=True)


def main() -> None:
    clock = "ms" if len(sys.argv) > 1 else "CPU ms"  # a harness has its own
    print(f"| detector | F1 (P / R) | false alarms per 1000 stable points | {clock} per series |\n|---|---|---|---|")
    if len(sys.argv) > 1:
        judge_by_harness(Path(sys.argv[1]))
    else:
        judge_on_our_series()
    compare_throughput()


if __name__ == "__main__":
    main()
