"""Noise of real benchmark histories, for the published figures of detectors."""

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
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
class PlantedSeries:
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


@dataclass(frozen=True)
class DrawnNoise:
    """The noise of a series before a step is planted in it."""

    logs: Values
    """Noise of the log values, shape [values]."""
    width: float
    """Standard deviation of one value."""
    step_at: int | None
    """Where a step belongs; None in every second series, which shows false alarms only."""


@dataclass(frozen=True)
class StepPlaces:
    """Where steps are planted, in values."""

    first: int
    last: int
    """The first position that is too late."""
    values_after: int
    values_without_step: int
    """Length of a series without a step."""


def draw_series(
    histories: Sequence[Values],
    synth: ModuleType,
    count: int,
    places: StepPlaces,
    rng: np.random.Generator,
) -> Iterator[DrawnNoise]:
    """Draw series of a source, half of them with a place for a step.

    Args:
        histories: Residuals of the source; none for synthetic noise.
        synth: Makes synthetic noise.
        count: Series to draw.
        places: Of the steps.
        rng: The next series draws from it after the caller planted its step: the published figures
            depend on the order of the draws.
    """
    for number in range(count):
        step_at = None
        length = places.values_without_step
        if number % 2:
            step_at = int(rng.integers(places.first, places.last))
            length = step_at + places.values_after
        logs, width = _draw_noise(
            histories=histories,
            synth=synth,
            number=number,
            length=length,
            rng=rng,
        )
        yield DrawnNoise(logs=logs, width=width, step_at=step_at)


def _draw_noise(
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
