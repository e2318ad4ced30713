"""The verdict on a candidate kernel from its times against an implementation of the spec. Pure.

Times are taken from outside the candidate's process, so a call includes an exchange with it:
messages and a copy of the outputs. What a hostile process could save in it counts as nothing: a
saving must exceed it to be confirmed.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.ab.compare import ERROR_RATE, alpha_at, compare

MAX_CONFIRMATIONS = 100
"""Submissions of one target that may reach the confirmation; they share the error rate equally
(Bonferroni).
"""
CONFIRMATION_ERROR_RATE = ERROR_RATE / MAX_CONFIRMATIONS
THRESHOLD = 0.03
"""Smallest speedup worth reporting, as a fraction of the time."""

_UNDECIDABLE = 10
"""Width of an interval by its distance from the threshold; 100 times the blocks would decide it."""
_SHORTEST_SHARE = 0.1
"""A call without its exchange counts as at least this share of the exchange."""


class SubmissionVerdict(StrEnum):
    FASTER = "faster"
    """Right, and confirmed to be faster."""
    NOT_FASTER = "not_faster"
    """Right, and not faster by the threshold."""
    INCONCLUSIVE = "inconclusive"
    """Right; noise or the budget left it open whether it is faster."""
    INCORRECT = "incorrect"
    """A result was wrong or missing."""
    INVALID = "invalid"
    """It tried to deceive the judge, or changes more than itself."""
    UNCONFIRMED = "unconfirmed"
    """Right, and faster in a way that cannot be confirmed here."""
    ERROR = "error"
    """It could not be judged."""

    @property
    def exit_status(self) -> int:
        """0 for faster, 1 if the candidate is rejected, 2 if nothing was decided."""
        if self is SubmissionVerdict.FASTER:
            return 0
        if self in _REJECTED:
            return 1
        return 2


_REJECTED = {SubmissionVerdict.NOT_FASTER, SubmissionVerdict.INCORRECT, SubmissionVerdict.INVALID}


@dataclass(frozen=True)
class CaseTimes:
    """Times of neighbouring calls of both sides on the same inputs of one case, in ns."""

    base_ns: float
    """Median time of the existing implementation."""
    candidate_ns: float
    """Median time of the candidate."""
    exchange_ns: float
    """Of an exchange without a call."""


@dataclass(frozen=True)
class Effect:
    """How much faster the candidate is."""

    ratio: float
    """Time of the base / time of the candidate; above 1 is faster."""
    interval: tuple[float, float]
    base_ns: float
    candidate_ns: float
    exchange_ns: float
    """Time of an exchange without a call, which is subtracted from both; geometric mean over cases.
    """
    block_count: int
    error_rate: float
    """How often the interval may miss the truth."""


@dataclass(frozen=True)
class TimeVerdict:
    verdict: SubmissionVerdict
    reason: str
    effect: Effect


def judge_times(blocks: Sequence[Sequence[CaseTimes]], *, rate: float = ERROR_RATE) -> TimeVerdict:
    """Judge the times of right results.

    Args:
        blocks: 3 or more, each of the same cases; a block counts with the geometric mean over its
            cases.
        rate: Error rate of all interim analyses together.
    """
    level = alpha_at(len(blocks)) * rate / ERROR_RATE
    # by case; the exchange does the same in every block
    exchanges_ns = [_median_exchange(case) for case in zip(*blocks, strict=True)]
    base_ns = [[_base_without(block, exchanges_ns)] for block in blocks]
    candidate_ns = [[_candidate_without(block, exchanges_ns)] for block in blocks]
    comparison = compare(
        base_ns,
        candidate_ns,
        threshold=THRESHOLD,
        error_rate=level,
    )
    low, high = comparison.log_interval
    exchange_ns = statistics.geometric_mean(exchanges_ns)
    effect = Effect(
        ratio=comparison.speedup,
        interval=(math.exp(-high), math.exp(-low)),
        base_ns=comparison.base_ns,
        candidate_ns=comparison.head_ns,
        exchange_ns=exchange_ns,
        block_count=len(blocks),
        error_rate=level,
    )
    edge = math.log1p(THRESHOLD)
    if low > -edge:
        reason = f"not faster by more than {THRESHOLD:.0%}"
        return TimeVerdict(
            verdict=SubmissionVerdict.NOT_FASTER,
            reason=reason,
            effect=effect,
        )
    if high >= -edge:
        reason = f"noise: the interval includes the threshold; {_what_decides(low, high, blocks)}"
        return TimeVerdict(
            verdict=SubmissionVerdict.INCONCLUSIVE,
            reason=reason,
            effect=effect,
        )
    # even with its exchange, the candidate must beat the base without one
    whole_ns = [[_mean_of_candidate(block)] for block in blocks]
    if compare(base_ns, whole_ns, error_rate=level).log_interval[1] >= 0:
        reason = (
            f"saves less than an exchange with its process takes ({exchange_ns / 1e3:.0f} us); "
            "use larger cases"
        )
        return TimeVerdict(
            verdict=SubmissionVerdict.UNCONFIRMED,
            reason=reason,
            effect=effect,
        )
    reason = f"{comparison.speedup:.3g} times as fast"
    return TimeVerdict(
        verdict=SubmissionVerdict.FASTER,
        reason=reason,
        effect=effect,
    )


def _what_decides(
    low: float,
    high: float,
    blocks: Sequence[object],
) -> str:
    """Say how many blocks would decide: an interval narrows by the square root of their number."""
    half_width = (high - low) / 2
    centre = (low + high) / 2
    distance = abs(centre + math.log1p(THRESHOLD))
    if half_width > _UNDECIDABLE * distance:
        return f"the speedup is too close to {THRESHOLD:.0%} to be decided by more time"
    # an interval narrows with the square root of the blocks
    times_as_many = (half_width / distance) ** 2
    needed = math.ceil(len(blocks) * times_as_many)
    return f"about {needed} blocks would decide it, {len(blocks)} were measured"


def _median_exchange(case: Sequence[CaseTimes]) -> float:
    return statistics.median(times.exchange_ns for times in case)


def _mean_of_candidate(block: Sequence[CaseTimes]) -> float:
    return statistics.geometric_mean(times.candidate_ns for times in block)


def _base_without(block: Sequence[CaseTimes], exchanges_ns: Sequence[float]) -> float:
    return _mean_without([times.base_ns for times in block], exchanges_ns)


def _candidate_without(block: Sequence[CaseTimes], exchanges_ns: Sequence[float]) -> float:
    return _mean_without([times.candidate_ns for times in block], exchanges_ns)


def _mean_without(elapsed_ns: Sequence[float], exchanges_ns: Sequence[float]) -> float:
    """Geometric mean over cases of the times without their exchanges."""
    pairs = zip(elapsed_ns, exchanges_ns, strict=True)
    return statistics.geometric_mean(
        max(elapsed - exchange, _SHORTEST_SHARE * exchange, 1.0) for elapsed, exchange in pairs
    )
