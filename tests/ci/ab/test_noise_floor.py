"""Noise floors: measured, applied to comparisons, stored."""

from __future__ import annotations

import numpy as np
import pytest

from roofwatch.ci.ab.compare import PairedEstimate, compare, detectable_change
from roofwatch.ci.ab.noise_floor import (
    DETECTABLE_AT,
    FloorUsed,
    NoiseFloor,
    NoiseFloorError,
    noise_floor_of,
    noise_of_runners,
    stored_floor,
)
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.measurement import CacheState, Measurement, Timer
from roofwatch.model.timing_method import Preset
from roofwatch.model.verdict import Verdict
from tests.builders import CASE_ID, make_record, sha_of
from tests.ci.values import QUIET, RUNNER_CLASS, make_pair, make_records, make_timed

KEY = (CASE_ID, "torch")
LONG_BLOCKS = tuple(
    block.model_copy(update={"samples_ns": 4 * block.samples_ns}) for block in make_timed().blocks
)


def compared_with_itself(rng: np.random.Generator, *, noise: float) -> PairedEstimate:
    """Blocks of one sample each, of that much noise."""
    sides = 1_000 * np.exp(noise * rng.standard_normal((2, 18, 1)))
    return compare(sides[0], sides[1])


def floor_of(comparison: PairedEstimate) -> NoiseFloor:
    return noise_floor_of(make_record(), {KEY: comparison}, None)


def floor_with(noise_floor: float) -> NoiseFloor:
    """Of the runner of `make_records`."""
    known = floor_of(compared_with_itself(np.random.default_rng(0), noise=0.01))
    return known.model_copy(
        update={"cases": (known.cases[0].model_copy(update={"noise_floor": noise_floor}),)}
    )


# --- what is measured


@pytest.mark.parametrize("block_count", DETECTABLE_AT)
def test_a_detectable_change_is_found_four_times_in_five(block_count: int) -> None:
    rng = np.random.default_rng(5)
    pairs = np.exp(0.01 * rng.standard_normal((400, 2, block_count, 1)))
    floors = [floor_of(compare(base, head)).cases[0].noise_floor for base, head in pairs]
    change = detectable_change(float(np.mean(np.square(floors)) ** 0.5), block_count)

    found = [
        compare(base, (1 + change) * head).verdict is Verdict.REGRESSED for base, head in pairs
    ]

    assert 0.72 < np.mean(found) < 0.88


# --- what follows from it


def test_a_change_must_exceed_three_times_the_floor() -> None:
    records = make_records(
        [make_timed()], [make_timed(median_ns=1.05e6, levels=QUIET[::-1])]
    )  # noise of 0.3 %

    without = judge_pull_request(*records)
    quiet = judge_pull_request(*records, noise_floor=floor_with(0.001))
    noisy = judge_pull_request(*records, noise_floor=floor_with(0.02))

    assert [judged.cases[0].verdict for judged in (without, quiet, noisy)] == [
        Verdict.REGRESSED,
        Verdict.REGRESSED,
        Verdict.UNCHANGED,
    ]
    assert noisy.cases[0].evidence.comparison is not None
    assert noisy.cases[0].evidence.comparison.threshold == pytest.approx(0.06)
    assert without.noise_floor is None
    assert quiet.noise_floor == FloorUsed(sha_of(0), floor_with(0.001).measured_at, 0, None)
    assert noisy.noise_floor is not None
    assert noisy.noise_floor.case_count == 1
    assert noisy.noise_floor.most == pytest.approx(0.06)


@pytest.mark.parametrize(
    "measured",
    [
        make_timed("another case"),
        make_timed(implementation="another"),
        make_timed(timer=Timer.CUDA_EVENT),
        make_timed(cache=CacheState.COLD),
        make_timed().model_copy(update={"blocks": LONG_BLOCKS}),
    ],
    ids=[
        "another case",
        "another implementation",
        "another timer",
        "another cache state",
        "much longer blocks",
    ],
)
def test_a_floor_applies_only_to_the_same_timing(measured: Measurement) -> None:
    known = make_timed()
    noise = noise_floor_of(
        make_record(measurements=[known]),
        {KEY: compared_with_itself(np.random.default_rng(3), noise=0.5)},
        None,
    )

    assert noise.threshold(known) > 0.5
    assert noise.threshold(measured) == 0.03


# --- the file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "not a noise floor from roofwatch calibrate: project: Field required"),
        ("not json", "not a noise floor"),
        (
            floor_with(0.1).model_copy(update={"schema_version": "2.0"}).model_dump_json(),
            "of version 2.0",
        ),
    ],
)
def test_a_file_that_is_no_noise_floor_is_refused(content: str, message: str) -> None:
    with pytest.raises(NoiseFloorError, match=message):
        NoiseFloor.parse(content)


def test_a_floor_of_another_preset_is_refused() -> None:
    gate = floor_with(0.02).model_copy(update={"preset": Preset.GATE})

    for preset in Preset:
        floor_with(0.02).require_same_sampling(preset)
    gate.require_same_sampling(Preset.GATE)
    gate.require_same_sampling(None)
    with pytest.raises(
        NoiseFloorError, match="calibrate with --preset quick, or compare with --preset gate"
    ):
        gate.require_same_sampling(Preset.QUICK)


def test_a_change_of_a_commit_against_itself_is_a_false_alarm() -> None:
    (noise,) = noise_of_runners([make_pair(1, 1), make_pair(1, 1, factor=1.5, pair_id="another")])

    assert (noise.comparison_count, noise.false_alarm_count) == (2, 1)


def test_a_stored_floor_has_the_newest_noise_of_each_timed_case() -> None:
    newest = make_pair(0, 0, noise=0.002, timing="cupti, cold", harness_version="1")
    older = make_pair(0, 0, noise=0.05, timing="cupti, cold")
    hot = make_pair(0, 0, noise=0.05, timing="cupti, hot")
    too_short = make_pair(0, 0, block_count=2, implementation="triton")

    floor = stored_floor([newest, older, hot, too_short])

    assert floor is not None
    assert [(case.implementation, case.timing, case.sample_count) for case in floor.cases] == [
        ("torch", "cupti, cold", 3),
        ("torch", "cupti, hot", 3),
    ]
    assert floor.cases[0] == noise_of_runners([newest])[0].cases[0]
    assert (floor.runner_class, floor.harness_version, floor.commit_sha) == (
        RUNNER_CLASS,
        "1",
        newest.head.sha,
    )
    assert floor.preset is None


def test_a_pair_that_is_too_short_has_no_stored_floor() -> None:
    assert stored_floor([make_pair(0, 0, block_count=2, implementation="triton")]) is None
