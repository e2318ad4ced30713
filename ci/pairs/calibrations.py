"""What the stored calibrations of a project say of its runners: pairs of a commit with itself, where every difference
is noise. Pure.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ci.compare import compare
from ci.pairs.noise_floor import CaseNoise, case_noise
from ci.thresholds import Thresholds
from db.values import Pair


@dataclass(frozen=True)
class RunnerNoise:
    """All calibrations of one runner class."""

    runner_class: str
    cases: tuple[CaseNoise, ...]
    """Of each case and implementation the newest, the noisiest first."""
    calibration_count: int
    comparison_count: int
    """Of cases, over all calibrations."""
    significant_count: int
    """Intervals that left out the truth."""
    false_alarm_count: int
    """Verdicts that something had changed."""

    @property
    def median_floor(self) -> float | None:
        return statistics.median(case.noise_floor for case in self.cases) if self.cases else None

    @property
    def false_alarm_rate(self) -> float | None:
        """Share of the comparisons; None without any."""
        return self.false_alarm_count / self.comparison_count if self.comparison_count else None


def noise_of_runners(pairs: Sequence[Pair], thresholds: Thresholds | None = None) -> list[RunnerNoise]:
    """The noise of every runner class that was calibrated, by name.

    Args:
        pairs: Newest first; those of two different commits are no calibration and are left out.
        thresholds: As of the comparisons that they calibrate; the defaults if left out.
    """
    limit = (thresholds or Thresholds()).relative_change
    by_class: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        is_whole = len(pair.base_blocks_ns) == len(pair.head_blocks_ns)
        if pair.base.sha == pair.head.sha and is_whole:
            by_class[pair.runner_class].append(pair)
    return [_noise_of(runner_class, by_class[runner_class], limit) for runner_class in sorted(by_class)]


def _noise_of(runner_class: str, pairs: Sequence[Pair], threshold: float) -> RunnerNoise:
    found = []
    for pair in pairs:
        comparison = compare(pair.base_blocks_ns, pair.head_blocks_ns, threshold=threshold)
        noise = case_noise(pair.case_id, pair.implementation, comparison, threshold=threshold)
        if noise is not None:
            found.append(noise)
    newest: dict[tuple[str, str], CaseNoise] = {}
    for noise in found:
        newest.setdefault((noise.case_id, noise.implementation), noise)
    return RunnerNoise(
        runner_class=runner_class,
        cases=tuple(sorted(newest.values(), key=lambda noise: (-noise.noise_floor, noise.case_id))),
        calibration_count=len({pair.pair_id for pair in pairs}),
        comparison_count=len(found),
        significant_count=sum(noise.is_significant for noise in found),
        false_alarm_count=sum(noise.is_false_alarm for noise in found),
    )
