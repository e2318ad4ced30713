"""The paired comparison and comparisons of timings: verdicts, properties, error rates, interim
analyses.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import (
    ERROR_RATE,
    PairedEstimate,
    alpha_at,
    compare,
    control_false_discoveries,
    looks_after,
)
from roofwatch.model.verdict import Reason, Verdict
from tests.ci.ab.timings import Order, compare_timings

FLIPPED = {Verdict.IMPROVED: Verdict.REGRESSED, Verdict.REGRESSED: Verdict.IMPROVED}

Floats = NDArray[np.float64]

times_ns = st.floats(min_value=1.0, max_value=1e12)
pairs_of_blocks_ns = st.lists(
    st.tuples(
        st.lists(times_ns, min_size=1, max_size=5), st.lists(times_ns, min_size=1, max_size=5)
    ),
    min_size=1,
    max_size=14,
)


def noisy_blocks(
    rng: np.random.Generator,
    *,
    median_ns: float = 1_000.0,
    block_count: int = 8,
    noise: float = 0.01,
    tail: float = 0.0,
) -> list[Floats]:
    """Blocks of twenty samples; with probability `tail` a whole block is up to 60 % slow."""
    blocks = []
    for _ in range(block_count):
        offset = rng.normal(0, noise) + (rng.uniform(0, 0.5) if rng.random() < tail else 0.0)
        blocks.append(median_ns * np.exp(offset + rng.normal(0, noise, size=20)))
    return blocks


# --- verdicts


def test_drift_that_both_sides_share_cancels() -> None:
    drift = np.linspace(1.0, 2.0, 8)
    base = [[1_000.0 * factor, 1_002.0 * factor] for factor in drift]
    head = [[1_100.0 * factor, 1_103.0 * factor] for factor in drift]

    judged = compare(base, head)

    assert judged.verdict is Verdict.REGRESSED
    assert judged.relative_change == pytest.approx(0.10, abs=0.005)


def test_from_eight_blocks_up_one_outlier_block_changes_no_verdict() -> None:
    rng = np.random.default_rng(11)
    base = noisy_blocks(rng, noise=0.003)
    same, slower = noisy_blocks(rng, noise=0.003), noisy_blocks(rng, median_ns=1_100.0, noise=0.003)
    for head in (same, slower):
        head[4] = head[4] * 3.0

    assert compare(base, same).verdict is Verdict.UNCHANGED
    assert compare(base, slower).verdict is Verdict.REGRESSED


# --- properties


@given(pairs=pairs_of_blocks_ns)
def test_swapping_the_blocks_of_the_sides_flips_the_verdict(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    base, head = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    assert_mirrored(compare(base, head), compare(head, base))


def assert_mirrored(there: PairedEstimate, back: PairedEstimate) -> None:
    assert back.verdict is FLIPPED.get(there.verdict, there.verdict)
    assert back.reason is there.reason
    assert back.log_ratio == -there.log_ratio
    assert back.log_interval == (-there.log_interval[1], -there.log_interval[0])
    assert back.p_value == there.p_value
    assert back.is_significant is there.is_significant


@given(pairs=pairs_of_blocks_ns)
def test_the_verdict_follows_from_the_interval(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    judged = compare([pair[0] for pair in pairs], [pair[1] for pair in pairs], threshold=0.03)
    low, high = judged.log_interval
    edge = math.log1p(0.03)

    assert (judged.verdict is Verdict.REGRESSED) == (low > edge)
    assert (judged.verdict is Verdict.IMPROVED) == (high < -edge)
    assert (judged.verdict is Verdict.UNCHANGED) == (-edge < low and high < edge)
    assert low <= judged.log_ratio <= high


# --- calibration: the numbers of docs/explanation/verdicts.md


def block_noise(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Floats:
    """Log ratios of blocks when nothing changed, of scale about 1."""
    normal = rng.standard_normal(shape)
    kinds: dict[str, Floats] = {
        "normal": normal,
        "heavy tails": rng.standard_t(2, shape),
        "outlier blocks": normal * np.where(rng.random(shape) < 0.1, 10, 1),
        "unequal blocks": normal * np.exp(rng.standard_normal(shape)),
        "two clocks": 0.1 * normal + rng.choice([-1, 0, 1], shape, p=[0.15, 0.7, 0.15]),
    }
    return kinds[kind]


@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", "outlier blocks", "unequal blocks", "two clocks"]
)
@pytest.mark.parametrize("block_count", [3, 5, 12])
def test_the_interval_holds_the_truth_in_95_of_100_families_of_noise(
    kind: str, block_count: int
) -> None:
    rng = np.random.default_rng(2026)
    trials = 1_200
    covered = 0
    for log_ratios in block_noise(rng, kind, (trials, block_count)) * 0.02:
        judged = compare(np.full((block_count, 1), 1_000.0), 1_000.0 * np.exp(log_ratios)[:, None])
        covered += judged.log_interval[0] <= 0 <= judged.log_interval[1]

    # 95 % less three standard errors of the simulation
    assert covered / trials >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("tail", [0.0, 0.15])
def test_fewer_than_one_in_a_thousand_equal_pairs_is_accused(tail: float) -> None:
    accused = 0
    for seed in range(2_000):
        rng = np.random.default_rng(seed)
        judged = compare(noisy_blocks(rng, tail=tail), noisy_blocks(rng, tail=tail))
        accused += judged.verdict in FLIPPED

    assert accused <= 1  # budget: 1 per 1,000 at noise of 1 % and the default threshold


@pytest.mark.parametrize(
    ("noise", "block_count", "factor", "expected_share"),
    [(0.01, 8, 1.10, 0.99), (0.02, 8, 1.10, 0.92), (0.01, 18, 1.05, 0.90), (0.05, 5, 1.40, 0.93)],
)
def test_a_slowdown_beyond_noise_is_called(
    noise: float, block_count: int, factor: float, expected_share: float
) -> None:
    called = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        base = noisy_blocks(rng, noise=noise, block_count=block_count)
        head = noisy_blocks(rng, median_ns=1_000 * factor, noise=noise, block_count=block_count)
        called += compare(base, head).verdict is Verdict.REGRESSED

    assert called / 200 >= expected_share


# --- families


def test_the_published_example_of_false_discovery_control_is_reproduced() -> None:
    # the fifteen p-values of section 3.2 of the paper, of which four are rejected at 0.05
    p_values = (
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459,
        0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0,
    )  # fmt: skip

    slower = compare([[1.0]] * 5, [[1.1]] * 5)
    judged = control_false_discoveries(
        [replace(slower, p_value=p_value) for p_value in p_values], 0.05
    )

    assert [one.verdict for one in judged].count(Verdict.REGRESSED) == 4


LOOKS = (8, 12, 18, 27, 40, 60)


def test_all_interim_analyses_together_keep_the_error_rate() -> None:
    rates = [alpha_at(8), *(alpha_at(blocks) for blocks in islice(looks_after(8), 20))]

    assert 0.999 * ERROR_RATE < sum(rates) < ERROR_RATE


def test_the_blocks_still_needed_end_at_an_interim_analysis() -> None:
    judged = compare(
        np.ones((8, 1)), 1.035 * np.exp(np.random.default_rng(1).normal(0, 0.01, size=(8, 1)))
    )

    assert judged.reason is Reason.NOISE
    assert judged.more_blocks is not None
    assert 8 + judged.more_blocks in LOOKS


def taken_in_turn(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    """Timings of noise that runs through both sides, shape [2 * timings]."""
    times = 1_000.0 * np.exp(log_noise)
    return times[0::2], factor * times[1::2]


def one_after_the_other(log_noise: Floats, *, factor: float = 1.0) -> tuple[Floats, Floats]:
    times = 1_000.0 * np.exp(log_noise)
    half = len(times) // 2
    return times[:half], factor * times[half:]


NOISE = np.random.default_rng(6).normal(0, 0.01, 100)


@pytest.mark.parametrize(
    ("timings", "order", "verdict"),
    [
        (taken_in_turn(NOISE, factor=1.02), Order.INTERLEAVED, Verdict.REGRESSED),
        (
            taken_in_turn(np.linspace(0, 0.5, 100) + 0.2 * NOISE),
            Order.INTERLEAVED,
            Verdict.UNCHANGED,
        ),
        (one_after_the_other(NOISE, factor=1.05), Order.BLOCKED, Verdict.REGRESSED),
        (
            one_after_the_other(np.linspace(0, 0.1, 100) + NOISE),
            Order.BLOCKED,
            Verdict.INCONCLUSIVE,
        ),
    ],
    ids=["two percent", "drift cancels", "a change between steady sides", "drift may be the cause"],
)
def test_drift_is_no_change(timings: tuple[Floats, Floats], order: Order, verdict: Verdict) -> None:
    judged = compare_timings(*timings, order=order, threshold=0.01)

    assert judged.verdict is verdict
    assert (judged.reason is Reason.NOT_PAIRED) == (verdict is Verdict.INCONCLUSIVE)
