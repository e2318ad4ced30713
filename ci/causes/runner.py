"""Evidence about the runner around a step, from runs of unchanged code. Pure.

*Measured again*: commits of the old level that were measured once more during the new one. If they take the new time,
the step is there without the commit; if they take the old one, the runner did not change. *Runner noise*: a calibration
measures a commit against itself. Other noise after the step shows that the runner changed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.collector.record.metrics import format_ns
from roofwatch.db.values import Pair, SeriesPoint

_STAYED, _MOVED = 1 / 3, 2 / 3
"""Shares of the step: old code that changed by less stayed, and by more changed with it."""
_ERRORS = 2.0
"""Standard errors that must fit into a third of the step, to tell the two apart."""
_MIN_EARLY_RUNS = 4
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in standard deviations over √n."""
_NOISE_FACTOR = 2.0
"""Noise that differs by this factor is other noise."""
_CLEAR_Z, _LIKELY_Z = 2.576, 1.645
"""Two-sided 1 % for noise that changed; 5 % on either side for noise that stayed."""
_CALIBRATIONS = 3
"""Nearest calibrations on either side."""


@dataclass(frozen=True)
class Evidence:
    """One observation other than the series itself."""

    has_changed: bool
    sentence: str


def measured_again(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], *, log_change: float, ended: datetime | None
) -> Evidence | None:
    """Whether the old level's commits take the new time when measured again; None if no run, or only noise, says so.

    Args:
        before: All timed runs of the commits of the old level, whenever they were made.
        after: Those of the new level.
        log_change: ln(after / before) of the levels.
        ended: When the level after the new one was first measured; None if there is none.
    """
    began = min(run.measured_at for run in after)
    settings = {run.setting for run in after}
    early = [run.value for run in before if run.measured_at < began and run.value]
    # a run under the old driver or toolchain is no evidence about the new one
    late = [
        run.value
        for run in before
        if run.value and began <= run.measured_at and _is_before(run.measured_at, ended) and run.setting in settings
    ]
    if not late or len(early) < _MIN_EARLY_RUNS:
        return None
    logs = [math.log(value) for value in early]
    level = statistics.median(logs)
    deviation = MAD_TO_DEVIATION * statistics.median(abs(value - level) for value in logs)
    error = _MEDIAN_ERROR * deviation * math.sqrt(1 / len(early) + 1 / len(late))
    share = (statistics.median(map(math.log, late)) - level) / log_change
    if _ERRORS * error > abs(log_change) / 3 or _STAYED < share < _MOVED:
        return None
    runs = "once" if len(late) == 1 else f"in {len(late)} runs"
    sentence = f"old commits, measured again after it ({runs}), take {format_ns(statistics.median(late))}"
    if share <= _STAYED:
        return Evidence(False, f"{sentence} as before")
    return Evidence(True, f"{sentence} instead of {format_ns(math.exp(level))}: the change is there without the commit")


def runner_noise(calibrations: Iterable[Pair], began: datetime, ended: datetime | None) -> Evidence | None:
    """Whether a runner's noise changed with a level; None if that is not measured, or not clear.

    Without a change, the differences between blocks before and after come from one distribution, so Wilcoxon's rank sum
    (1945) is valid for heavy tails too.

    Args:
        calibrations: Of one case and implementation on one runner class.
        began: When the new level was first measured.
        ended: When the next one was; None if there is none.
    """
    ordered = sorted(calibrations, key=lambda pair: pair.measured_at)
    before = [pair for pair in ordered if pair.measured_at < began]
    after = [pair for pair in ordered if began <= pair.measured_at and _is_before(pair.measured_at, ended)]
    if not before:
        return None
    preset = before[-1].preset
    before, after = (
        [one for one in side if preset is None or one.preset in {None, preset}] for side in (before, after)
    )
    if not after:
        return None
    old, new = _block_differences(before[-_CALIBRATIONS:]), _block_differences(after[:_CALIBRATIONS])
    old_floor, new_floor = (MAD_TO_DEVIATION * float(np.median(side)) / math.sqrt(2) for side in (old, new))
    has_moved = (
        old_floor > 0 < new_floor
        and abs(math.log(new_floor / old_floor)) >= math.log(_NOISE_FACTOR)
        and abs(_rank_sum_z(old, new)) > _CLEAR_Z
    )
    has_stayed = (
        _rank_sum_z(old, new * _NOISE_FACTOR) > _LIKELY_Z and _rank_sum_z(old * _NOISE_FACTOR, new) < -_LIKELY_Z
    )
    if not has_moved and not has_stayed:
        return None
    sentence = f"noise between blocks of one commit is {old_floor:.1%} before it and {new_floor:.1%} after it"
    return Evidence(has_moved, sentence)


def _is_before(measured_at: datetime, ended: datetime | None) -> bool:
    return ended is None or measured_at < ended


def _block_differences(pairs: Iterable[Pair]) -> NDArray[np.float64]:
    """Sizes of the log ratios of neighbouring blocks, shape [pairs of blocks]."""
    blocks = [both for pair in pairs for both in zip(pair.base_blocks_ns, pair.head_blocks_ns, strict=True)]
    return np.array([abs(math.log(statistics.median(head) / statistics.median(base))) for base, head in blocks])


def _rank_sum_z(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Standard errors by which those after rank above chance. Equal ones share their ranks."""
    every = np.concatenate([before, after])
    _, place, counts = np.unique(every, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    total, count = len(every), len(after)
    ties = float(np.sum(counts**3 - counts)) / (total * (total - 1)) if total > 1 else 0.0
    variance = count * (total - count) / 12 * (total + 1 - ties)
    excess = float(np.sum(ranks[len(before) :])) - count * (total + 1) / 2
    return excess / math.sqrt(variance) if variance > 0 else 0.0
