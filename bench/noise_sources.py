"""Noise of real benchmark histories, for the published figures of detectors."""

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION

Values = NDArray[np.float64]

_MEDIAN = 31
"""Values of the running median that stands for the level: longer than a disturbance."""
_BLOCK = 6
"""Neighbours that are drawn together, as noise of neighbours is correlated."""
_MIN_HISTORY = 50
_MIN_NOISE = 5e-4
"""Quieter histories are those of counters, not times."""
_SYNTHETIC_WIDTHS = (0.005, 0.01, 0.02)
_LOWEST_RELATIVE = -0.6
"""No launch is faster than 40 % of its usual time; the logarithm needs a value above -1."""


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
    logs = np.log(values)
    half = _MEDIAN // 2
    medians: list[float] = []
    for index in range(len(logs)):
        begin = max(0, index - half)
        around = logs[begin : index + half + 1]
        medians.append(float(np.median(around)))
    residuals: Values = logs - np.array(medians)
    return residuals


def read_histories(folder: Path) -> dict[str, list[Values]]:
    """Residuals of the histories of each project."""
    histories: dict[str, list[Values]] = {}
    text = (folder / "data" / "real" / "gpu_raw.jsonl").read_text()
    for line in text.splitlines():
        row = json.loads(line)
        values = np.array(row["values"], dtype=np.float64)
        # The logarithm needs times; a history with zeros has none.
        if len(values) < _MIN_HISTORY or values.min() <= 0:
            continue
        residuals = residuals_of(values)
        if width_of(residuals) >= _MIN_NOISE:
            source = row["tags"]["source"].split("/")[-1]
            histories.setdefault(source, []).append(residuals)
    return histories


def width_of(residuals: Values) -> float:
    """Robust standard deviation."""
    distances = np.abs(residuals - np.median(residuals))
    return MAD_TO_DEVIATION * float(np.median(distances))


def drawn(history: Values, count: int, rng: np.random.Generator) -> Values:
    """Noise of a history, six neighbouring residuals at a time."""
    block_count = count // _BLOCK + 1
    begins = rng.integers(0, len(history) - _BLOCK + 1, block_count)
    blocks = [history[begin : begin + _BLOCK] for begin in begins]
    return np.concatenate(blocks)[:count]


def import_synth(folder: Path) -> ModuleType:
    """Import `synth.py`, which makes noise of the kinds that the literature names."""
    if not (folder / "synth.py").is_file():
        raise SystemExit(
            f"{folder}: no synth.py; give a folder with synth.py and data/real/gpu_raw.jsonl"
        )
    sys.path.insert(0, str(folder))
    return importlib.import_module("synth")


def draw_noise(
    histories: Sequence[Values],
    synth: ModuleType,
    number: int,
    length: int,
    rng: np.random.Generator,
) -> tuple[Values, float]:
    """Draw the noise of the log values of a series, from histories or synthetic if there are none.

    Returns:
        The noise, and the width of it: the standard deviation of one value.
    """
    # Every second series has a step: neighbours share their source.
    source_number = number // 2
    if histories:
        history = histories[source_number % len(histories)]
        return drawn(history, length, rng), width_of(history)
    width = float(rng.choice(_SYNTHETIC_WIDTHS))
    kind = synth.KINDS[source_number % len(synth.KINDS)]
    relative = synth.noise(kind, length, width, rng)
    return np.log1p(np.maximum(relative, _LOWEST_RELATIVE)), width
