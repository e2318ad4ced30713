"""A commit against itself: what its noise is taken for, what follows for other comparisons, and what is refused."""

import math

import numpy as np
import pytest

from roofwatch.ci.ab.compare import Comparison, compare, detectable_change
from roofwatch.ci.ab.noise_floor import DETECTABLE_AT, FloorUsed, NoiseFloor, NoiseFloorError, noise_floor_of
from roofwatch.ci.history.history import judge_history
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.timing.method import Preset
from roofwatch.db.values import Verdict
from roofwatch.tables import verdict_line
from tests.builders import CASE_ID, make_environment, make_record, sha_of
from tests.ci.values import QUIET, make_pair, make_records, make_series, make_timed

KEY = (CASE_ID, "eager")
LONG_BLOCKS = tuple(block.model_copy(update={"samples_ns": 4 * block.samples_ns}) for block in make_timed().blocks)


def compared_with_itself(rng: np.random.Generator, *, noise: float, block_count: int = 18) -> Comparison:
    """Blocks of one sample each, of that much noise."""
    sides = 1_000 * np.exp(noise * rng.standard_normal((2, block_count, 1)))
    return compare(sides[0], sides[1])


def floor_of(comparison: Comparison) -> NoiseFloor:
    return noise_floor_of(make_record(), {KEY: comparison}, threshold=0.03)


def floor_with(noise_floor: float) -> NoiseFloor:
    """Of the runner of `make_records`."""
    known = floor_of(compared_with_itself(np.random.default_rng(0), noise=0.01))
    return known.model_copy(update={"cases": (known.cases[0].model_copy(update={"noise_floor": noise_floor}),)})


def slower(factor: float) -> tuple[RunRecord, RunRecord]:
    """A pair of records, in noise of 0.3 %, whose head takes so many times as long."""
    return make_records([make_timed()], [make_timed(median_ns=1e6 * factor, levels=QUIET[::-1])])


# --- what is measured


@pytest.mark.parametrize("block_count", [5, 8, 18, 40])
@pytest.mark.parametrize("noise", [0.002, 0.05])
def test_noise_that_is_known_is_the_floor(noise: float, block_count: int) -> None:
    rng = np.random.default_rng(1)

    floors = [
        floor_of(compared_with_itself(rng, noise=noise, block_count=block_count)).cases[0].noise_floor
        for _ in range(400)
    ]

    # the trimmed mean is a little less sure than the mean, which counts as noise
    assert np.mean(np.square(floors)) ** 0.5 == pytest.approx(noise, rel=0.12)


def test_what_both_sides_share_is_no_noise() -> None:
    drift = np.linspace(1.0, 3.0, 12)[:, None]

    comparison = compare(1_000 * drift, 1_000 * drift)

    assert floor_of(comparison).cases[0].noise_floor == pytest.approx(0.0, abs=1e-12)


def test_one_spoilt_block_hardly_moves_the_floor() -> None:
    rng = np.random.default_rng(2)
    sides = 1_000 * np.exp(0.01 * rng.standard_normal((2, 18, 1)))
    spoilt = sides.copy()
    spoilt[1, 4] *= 5

    there, here = (floor_of(compare(*blocks)).cases[0].noise_floor for blocks in (sides, spoilt))

    assert here == pytest.approx(there, rel=0.35)


@pytest.mark.parametrize("block_count", DETECTABLE_AT)
def test_a_change_that_is_said_to_be_detectable_is_found_four_times_in_five(block_count: int) -> None:
    rng = np.random.default_rng(5)
    pairs = np.exp(0.01 * rng.standard_normal((400, 2, block_count, 1)))
    floors = [floor_of(compare(base, head)).cases[0].noise_floor for base, head in pairs]
    change = detectable_change(float(np.mean(np.square(floors)) ** 0.5), block_count)

    found = [compare(base, (1 + change) * head).verdict is Verdict.REGRESSED for base, head in pairs]

    assert 0.72 < np.mean(found) < 0.88


def test_more_blocks_detect_smaller_changes() -> None:
    detectable = floor_of(compared_with_itself(np.random.default_rng(1), noise=0.02)).cases[0].detectable_change

    assert list(detectable) == list(DETECTABLE_AT)
    assert sorted(detectable.values(), reverse=True) == list(detectable.values())


def test_a_false_alarm_is_told() -> None:
    rng = np.random.default_rng(1)
    sides = 1_000 * np.exp(0.001 * rng.standard_normal((2, 8, 1)))

    case = floor_of(compare(sides[0], 1.2 * sides[1])).cases[0]

    assert case.is_false_alarm
    assert case.is_significant


def test_two_blocks_say_nothing_about_noise() -> None:
    assert floor_of(compare([[1.0], [1.0]], [[1.0], [1.1]])).cases == ()


# --- what follows from it


def test_a_change_must_exceed_three_times_the_floor() -> None:
    records = slower(1.05)

    without = judge_pull_request(*records)
    quiet = judge_pull_request(*records, noise_floor=floor_with(0.001))
    noisy = judge_pull_request(*records, noise_floor=floor_with(0.02))

    assert [judged.cases[0].verdict for judged in (without, quiet, noisy)] == [
        Verdict.REGRESSED,
        Verdict.REGRESSED,
        Verdict.UNCHANGED,
    ]
    assert noisy.cases[0].comparison is not None
    assert noisy.cases[0].comparison.threshold == pytest.approx(0.06)
    assert without.noise_floor is None
    assert quiet.noise_floor == FloorUsed(sha_of(0), floor_with(0.001).measured_at, 0, None)
    assert noisy.noise_floor is not None
    assert noisy.noise_floor.case_count == 1
    assert noisy.noise_floor.most == pytest.approx(0.06)


def test_what_a_floor_asked_is_said_where_the_threshold_is() -> None:
    records = slower(1.05)
    quiet, noisy = (judge_pull_request(*records, noise_floor=floor_with(one)) for one in (0.001, 0.02))

    origin = f"(commit `{sha_of(0)[:8]}`)"
    assert f"{origin} the noise floor of no case asks more than that of a change." in to_markdown(quiet)
    assert "within ±3%, or 3 times the runner's noise where that is more (up to ±6.0%)" in to_markdown(noisy)
    assert verdict_line(noisy).endswith(f"(commit {sha_of(0)[:8]}) asks more of a change in 1 case(s), by up to 6.0%")


@pytest.mark.parametrize(
    "measured",
    [
        make_timed("another case"),
        make_timed(implementation="another"),
        make_timed(timer=Timer.CUDA_EVENT),
        make_timed(cache=CacheState.COLD),
        make_timed().model_copy(update={"blocks": LONG_BLOCKS}),
    ],
    ids=["another case", "another implementation", "another timer", "another cache state", "much longer blocks"],
)
def test_what_a_floor_does_not_speak_of_is_held_to_the_threshold(measured: Measurement) -> None:
    known = make_timed()
    noise = noise_floor_of(
        make_record(measurements=[known]),
        {KEY: compared_with_itself(np.random.default_rng(3), noise=0.5)},
        threshold=0.03,
    )

    assert noise.threshold(known, least=0.03) > 0.5
    assert noise.threshold(measured, least=0.03) == 0.03


def test_the_floor_of_another_runner_is_refused() -> None:
    base, head = slower(1.05)
    elsewhere = floor_with(0.02).model_copy(update={"runner_class": "another machine"})

    with pytest.raises(NoiseFloorError, match="of runner class another machine, the record of"):
        judge_pull_request(base, head, noise_floor=elsewhere)


def test_a_commit_measured_against_itself_accuses_nothing_in_a_history() -> None:
    steady = make_series([10_000.0 + 20 * math.sin(7 * number) for number in range(20)])
    pair = make_pair(7, 7, factor=1.3)

    assert judge_history([steady], [pair]) == []


# --- the file


def test_what_is_written_reads_back_equal() -> None:
    floor = floor_with(0.02)

    assert NoiseFloor.parse(floor.model_dump_json()) == floor


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "no noise floor as roofwatch calibrate writes it: project: Field required"),
        ("not json", "no noise floor"),
        (floor_with(0.1).model_copy(update={"schema_version": "2.0"}).model_dump_json(), "of version 2.0"),
    ],
)
def test_what_is_no_noise_floor_is_refused(content: str, message: str) -> None:
    with pytest.raises(NoiseFloorError, match=message):
        NoiseFloor.parse(content)


def test_a_floor_holds_for_what_is_sampled_alike_and_one_of_no_known_preset_for_all() -> None:
    gate = floor_with(0.02).model_copy(update={"preset": Preset.GATE})

    for preset in Preset:
        floor_with(0.02).require_same_sampling(preset)
    gate.require_same_sampling(Preset.GATE)
    gate.require_same_sampling(None)
    with pytest.raises(NoiseFloorError, match="calibrate with --preset quick, or compare with --preset gate"):
        gate.require_same_sampling(Preset.QUICK)


def test_records_of_another_preset_than_the_floor_are_not_judged_by_it() -> None:
    base, head = slower(1.05)
    gate = floor_with(0.02).model_copy(update={"preset": "gate"})

    judged = judge_pull_request(base, head.model_copy(update={"preset": "gate"}), noise_floor=gate)
    unknown = judge_pull_request(base, head, noise_floor=gate)

    assert judged.cases[0].verdict is unknown.cases[0].verdict is Verdict.UNCHANGED
    with pytest.raises(NoiseFloorError, match=r"with --preset gate, and this is with --preset quick: blocks of other"):
        judge_pull_request(base, head.model_copy(update={"preset": "quick"}), noise_floor=gate)


def test_the_runner_of_the_builders_is_that_of_the_floor() -> None:
    assert floor_with(0.02).runner_class == make_environment().runner_class
