"""The noise floor of a runner: how far blocks of one and the same code lie apart, case by case. Pure.

A calibration measures a commit against itself, as a pair. Whatever the comparison finds there is noise, so it says how
large a change must be to be reported on this runner: three times the deviation of one block.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, Comparison, compare, detectable_change
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.values import Pair, Verdict, timing_of

SCHEMA_VERSION = "1.1"
FLOOR_FACTOR = 3.0
"""A change must exceed so many deviations of a block: of normal noise, one block in 400 lies that far out."""
DETECTABLE_AT = (FIRST_LOOK_BLOCKS, 18, 40)
"""Blocks a side for which the smallest detectable change is given: the first, third and fifth interim analysis."""

_MUCH_LONGER = 4.0
"""A floor says nothing of blocks of so many times as many samples: independent ones vary half as much."""

_Fraction = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NoiseFloorError(Exception):
    """A file does not hold the noise floor of this runner."""


class CaseNoise(BaseModel):
    """What one case and implementation showed when nothing had changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case_id: str
    implementation: str
    block_count: Annotated[int, Field(ge=1)]
    """On each side."""
    timing: str
    """Timer and cache state, as in `cupti, cold`."""
    sample_count: Annotated[int, Field(ge=1)]
    """Of a block, typically."""
    noise_floor: _Fraction
    """Robust standard deviation of one block, relative to the time."""
    detectable_change: dict[int, _Fraction]
    """Smallest slowdown that is found four times in five, by blocks on each side."""
    is_significant: bool
    """The interval left out the truth, that nothing changed: expected of one case in twenty at most."""
    is_false_alarm: bool
    """The verdict said that something changed."""

    def applies_to(self, measured: Measurement) -> bool:
        """Whether that is its case and implementation, timed alike, in blocks that are not much longer."""
        return (
            (self.case_id, self.implementation) == (measured.case_id, measured.implementation)
            and self.timing == timing_of(measured.timer, measured.cache)
            and _samples_of_a_block(measured) < _MUCH_LONGER * self.sample_count
        )


class NoiseFloor(BaseModel):
    """All cases of one calibration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: str = SCHEMA_VERSION
    project: str
    runner_class: str
    harness_version: str
    commit_sha: str
    measured_at: AwareDatetime
    preset: str | None = None
    """How it was sampled; None where that is not known."""
    cases: tuple[CaseNoise, ...]

    @classmethod
    def parse(cls, content: bytes | str) -> Self:
        """Read a file's content.

        Raises:
            NoiseFloorError: it is no such document, or one of another version.
        """
        try:
            floor = cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "document"
            raise NoiseFloorError(f"no noise floor as roofwatch calibrate writes it: {place}: {first['msg']}") from None
        if floor.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
            raise NoiseFloorError(f"noise floor of version {floor.schema_version}; {SCHEMA_VERSION} is understood")
        return floor

    def require_same_sampling(self, preset: str | None) -> None:
        """Blocks of other lengths have other noise.

        Raises:
            NoiseFloorError: what is to be compared is known to be sampled by another preset.
        """
        if None not in (self.preset, preset) and self.preset != preset:
            raise NoiseFloorError(
                f"the noise floor was sampled with --preset {self.preset}, and this is with --preset {preset}: blocks "
                f"of other lengths have other noise; calibrate with --preset {preset}, or compare with --preset "
                f"{self.preset}"
            )

    def require_same_runner(self, record: RunRecord) -> None:
        """Raises:
        NoiseFloorError: the record is of another project, runner class or harness, whose noise is another.
        """
        for what, own, other in self._beside(record):
            if own != other:
                raise NoiseFloorError(f"the noise floor is of {what} {own}, the record of {other}: calibrate there")

    def is_of_runner(self, record: RunRecord) -> bool:
        """Whether the noise of this runner is that of a record's."""
        return all(own == other for _, own, other in self._beside(record))

    def _beside(self, record: RunRecord) -> Iterator[tuple[str, str, str]]:
        yield "project", self.project, record.project
        yield "runner class", self.runner_class, record.environment.runner_class
        yield "harness version", self.harness_version, record.harness_version

    def threshold(self, measured: Measurement, *, least: float) -> float:
        """What a change must exceed: the practical threshold, or three times the floor where that is more."""
        floors = (case.noise_floor for case in self.cases if case.applies_to(measured))
        return max(least, FLOOR_FACTOR * next(floors, 0.0))


@dataclass(frozen=True)
class FloorUsed:
    """The noise floor that a judgement took into account."""

    commit_sha: str
    """Of the commit that was measured against itself."""
    measured_at: datetime
    case_count: int
    """Cases and implementations of which it asked more than the practical threshold."""
    most: float | None
    """Of these, the most that it asked of a change, as a fraction."""

    @classmethod
    def of(cls, floor: NoiseFloor, thresholds: Iterable[float], *, least: float) -> FloorUsed:
        """What a floor made of the thresholds of some cases."""
        raised = [threshold for threshold in thresholds if threshold > least]
        return cls(floor.commit_sha, floor.measured_at, len(raised), max(raised, default=None))


def noise_floor_of(
    head: RunRecord, comparisons: Mapping[tuple[str, str], Comparison], *, threshold: float
) -> NoiseFloor:
    """The floor that a commit's comparison with itself shows.

    Args:
        head: The record of the one side; that of the other has the same commit.
        comparisons: Of its cases and implementations; those with too few blocks are left out.
        threshold: Practical threshold as a fraction, for what can be detected.
    """
    noises = [
        _case_noise(
            *(one.case_id, one.implementation, comparison, threshold),
            *(timing_of(one.timer, one.cache), _samples_of_a_block(one)),
        )
        for one in head.measurements
        if (comparison := comparisons.get((one.case_id, one.implementation))) is not None
    ]
    return NoiseFloor(
        project=head.project,
        runner_class=head.environment.runner_class,
        harness_version=head.harness_version,
        commit_sha=head.commit.sha,
        measured_at=head.finished_at,
        cases=tuple(noise for noise in noises if noise is not None),
    )


# --- stored calibrations


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
        pairs: Newest first; those of two different commits are left out.
        thresholds: As of the comparisons that they calibrate; the defaults if left out.
    """
    by_class: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if is_calibration(pair):
            by_class[pair.runner_class].append(pair)
    return [_noise_of_class(runner_class, own, thresholds) for runner_class, own in sorted(by_class.items())]


def _noise_of_class(runner_class: str, pairs: Sequence[Pair], thresholds: Thresholds | None) -> RunnerNoise:
    found = _noise_of_each(pairs, thresholds)
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


def stored_floor(pairs: Sequence[Pair], thresholds: Thresholds | None = None) -> NoiseFloor | None:
    """The noise floor of a runner by its stored calibrations: of each case, implementation and way of timing the newest
    that says something; None where none does.

    Args:
        pairs: Of one runner class and harness, newest first, as for `noise_of_runners`.
        thresholds: As of the comparisons that they calibrate; the defaults if left out.
    """
    own = [pair for pair in pairs if is_calibration(pair)]
    newest: dict[tuple[str, str, str], CaseNoise] = {}
    for noise in _noise_of_each(own, thresholds):
        newest.setdefault((noise.case_id, noise.implementation, noise.timing), noise)
    if not newest:
        return None
    presets = {pair.preset for pair in own}
    return NoiseFloor(
        project=own[0].project,
        runner_class=own[0].runner_class,
        harness_version=own[0].harness_version,
        commit_sha=own[0].head.sha,
        measured_at=own[0].measured_at,
        preset=presets.pop() if len(presets) == 1 else None,
        cases=tuple(newest.values()),
    )


def is_calibration(pair: Pair) -> bool:
    """Whether it is of one commit, and whole."""
    return pair.base.sha == pair.head.sha and len(pair.base_blocks_ns) == len(pair.head_blocks_ns)


def _noise_of_each(pairs: Sequence[Pair], thresholds: Thresholds | None) -> list[CaseNoise]:
    limit = (thresholds or Thresholds()).relative_change
    found = [
        _case_noise(
            *(pair.case_id, pair.implementation),
            *(compare(pair.base_blocks_ns, pair.head_blocks_ns, threshold=limit), limit),
            *(pair.timing, statistics.median(map(len, pair.head_blocks_ns))),
        )
        for pair in pairs
    ]
    return [noise for noise in found if noise is not None]


# --- one case


def _samples_of_a_block(measured: Measurement) -> float:
    """Typically; 0 where it failed."""
    return statistics.median(len(block.samples_ns) for block in measured.blocks) if measured.blocks else 0.0


def _case_noise(
    case_id: str, implementation: str, comparison: Comparison, threshold: float, timing: str, sample_count: float
) -> CaseNoise | None:
    """None where there are too few blocks."""
    if comparison.block_deviation is None:
        return None
    return CaseNoise(
        case_id=case_id,
        implementation=implementation,
        block_count=comparison.block_count,
        timing=timing,
        sample_count=math.ceil(sample_count),
        noise_floor=comparison.block_deviation,
        detectable_change={
            blocks: detectable_change(comparison.block_deviation, blocks, threshold=threshold)
            for blocks in DETECTABLE_AT
        },
        is_significant=comparison.is_significant,
        is_false_alarm=comparison.verdict in {Verdict.REGRESSED, Verdict.IMPROVED},
    )
