"""The noise floor of a runner: from a commit's comparison with itself, from a file, and in sentences."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from roofwatch.ci.ab.compare import ERROR_RATE
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR, NoiseFloor, NoiseFloorError, noise_floor_of
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.timing.method import Preset


def noise_of(base: RunRecord, head: RunRecord, thresholds: Thresholds, *, preset: Preset) -> NoiseFloor:
    """The noise floor of a pair whose sides are one commit, as the pair's own judgement shows it.

    Args:
        base: The one side.
        head: The other.
        thresholds: For what can be detected.
        preset: By which both were sampled.
    """
    judged = judge_pull_request(base, head, thresholds)
    comparisons = {
        (case.case_id, case.implementation): case.comparison for case in judged.cases if case.comparison is not None
    }
    floor = noise_floor_of(head, comparisons, threshold=thresholds.relative_change)
    return floor.model_copy(update={"preset": preset})


def read_noise_floor(file: Path | None, preset: Preset | None = None) -> NoiseFloor | None:
    """The noise floor in a file; None for None.

    Args:
        file: As `roofwatch calibrate` writes it.
        preset: By which is sampled what it is for; None where that is not known.

    Raises:
        NoiseFloorError: it cannot be read, or holds something else, or was sampled otherwise.
    """
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NoiseFloorError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        floor = NoiseFloor.parse(content)
        if preset is not None:
            floor.require_same_sampling(preset)
    except NoiseFloorError as error:
        raise NoiseFloorError(f"{file}: {error}") from None
    return floor


def summary(noise: NoiseFloor) -> Iterator[str]:
    """What the floor means, line by line."""
    if not noise.cases:
        yield "nothing was timed, so nothing is known about the noise of this runner"
        return
    floors = [case.noise_floor for case in noise.cases]
    yield (
        f"noise floor of {len(floors)} cases on {noise.runner_class}: median {statistics.median(floors):.2%}, "
        f"worst {max(floors):.2%}; with this floor a change must exceed {FLOOR_FACTOR:g} times that of its case"
    )
    significant = sum(case.is_significant for case in noise.cases)
    yield (
        f"false alarms: {sum(case.is_false_alarm for case in noise.cases)} of {len(floors)} cases; {significant} "
        f"intervals leave out no change, at most {ERROR_RATE * len(floors):.1f} are expected to"
    )
