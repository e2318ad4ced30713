from __future__ import annotations

import numpy as np
import pytest

from roofwatch.ci.submission import Block, SubmissionVerdict, judge_times

US = 1_000.0


def make_blocks(
    base_us: float, candidate_us: float, *, claimed_us: float | None = None, noise: float = 0.02
) -> list[Block]:
    """Blocks whose calls take so long, with an exchange of 20 us around each."""
    rng = np.random.default_rng(7)
    base, candidate = (us * US * np.exp(rng.normal(0, noise, 8)) for us in (base_us, candidate_us))
    claimed = candidate if claimed_us is None else np.full(8, claimed_us * US)
    return [
        Block(base_ns=b + 20 * US, candidate_ns=c + 20 * US, base_claimed_ns=b, candidate_claimed_ns=own)
        for b, c, own in zip(base, candidate, claimed, strict=True)
    ]


def verdict_of(blocks: list[Block]) -> SubmissionVerdict:
    return judge_times(blocks, 20 * US).verdict


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


def test_a_saving_that_the_exchange_could_hide_is_unconfirmed() -> None:
    assert verdict_of(make_blocks(30, 15)) is SubmissionVerdict.UNCONFIRMED


def test_a_clock_that_shows_more_than_the_judges_is_invalid() -> None:
    assert verdict_of(make_blocks(1_000, 1_000, claimed_us=10)) is SubmissionVerdict.INVALID


def test_the_interval_is_wider_for_a_smaller_error_rate() -> None:
    blocks = make_blocks(1_000, 500)
    usual, strict = (judge_times(blocks, 20 * US, rate=rate).effect for rate in (0.05, 0.0005))

    assert strict.interval[0] < usual.interval[0] < usual.ratio < usual.interval[1] < strict.interval[1]
