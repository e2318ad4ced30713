from __future__ import annotations

import re

import numpy as np
import pytest

from roofwatch.ci.ab.submission import CaseTimes, SubmissionVerdict, judge_times

US = 1_000.0


def make_blocks(
    base_us: float, candidate_us: float, *, noise: float = 0.02
) -> list[list[CaseTimes]]:
    """Blocks of one case whose calls take so long, with an exchange of 20 us around each."""
    rng = np.random.default_rng(7)
    base, candidate = (us * US * np.exp(rng.normal(0, noise, 8)) for us in (base_us, candidate_us))
    return [
        [CaseTimes(b + 20 * US, c + 20 * US, 20 * US)] for b, c in zip(base, candidate, strict=True)
    ]


def verdict_of(blocks: list[list[CaseTimes]]) -> SubmissionVerdict:
    return judge_times(blocks).verdict


@pytest.mark.parametrize(
    ("candidate_us", "expected"),
    [
        (500, SubmissionVerdict.FASTER),
        (1_000, SubmissionVerdict.NOT_FASTER),
        (2_000, SubmissionVerdict.NOT_FASTER),
    ],
)
def test_the_verdict_follows_the_times(candidate_us: float, expected: SubmissionVerdict) -> None:
    assert verdict_of(make_blocks(1_000, candidate_us)) is expected


def test_noise_leaves_it_open() -> None:
    assert verdict_of(make_blocks(1_000, 950, noise=0.2)) is SubmissionVerdict.INCONCLUSIVE


def test_an_open_verdict_says_how_many_blocks_would_decide() -> None:
    blocks = make_blocks(1_000, 800, noise=0.2)

    few = judge_times(blocks).reason
    many = judge_times(blocks * 8)

    assert re.search(r"about \d+ blocks would decide it, 8 were measured", few)
    assert many.verdict is SubmissionVerdict.FASTER


def test_a_saving_that_the_exchange_could_hide_is_unconfirmed() -> None:
    assert verdict_of(make_blocks(30, 15)) is SubmissionVerdict.UNCONFIRMED


def test_a_saved_exchange_is_not_a_faster_kernel() -> None:
    small, large = (
        CaseTimes(1_000 * US, 1_000 * US, 50 * US),
        CaseTimes(10_000 * US, 7_050 * US, 3_000 * US),
    )

    assert verdict_of([[small, large]] * 8) is SubmissionVerdict.UNCONFIRMED


def test_the_interval_is_wider_for_a_smaller_error_rate() -> None:
    blocks = make_blocks(1_000, 500)
    usual, strict = (judge_times(blocks, rate=rate).effect for rate in (0.05, 0.0005))

    assert (
        strict.interval[0]
        < usual.interval[0]
        < usual.ratio
        < usual.interval[1]
        < strict.interval[1]
    )
