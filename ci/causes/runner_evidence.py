"""What runs of unchanged code say of a runner around a step. Pure.

*The same code again*: commits of the old level that were measured once more while the new one stood. If they take the
new time, the step is there without the commit; if they still take the old one, the runner did not change. *The noise
floor*: a calibration measures a commit against itself. If its noise differs before and after the step, something about
the runner changed.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.noise_floor import is_calibration
from roofwatch.collector.record.metrics import format_ns
from roofwatch.db.values import Pair, SeriesKey, SeriesPoint

_STAYED, _CAME_ALONG = 1 / 3, 2 / 3
"""Shares of the step: old code that changed by less stayed, and by more changed with it."""
_ERRORS = 2.0
"""Standard errors that must fit into a third of the step, to tell the two apart."""
_MIN_EARLY_RUNS = 4
"""Runs of the old level from which their spread is known at all."""
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in deviations over √n."""
_MAD_TO_DEVIATION = 1.4826
_OTHER_NOISE = 2.0
"""Factor between two floors from which on the noise is another one."""
_CLEAR_Z, _LIKELY_Z = 2.576, 1.645
"""Two-sided at 1 %, for noise that changed; at 5 % to either side, for noise that stayed."""
_CALIBRATIONS = 3
"""On either side, the nearest."""


class RunnerMove(StrEnum):
    """What old code says that was measured again after a step."""

    MOVED = "moved"
    STAYED = "stayed"


@dataclass(frozen=True)
class MeasuredAgain:
    """Commits of the old level, measured while the new one stood."""

    move: RunnerMove
    run_count: int
    early_ns: float
    """Median of the runs before the step."""
    late_ns: float

    def in_words(self) -> str:
        runs = "once" if self.run_count == 1 else f"in {self.run_count} runs"
        told = f"what came before it, measured again on this runner after it ({runs}), takes {format_ns(self.late_ns)}"
        if self.move is RunnerMove.MOVED:
            return f"{told} where it took {format_ns(self.early_ns)}: the change is there without the commit"
        return f"{told} as before"


@dataclass(frozen=True)
class FloorStep:
    """How far blocks of one commit lay apart before and after a step, of one case.

    If the noise stayed, the sizes before and after come from one distribution, whatever that is: Wilcoxon's rank sum
    (1945) holds its level in heavy tails too.
    """

    before: NDArray[np.float64]
    """Sizes of the differences between neighbouring blocks, on the scale of logarithms; shape [pairs of blocks]."""
    after: NDArray[np.float64]

    @property
    def has_moved(self) -> bool:
        """Whether the noise changed: by a factor that is worth reporting, and beyond chance."""
        there, here = _floor(self.before), _floor(self.after)
        is_other = there > 0 < here and abs(math.log(here / there)) >= math.log(_OTHER_NOISE)
        return is_other and abs(_rank_sum_z(self.before, self.after)) > _CLEAR_Z

    @property
    def has_stayed(self) -> bool:
        """Whether that factor is ruled out either way."""
        return (
            _rank_sum_z(self.before, self.after * _OTHER_NOISE) > _LIKELY_Z
            and _rank_sum_z(self.before * _OTHER_NOISE, self.after) < -_LIKELY_Z
        )

    def in_words(self) -> str:
        return (
            f"blocks of one commit, measured against itself, lie {_floor(self.before):.1%} apart before it and "
            f"{_floor(self.after):.1%} after it"
        )


@dataclass(frozen=True)
class RunnerEvidence:
    """All that a runner shows of itself around one step."""

    again: MeasuredAgain | None = None
    floor: FloorStep | None = None


class Calibrations:
    """All pairs of a commit with itself, by what was measured."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._pairs: dict[tuple[str, str, str, str], list[Pair]] = defaultdict(list)
        for pair in pairs:
            if is_calibration(pair):
                self._pairs[pair.project, pair.case_id, pair.implementation, pair.runner_class].append(pair)

    def floor_around(self, key: SeriesKey, began: datetime, ended: datetime | None) -> FloorStep | None:
        """The noise floor before a level began and while it stood, sampled by one preset; None where either was not
        calibrated.

        Args:
            key: Of the series.
            began: When the new level was first measured.
            ended: When the next one was; None where there is none.
        """
        pairs = self._pairs.get((key.project, key.case_id, key.implementation, key.runner_class), [])
        ordered = sorted(pairs, key=lambda pair: pair.measured_at)
        before = [pair for pair in ordered if pair.measured_at < began]
        after = [pair for pair in ordered if began <= pair.measured_at and (ended is None or pair.measured_at < ended)]
        if not before:
            return None
        last = before[-1].preset
        before, after = (
            [pair for pair in side if None in (pair.preset, last) or pair.preset == last] for side in (before, after)
        )
        if not after:
            return None
        return FloorStep(_sizes(before[-_CALIBRATIONS:]), _sizes(after[:_CALIBRATIONS]))


def _sizes(pairs: Iterable[Pair]) -> NDArray[np.float64]:
    blocks = [both for pair in pairs for both in zip(pair.base_blocks_ns, pair.head_blocks_ns, strict=True)]
    return np.array([abs(math.log(statistics.median(head) / statistics.median(base))) for base, head in blocks])


def _floor(sizes: NDArray[np.float64]) -> float:
    """Robust deviation of one block: a difference of two has √2 times as much."""
    return _MAD_TO_DEVIATION * float(np.median(sizes)) / math.sqrt(2)


def _rank_sum_z(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Of those after: by how many standard errors they rank above chance. Equal ones share their ranks."""
    every = np.concatenate([before, after])
    _, place, counts = np.unique(every, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[place]
    total, count = len(every), len(after)
    ties = float(np.sum(counts**3 - counts)) / (total * (total - 1)) if total > 1 else 0.0
    variance = count * (total - count) / 12 * (total + 1 - ties)
    excess = float(np.sum(ranks[len(before) :])) - count * (total + 1) / 2
    return excess / math.sqrt(variance) if variance > 0 else 0.0


def measured_again(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], *, log_change: float, ended: datetime | None
) -> MeasuredAgain | None:
    """What the old level's commits took while the new level stood; None where nobody looked, or noise leaves it open.

    Args:
        before: All timed runs of the commits of the old level, whenever they were made.
        after: Those of the new one.
        log_change: ln(after / before) of the levels.
        ended: When the level after the new one was first measured; None where there is none.
    """
    began = min(run.measured_at for run in after)
    settings = {run.setting for run in after}
    early = [run.value for run in before if run.measured_at < began and run.value]
    late = [
        run.value
        for run in before
        if began <= run.measured_at
        and (ended is None or run.measured_at < ended)
        and run.value
        # under the old driver or toolchain it says nothing of the new one
        and run.setting in settings
    ]
    if not late or len(early) < _MIN_EARLY_RUNS:
        return None
    logs = [math.log(value) for value in early]
    level = statistics.median(logs)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(value - level) for value in logs)
    error = _MEDIAN_ERROR * deviation * math.sqrt(1 / len(early) + 1 / len(late))
    if _ERRORS * error > abs(log_change) / 3:
        return None
    share = (statistics.median(map(math.log, late)) - level) / log_change
    if _STAYED < share < _CAME_ALONG:
        return None
    return MeasuredAgain(
        move=RunnerMove.STAYED if share <= _STAYED else RunnerMove.MOVED,
        run_count=len(late),
        early_ns=math.exp(level),
        late_ns=statistics.median(late),
    )
