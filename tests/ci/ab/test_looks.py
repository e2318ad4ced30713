"""Looking again and again at a growing number of blocks: the level of each look, and how often all of them mislead."""

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import ERROR_RATE, alpha_at, compare, critical, look_number, looks_after
from roofwatch.ci.reason import Reason
from roofwatch.db.values import Verdict

LOOKS = (8, 12, 18, 27, 40, 60)

Floats = NDArray[np.float64]


def test_each_look_has_half_as_many_blocks_again_as_the_one_before() -> None:
    assert list(islice(looks_after(8), 5)) == [12, 18, 27, 40, 60]


@pytest.mark.parametrize(("block_count", "number"), [(1, 1), (3, 1), (8, 1), (9, 2), (12, 2), (13, 3), (60, 6)])
def test_the_number_of_blocks_alone_says_which_look_it_is(block_count: int, number: int) -> None:
    assert look_number(block_count) == number


@pytest.mark.parametrize("block_count", [3, 5, 8, 11, 12, 40])
def test_no_two_looks_share_a_level(block_count: int) -> None:
    nearest = next(looks_after(block_count))

    assert alpha_at(nearest) < alpha_at(block_count)


def test_all_looks_together_miss_no_oftener_than_is_promised() -> None:
    rates = [alpha_at(8), *(alpha_at(blocks) for blocks in islice(looks_after(8), 20))]

    assert 0.999 * ERROR_RATE < sum(rates) < ERROR_RATE


# --- 10,000 runs without a change, each looked at until it misleads or the blocks end


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def heavy_tails(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_t(2, shape)


def spoilt_blocks(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 10.0, 1.0)


def unequal_blocks(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))


def missed(log_ratios: Floats, error_rate: float) -> NDArray[np.bool_]:
    """Whether the interval of each run, shape [runs, blocks], leaves out no change; a slow twin is compared below."""
    count = log_ratios.shape[1]
    trimmed = count // 6
    kept = count - 2 * trimmed
    ordered = np.sort(log_ratios, axis=1)
    inner = ordered[:, trimmed : count - trimmed]
    winsorised = np.clip(ordered, inner[:, :1], inner[:, -1:])
    error = np.sqrt(winsorised.var(axis=1) * count / (kept * (kept - 1)))
    return np.asarray(np.abs(inner.mean(axis=1)) > critical(kept - 2, error_rate) * error)


@pytest.mark.parametrize("noise", [normal, heavy_tails, spoilt_blocks, unequal_blocks])
def test_10_000_runs_looked_at_six_times_are_misled_in_5_of_100_at_most(
    noise: Callable[[np.random.Generator, tuple[int, int]], Floats],
) -> None:
    runs = noise(np.random.default_rng(4), (10_000, LOOKS[-1]))

    ever = np.any([missed(runs[:, :blocks], alpha_at(blocks)) for blocks in LOOKS], axis=0)

    assert ever.mean() <= ERROR_RATE


def test_without_a_plan_the_same_looks_would_mislead_twice_as_often() -> None:
    runs = normal(np.random.default_rng(4), (10_000, LOOKS[-1]))

    ever = np.any([missed(runs[:, :blocks], ERROR_RATE) for blocks in LOOKS], axis=0)

    assert ever.mean() > 2 * ERROR_RATE


@pytest.mark.parametrize("blocks", LOOKS)
def test_the_runs_above_are_judged_as_compare_judges(blocks: int) -> None:
    runs = 0.02 * heavy_tails(np.random.default_rng(9), (200, blocks))

    judged = [compare(np.ones((blocks, 1)), np.exp(run)[:, None]) for run in runs]

    assert [one.is_significant for one in judged] == missed(runs, alpha_at(blocks)).tolist()


# --- how many more blocks


def pairs(rng: np.random.Generator, count: int, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    return np.ones((count, 1)), factor * np.exp(rng.normal(0, 0.01, size=(count, 1)))


def test_a_verdict_takes_no_more_blocks() -> None:
    judged = compare(*pairs(np.random.default_rng(1), 8, factor=1.4))

    assert judged.verdict is Verdict.REGRESSED
    assert judged.more_blocks is None


def test_too_few_blocks_take_as_many_more_as_the_first_look_has() -> None:
    judged = compare(*pairs(np.random.default_rng(1), 2))

    assert judged.reason is Reason.TOO_FEW_BLOCKS
    assert judged.more_blocks == 6


def test_the_blocks_that_are_asked_for_end_at_a_look() -> None:
    judged = compare(*pairs(np.random.default_rng(1), 8, factor=1.035))

    assert judged.reason is Reason.NOISE
    assert judged.more_blocks is not None
    assert 8 + judged.more_blocks in LOOKS


def test_what_lies_at_the_threshold_is_beyond_reach() -> None:
    noise = np.tile([0.01, -0.01], 4)[:, None]

    judged = compare(np.ones((8, 1)), 1.03 * np.exp(noise), threshold=0.03)

    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.more_blocks is None


def test_most_verdicts_come_with_the_blocks_that_were_foreseen() -> None:
    foreseen = came = 0
    for seed in range(200):
        base, head = pairs(np.random.default_rng(seed), 40, factor=1.045)
        first = compare(base[:8], head[:8])
        if first.more_blocks is not None and first.more_blocks <= 32:
            enough = 8 + first.more_blocks
            foreseen += 1
            came += compare(base[:enough], head[:enough]).verdict is Verdict.REGRESSED

    assert foreseen > 50
    # the centre of eight blocks is itself uncertain: a forecast, no promise
    assert came / foreseen > 0.5
