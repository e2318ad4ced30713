"""The noise floor of a runner: how far apart blocks of the same code lie, case by case. Pure.

A calibration measures a commit against itself, as a pair. Any difference it finds is noise. A
change on this runner must exceed three times the standard deviation of one block.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, PairedEstimate, compare, detectable_change
from roofwatch.ci.messages import Remark, count_of
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Pair, timing_of
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.verdict import THRESHOLDS

SCHEMA_VERSION = "1.1"
FLOOR_FACTOR = 3.0
"""Standard deviations of a block that a change must exceed: of normal noise, one block in 400 lies
that far out.
"""
DETECTABLE_AT = (FIRST_LOOK_BLOCKS, 18, 40)
"""Blocks on each side for which the smallest detectable change is given: interim analyses 1, 3 and
5.
"""
_MUCH_LONGER = 4.0
"""A floor does not apply to blocks with this many times as many samples, which vary half as much.
"""

_LEAST = THRESHOLDS.relative_change
"""What a change must exceed without any noise, as a fraction."""
_Fraction = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NoiseFloorError(Exception):
    """A file does not hold the noise floor of this runner."""


class CaseNoise(BaseModel):
    """Noise of one case and implementation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case_id: str
    implementation: str
    block_count: Annotated[int, Field(ge=1)]
    """On each side."""
    timing: str
    """Timer and cache state, as in `cupti, cold`."""
    sample_count: Annotated[int, Field(ge=1)]
    """Typical samples in a block."""
    noise_floor: _Fraction
    """Robust standard deviation of one block, relative to the time."""
    detectable_change: dict[int, _Fraction]
    """Smallest slowdown found with a power of 80 %, by blocks on each side."""
    is_significant: bool
    """The interval excludes 0: expected in one case of twenty at most."""
    is_false_alarm: bool
    """The verdict was `regressed` or `improved`."""

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation

    @classmethod
    def of(
        cls,
        key: CaseKey,
        compared: PairedEstimate,
        *,
        timing: str,
        sample_count: float,
    ) -> Self | None:
        """Noise of a commit compared with itself; None if there are too few blocks."""
        deviation = compared.block_deviation
        if deviation is None:
            return None
        return cls(
            case_id=key[0],
            implementation=key[1],
            block_count=compared.block_count,
            timing=timing,
            sample_count=math.ceil(sample_count),
            noise_floor=deviation,
            detectable_change={
                blocks: detectable_change(deviation, blocks, threshold=_LEAST)
                for blocks in DETECTABLE_AT
            },
            is_significant=compared.is_significant,
            is_false_alarm=compared.verdict.is_change,
        )

    def applies_to(self, measured: Measurement) -> bool:
        """Whether it is of the same case and implementation, timed the same way in blocks of about
        the same length.
        """
        if self.case_key != measured.case_key:
            return False
        if self.timing != timing_of(measured.timer, measured.cache):
            return False
        return _samples_of_a_block(measured) < _MUCH_LONGER * self.sample_count


class NoiseFloor(BaseModel):
    """All cases of one calibration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: str = SCHEMA_VERSION
    project: str
    runner_class: str
    harness_version: str
    commit_sha: str
    measured_at: AwareDatetime
    """When the calibration ran; old ones are repeated."""
    preset: str | None = None
    """Sampling preset; None where it is not known."""
    cases: tuple[CaseNoise, ...]
    """One entry for each calibrated case and implementation."""

    @classmethod
    def parse(cls, content: bytes | str) -> Self:
        """Read the content of a file.

        Raises:
            NoiseFloorError: it is not a noise floor, or one of another version.
        """
        try:
            floor = cls.model_validate_json(content)
        except ValidationError as error:
            # the first fault is enough: people do not write this file
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "document"
            raise NoiseFloorError(
                f"not a noise floor from roofwatch calibrate: {field}: {first['msg']}"
            ) from None
        file_major, _, _ = floor.schema_version.partition(".")
        known_major, _, _ = SCHEMA_VERSION.partition(".")
        # other minor versions only add fields
        if file_major != known_major:
            raise NoiseFloorError(
                f"noise floor of version {floor.schema_version}; {SCHEMA_VERSION} is understood"
            )
        return floor

    def require_same_sampling(self, preset: str | None) -> None:
        """Check the sampling preset of a record, because blocks of other lengths have other noise.

        Raises:
            NoiseFloorError: the presets are known and differ.
        """
        # settings by hand have no name, so they cannot be compared
        if self.preset is None or preset is None or self.preset == preset:
            return
        raise NoiseFloorError(
            f"the noise floor was sampled with --preset {self.preset}, the record with "
            f"--preset {preset}: blocks of other lengths have other noise; calibrate with "
            f"--preset {preset}, or compare with --preset {self.preset}"
        )

    def why_of_other_runner(self, record: RunRecord) -> str | None:
        """Return what differs from the runner of a record; None if the noise is the record's."""
        sides = (
            ("project", self.project, record.project),
            ("runner class", self.runner_class, record.environment.runner_class),
            ("harness version", self.harness_version, record.harness_version),
        )
        # noise belongs to one machine and one method
        for name, calibrated, recorded in sides:
            if calibrated != recorded:
                words = f"{name} {calibrated}, the record of {recorded}"
                return f"the noise floor is of {words}: calibrate there"
        return None

    def threshold(self, measured: Measurement) -> float:
        """What a change must exceed: the usual threshold, or three times the floor where that is
        more.
        """
        floors = (case.noise_floor for case in self.cases if case.applies_to(measured))
        return max(_LEAST, FLOOR_FACTOR * next(floors, 0.0))


class ComparedRuns(BaseModel):
    """The runs of a comparison, as the service names them to a client that judges by itself."""

    base_run_id: UUID
    head_run_id: UUID
    noise_floor: NoiseFloor | None = Field(
        default=None,
        description="From the newest calibrations of the head's runner; null if not requested.",
    )


@dataclass(frozen=True)
class FloorUsed:
    """The noise floor that a judgement used."""

    commit_sha: str
    """Commit that was measured against itself."""
    measured_at: datetime
    case_count: int
    """Cases and implementations whose threshold it raised."""
    most: float | None
    """Highest of these thresholds, as a fraction."""

    @classmethod
    def of(cls, floor: NoiseFloor, thresholds: Iterable[float]) -> "FloorUsed":
        """Count the thresholds that a calibration raised, and take the highest."""
        raised = [threshold for threshold in thresholds if threshold > _LEAST]
        return cls(
            floor.commit_sha,
            floor.measured_at,
            len(raised),
            max(raised, default=None),
        )

    @property
    def remark(self) -> Remark:
        """When the noise was calibrated, and how many cases it gives a larger threshold."""
        effect = "no case needs a larger threshold"
        if self.most is not None:
            count = count_of(self.case_count, "case")
            effect = (
                f"{count} with {FLOOR_FACTOR:g} times the noise floor as threshold, up to "
                f"±{self.most:.1%}"
            )
        return Remark(
            f"Calibration of {self.measured_at:%Y-%m-%d} (commit {{}}): {effect}",
            (self.commit_sha[:8],),
        )


def noise_floor_of(
    head: RunRecord,
    comparisons: Mapping[CaseKey, PairedEstimate],
    preset: str | None,
) -> NoiseFloor:
    """Build the noise floor from a commit's comparisons with itself; those with too few blocks are
    left out.
    """
    noises: list[CaseNoise | None] = []
    for measured in head.measurements:
        key = measured.case_key
        # what was not compared has no noise to note
        if key in comparisons:
            noise = CaseNoise.of(
                key,
                comparisons[key],
                timing=timing_of(measured.timer, measured.cache),
                sample_count=_samples_of_a_block(measured),
            )
            noises.append(noise)
    return NoiseFloor(
        project=head.project,
        runner_class=head.environment.runner_class,
        harness_version=head.harness_version,
        commit_sha=head.commit.sha,
        measured_at=head.finished_at,
        preset=preset,
        cases=tuple(noise for noise in noises if noise is not None),
    )


def _samples_of_a_block(measured: Measurement) -> float:
    if not measured.blocks:
        return 0.0
    return statistics.median(len(block.samples_ns) for block in measured.blocks)


# --- stored calibrations


@dataclass(frozen=True)
class RunnerNoise:
    """All calibrations of one runner class."""

    runner_class: str
    cases: tuple[CaseNoise, ...]
    """The newest of each case and implementation, the noisiest first."""
    comparison_count: int
    """Compared cases over all calibrations."""
    false_alarm_count: int
    """Compared cases of one commit that a verdict called changed."""

    @property
    def median_floor(self) -> float | None:
        """The floor of the middle case, as a relative change."""
        if not self.cases:
            return None
        return statistics.median(case.noise_floor for case in self.cases)


def noise_of_runners(pairs: Sequence[Pair]) -> list[RunnerNoise]:
    """Summarise the noise of every calibrated runner class, by name; pairs are newest first."""
    calibrations = filter(is_calibration, pairs)
    by_class = group_by(calibrations, lambda pair: pair.runner_class)
    by_name = sorted(by_class.items())
    return [_noise_of_runner(name, of_class) for name, of_class in by_name]


def _noise_of_runner(runner_class: str, calibrations: Sequence[Pair]) -> RunnerNoise:
    noises = _noises(calibrations)
    newest = {noise.case_key: noise for noise in reversed(noises)}
    noisiest_first = sorted(
        newest.values(),
        key=lambda noise: (-noise.noise_floor, noise.case_id),
    )
    return RunnerNoise(
        runner_class=runner_class,
        cases=tuple(noisiest_first),
        comparison_count=len(noises),
        false_alarm_count=sum(noise.is_false_alarm for noise in noises),
    )


def stored_floor(pairs: Sequence[Pair]) -> NoiseFloor | None:
    """Build the noise floor from stored calibrations of one runner class and harness, the newest
    first.

    It has the newest of each case, implementation and timing; None if there is none.
    """
    calibrations = list(filter(is_calibration, pairs))
    noises = _noises(calibrations)
    if not noises:
        return None
    newest = {
        (noise.case_id, noise.implementation, noise.timing): noise for noise in reversed(noises)
    }
    presets = {pair.preset for pair in calibrations}
    newest_pair = calibrations[0]
    # noise of several presets is that of none
    preset = None
    if len(presets) == 1:
        preset = newest_pair.preset
    return NoiseFloor(
        project=newest_pair.project,
        runner_class=newest_pair.runner_class,
        harness_version=newest_pair.harness_version,
        commit_sha=newest_pair.head.sha,
        measured_at=newest_pair.measured_at,
        preset=preset,
        cases=tuple(reversed(newest.values())),
    )


def is_calibration(pair: Pair) -> bool:
    """Return whether the pair is of one commit, and complete."""
    return pair.base.sha == pair.head.sha and pair.is_whole


def _noises(pairs: Sequence[Pair]) -> list[CaseNoise]:
    """The noise of each calibrated case; what has too few blocks is left out."""
    noises: list[CaseNoise] = []
    for pair in pairs:
        noise = CaseNoise.of(
            pair.case_key,
            compare(pair.base_blocks_ns, pair.head_blocks_ns, threshold=_LEAST),
            timing=pair.timing,
            sample_count=statistics.median(map(len, pair.head_blocks_ns)),
        )
        if noise is not None:
            noises.append(noise)
    return noises
