"""The noise floor of a runner: how far blocks of one and the same code lie apart, case by case. Pure.

A calibration measures a commit against itself, as a pair. Whatever the comparison finds there is noise, so it says how
large a change must be to be told on this runner: three times the deviation of one block and more (docs/analysis.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.ab.compare import Comparison, detectable_change
from roofwatch.ci.ab.interim_analysis import FIRST_LOOK_BLOCKS
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.values import Verdict, timing_of

SCHEMA_VERSION = "1.1"
FLOOR_FACTOR = 3.0
"""A change must exceed so many deviations of a block: of normal noise, one block in 400 lies that far out."""
DETECTABLE_AT = (FIRST_LOOK_BLOCKS, 18, 40)
"""Blocks a side for which the smallest change that is found is told: the first, third and fifth look."""

_MUCH_LONGER = 4.0
"""A floor says nothing of blocks of so many times as many samples: of independent ones these vary half as much, so it
would ask twice of them what it should. Presets lie farther apart, blocks of one seldom so far."""

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
    timing: str = ""
    """Timer and cache state, as in `cupti, cold`; empty where they are not known."""
    sample_count: Annotated[int, Field(ge=1)] | None = None
    """Of a block, typically; None where it is not known."""
    noise_floor: _Fraction
    """Robust standard deviation of one block, relative to the time."""
    detectable_change: dict[int, _Fraction]
    """Smallest slowdown that is found four times in five, by blocks on each side."""
    is_significant: bool
    """The interval left out the truth, that nothing changed: expected of one case in twenty at most."""
    is_false_alarm: bool
    """The verdict said that something changed."""

    def speaks_of(self, measured: Measurement) -> bool:
        """Whether that is its case and implementation, timed alike, in blocks that are not much longer."""
        return (
            (self.case_id, self.implementation) == (measured.case_id, measured.implementation)
            and self.timing in ("", timing_of(measured.timer, measured.cache))
            and (self.sample_count is None or samples_of(measured) < _MUCH_LONGER * self.sample_count)
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
    """How it was sampled; None where that is not known, as of files that an earlier roofwatch wrote."""
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
        """Make sure that what is to be compared is sampled as this was: blocks of other lengths have other noise.

        Args:
            preset: By which it is sampled; None where that is not known.

        Raises:
            NoiseFloorError: it is known to be sampled otherwise.
        """
        if None not in (self.preset, preset) and self.preset != preset:
            raise NoiseFloorError(
                f"the noise floor was sampled with --preset {self.preset}, and this is with --preset {preset}: blocks "
                f"of other lengths have other noise; calibrate with --preset {preset}, or compare with --preset "
                f"{self.preset}"
            )

    def require_same_runner(self, record: RunRecord) -> None:
        """Make sure that the noise of this runner is that of a record's.

        Raises:
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
        floors = (case.noise_floor for case in self.cases if case.speaks_of(measured))
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


def samples_of(measured: Measurement) -> float:
    """Samples of a block, typically; 0 where it failed."""
    return statistics.median(len(block.samples_ns) for block in measured.blocks) if measured.blocks else 0.0


def noise_floor_of(
    head: RunRecord, comparisons: Mapping[tuple[str, str], Comparison], *, threshold: float
) -> NoiseFloor:
    """The floor that a commit's comparison with itself shows.

    Args:
        head: The record of the one side; that of the other has the same commit.
        comparisons: Of its cases and implementations; those with too few blocks are left out.
        threshold: Practical threshold as a fraction, for what can be detected.
    """
    measured = {(one.case_id, one.implementation): one for one in head.measurements}
    return NoiseFloor(
        project=head.project,
        runner_class=head.environment.runner_class,
        harness_version=head.harness_version,
        commit_sha=head.commit.sha,
        measured_at=head.finished_at,
        cases=tuple(
            noise
            for key, comparison in comparisons.items()
            if (noise := _noise_of(key, measured.get(key), comparison, threshold)) is not None
        ),
    )


def _noise_of(
    key: tuple[str, str], measured: Measurement | None, comparison: Comparison, threshold: float
) -> CaseNoise | None:
    if measured is None:
        return case_noise(*key, comparison, threshold=threshold)
    return case_noise(
        *key,
        comparison,
        threshold=threshold,
        timing=timing_of(measured.timer, measured.cache),
        sample_count=math.ceil(samples_of(measured)) or None,
    )


def case_noise(
    case_id: str,
    implementation: str,
    comparison: Comparison,
    *,
    threshold: float,
    timing: str = "",
    sample_count: int | None = None,
) -> CaseNoise | None:
    """What a comparison of a commit with itself says of one case; None where it has too few blocks.

    Args:
        case_id: The case.
        implementation: The implementation.
        comparison: Of its times.
        threshold: Practical threshold as a fraction, for what can be detected.
        timing: Timer and cache state, if they are known.
        sample_count: Samples of a block, if they are known.
    """
    if comparison.block_deviation is None:
        return None
    return CaseNoise(
        case_id=case_id,
        implementation=implementation,
        block_count=comparison.block_count,
        timing=timing,
        sample_count=sample_count,
        noise_floor=comparison.block_deviation,
        detectable_change={
            blocks: detectable_change(comparison.block_deviation, blocks, threshold=threshold)
            for blocks in DETECTABLE_AT
        },
        is_significant=comparison.is_significant,
        is_false_alarm=comparison.verdict in {Verdict.REGRESSED, Verdict.IMPROVED},
    )
