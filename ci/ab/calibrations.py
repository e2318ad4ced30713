"""What the stored calibrations of a project say of its runners: pairs of a commit with itself, where every difference
is noise. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import compare
from roofwatch.ci.ab.noise_floor import CaseNoise, NoiseFloor, case_noise
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Pair


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
        if _is_calibration(pair):
            by_class[pair.runner_class].append(pair)
    return [_noise_of(runner_class, by_class[runner_class], limit) for runner_class in sorted(by_class)]


def stored_floor(pairs: Sequence[Pair], thresholds: Thresholds | None = None) -> NoiseFloor | None:
    """The noise floor of a runner by its stored calibrations: of each case, implementation and way of timing the newest
    that says something; None where none does.

    Args:
        pairs: Of one runner class and harness, newest first, as for `noise_of_runners`.
        thresholds: As of the comparisons that they calibrate; the defaults if left out.
    """
    limit = (thresholds or Thresholds()).relative_change
    own = [pair for pair in pairs if _is_calibration(pair)]
    newest: dict[tuple[str, str, str], CaseNoise] = {}
    for noise in _each_noise(own, limit):
        newest.setdefault((noise.case_id, noise.implementation, noise.timing), noise)
    if not newest:
        return None
    return NoiseFloor(
        project=own[0].project,
        runner_class=own[0].runner_class,
        harness_version=own[0].harness_version,
        commit_sha=own[0].head.sha,
        measured_at=own[0].measured_at,
        preset=_common({pair.preset for pair in own}),
        cases=tuple(newest.values()),
    )


def _common(presets: set[str | None]) -> str | None:
    return presets.pop() if len(presets) == 1 else None


def _is_calibration(pair: Pair) -> bool:
    """Of one commit, and whole."""
    return pair.base.sha == pair.head.sha and len(pair.base_blocks_ns) == len(pair.head_blocks_ns)


def _each_noise(pairs: Sequence[Pair], threshold: float) -> list[CaseNoise]:
    found = []
    for pair in pairs:
        noise = case_noise(
            pair.case_id,
            pair.implementation,
            compare(pair.base_blocks_ns, pair.head_blocks_ns, threshold=threshold),
            threshold=threshold,
            timing=pair.timing,
            sample_count=math.ceil(statistics.median(map(len, pair.head_blocks_ns))) if pair.head_blocks_ns else None,
        )
        if noise is not None:
            found.append(noise)
    return found


def _noise_of(runner_class: str, pairs: Sequence[Pair], threshold: float) -> RunnerNoise:
    found = _each_noise(pairs, threshold)
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
