"""Noise of real benchmark histories, for the published figures of detectors."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION

Values = NDArray[np.float64]

_MEDIAN, _BLOCK = 31, 6
_MIN_HISTORY = 50
_MIN_NOISE = 5e-4
"""Quieter histories are those of counters, not times."""


@dataclass(frozen=True)
class Planted:
    """A series with at most one step."""

    values: Values
    step_at: int | None
    log_step: float = 0.0
    width: float = 0.0
    """Noise of one value."""


def residuals_of(values: Values) -> Values:
    """Distances of the logs from a running median of 31 values."""
    logs, half = np.log(values), _MEDIAN // 2
    medians = np.array(
        [np.median(logs[max(0, index - half) : index + half + 1]) for index in range(len(logs))]
    )
    residuals: Values = logs - medians
    return residuals


def read_histories(folder: Path) -> dict[str, list[Values]]:
    """Residuals of the histories of each project."""
    histories: dict[str, list[Values]] = {}
    for line in (folder / "data" / "real" / "gpu_raw.jsonl").read_text().splitlines():
        row = json.loads(line)
        values = np.array(row["values"], dtype=np.float64)
        if len(values) >= _MIN_HISTORY and values.min() > 0:
            residuals = residuals_of(values)
            if width_of(residuals) >= _MIN_NOISE:
                source = row["tags"]["source"].split("/")[-1]
                histories.setdefault(source, []).append(residuals)
    return histories


def width_of(residuals: Values) -> float:
    """Robust standard deviation."""
    return MAD_TO_DEVIATION * float(np.median(np.abs(residuals - np.median(residuals))))


def drawn(history: Values, count: int, rng: np.random.Generator) -> Values:
    """Noise of a history, six neighbouring residuals at a time."""
    begins = rng.integers(0, len(history) - _BLOCK + 1, count // _BLOCK + 1)
    return np.concatenate([history[begin : begin + _BLOCK] for begin in begins])[:count]
