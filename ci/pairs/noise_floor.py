"""The noise floor of a runner: how far blocks of one and the same code lie apart, case by case. Pure.

A calibration measures a commit against itself, as a pair. Whatever the comparison finds there is noise, so it says how
large a change must be to be told on this runner: three times the deviation of one block and more (docs/analysis.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from ci.compare import Comparison, detectable_change
from ci.pairs.looks import FIRST_LOOK_BLOCKS
from collector.record import RunRecord
from db.values import Verdict

SCHEMA_VERSION = "1.0"
FLOOR_FACTOR = 3.0
"""A change must exceed so many deviations of a block: of normal noise, one block in 400 lies that far out."""
DETECTABLE_AT = (FIRST_LOOK_BLOCKS, 18, 40)
"""Blocks a side for which the smallest change that is found is told: the first, third and fifth look."""

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
    noise_floor: _Fraction
    """Robust standard deviation of one block, relative to the time."""
    detectable_change: dict[int, _Fraction]
    """Smallest slowdown that is found four times in five, by blocks on each side."""
    is_significant: bool
    """The interval left out the truth, that nothing changed: expected of one case in twenty at most."""
    is_false_alarm: bool
    """The verdict said that something changed."""


class NoiseFloor(BaseModel):
    """All cases of one calibration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: str = SCHEMA_VERSION
    project: str
    runner_class: str
    harness_version: str
    commit_sha: str
    measured_at: AwareDatetime
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

    def require_same_runner(self, record: RunRecord) -> None:
        """Make sure that the noise of this runner is that of a record's.

        Raises:
            NoiseFloorError: the record is of another project, runner class or harness, whose noise is another.
        """
        for what, own, other in (
            ("project", self.project, record.project),
            ("runner class", self.runner_class, record.environment.runner_class),
            ("harness version", self.harness_version, record.harness_version),
        ):
            if own != other:
                raise NoiseFloorError(f"the noise floor is of {what} {own}, the record of {other}: calibrate there")

    def threshold(self, case_id: str, implementation: str, *, least: float) -> float:
        """What a change must exceed: the practical threshold, or three times the floor where that is more."""
        floors = (
            case.noise_floor for case in self.cases if (case.case_id, case.implementation) == (case_id, implementation)
        )
        return max(least, FLOOR_FACTOR * next(floors, 0.0))


def noise_floor_of(
    head: RunRecord, comparisons: Mapping[tuple[str, str], Comparison], *, threshold: float
) -> NoiseFloor:
    """The floor that a commit's comparison with itself shows.

    Args:
        head: The record of the one side; that of the other has the same commit.
        comparisons: Of its cases and implementations; those with too few blocks are left out.
        threshold: Practical threshold as a fraction, for what can be detected.
    """
    return NoiseFloor(
        project=head.project,
        runner_class=head.environment.runner_class,
        harness_version=head.harness_version,
        commit_sha=head.commit.sha,
        measured_at=head.finished_at,
        cases=tuple(
            noise
            for (case_id, implementation), comparison in comparisons.items()
            if (noise := case_noise(case_id, implementation, comparison, threshold=threshold)) is not None
        ),
    )


def case_noise(case_id: str, implementation: str, comparison: Comparison, *, threshold: float) -> CaseNoise | None:
    """What a comparison of a commit with itself says of one case; None where it has too few blocks.

    Args:
        case_id: The case.
        implementation: The implementation.
        comparison: Of its times.
        threshold: Practical threshold as a fraction, for what can be detected.
    """
    if comparison.block_deviation is None:
        return None
    return CaseNoise(
        case_id=case_id,
        implementation=implementation,
        block_count=comparison.block_count,
        noise_floor=comparison.block_deviation,
        detectable_change={
            blocks: detectable_change(comparison.block_deviation, blocks, threshold=threshold)
            for blocks in DETECTABLE_AT
        },
        is_significant=comparison.is_significant,
        is_false_alarm=comparison.verdict in {Verdict.REGRESSED, Verdict.IMPROVED},
    )
