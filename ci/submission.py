"""The verdict on a candidate kernel from its times against an implementation of the spec. Pure.

Times are taken from outside the candidate's process, so a call includes an exchange of messages with it. What a hostile
process could save in that exchange counts as nothing: a saving must exceed it to be confirmed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from roofwatch.ci.ab.compare import ERROR_RATE, alpha_at, compare, critical

MAX_CONFIRMATIONS = 100
"""Submissions of one target that may reach the confirmation; they share the error rate equally (Bonferroni)."""
CONFIRMATION_ERROR_RATE = ERROR_RATE / MAX_CONFIRMATIONS
THRESHOLD = 0.03
"""Smallest speedup worth reporting, as a fraction of the time."""

_CLAIM_ERROR_RATE = 1e-4
_CLAIM_TOLERANCE = 0.05
"""Two clocks may disagree by this share of a call, besides the exchange."""
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
        return 1 if self in _REJECTED else 2


_REJECTED = {SubmissionVerdict.NOT_FASTER, SubmissionVerdict.INCORRECT, SubmissionVerdict.INVALID}


@dataclass(frozen=True)
class Block:
    """Times of neighbouring calls of both sides on the same inputs, in ns; means of the logarithm over cases."""

    base_ns: float
    candidate_ns: float
    base_claimed_ns: float
    candidate_claimed_ns: float


@dataclass(frozen=True)
class Effect:
    """How much faster the candidate is."""

    ratio: float
    """Time of the base / time of the candidate; above 1 is faster."""
    interval: tuple[float, float]
    base_ns: float
    candidate_ns: float
    exchange_ns: float
    """Time of an exchange without a call, which is subtracted from both."""
    block_count: int
    error_rate: float
    """How often the interval may miss the truth."""


@dataclass(frozen=True)
class TimeVerdict:
    verdict: SubmissionVerdict
    reason: str
    effect: Effect


def judge_times(blocks: Sequence[Block], exchange_ns: float, *, rate: float = ERROR_RATE) -> TimeVerdict:
    """Judge the times of right results.

    Args:
        blocks: 3 or more.
        exchange_ns: Time of an exchange without a call.
        rate: Error rate of all interim analyses together.
    """
    level = alpha_at(len(blocks)) * rate / ERROR_RATE
    base = [[_without(block.base_ns, exchange_ns)] for block in blocks]
    candidate = [[_without(block.candidate_ns, exchange_ns)] for block in blocks]
    found = compare(base, candidate, threshold=THRESHOLD, error_rate=level)
    low, high = found.log_interval
    effect = Effect(
        ratio=found.speedup,
        interval=(math.exp(-high), math.exp(-low)),
        base_ns=found.base_ns,
        candidate_ns=found.head_ns,
        exchange_ns=exchange_ns,
        block_count=len(blocks),
        error_rate=level,
    )
    edge = math.log1p(THRESHOLD)
    lie = _contradiction(blocks, exchange_ns)
    if lie is not None:
        return TimeVerdict(SubmissionVerdict.INVALID, lie, effect)
    if high < -edge:
        careful = compare(base, [[block.candidate_ns] for block in blocks], error_rate=level)
        if careful.log_interval[1] < 0:
            return TimeVerdict(SubmissionVerdict.FASTER, f"{found.speedup:.3g} times as fast", effect)
        reason = f"saves less than an exchange with its process takes ({exchange_ns / 1e3:.0f} us); use larger cases"
        return TimeVerdict(SubmissionVerdict.UNCONFIRMED, reason, effect)
    if low > -edge:
        return TimeVerdict(SubmissionVerdict.NOT_FASTER, f"not faster by more than {THRESHOLD:.0%}", effect)
    return TimeVerdict(SubmissionVerdict.INCONCLUSIVE, "noise: the interval includes the threshold", effect)


def _without(elapsed_ns: float, exchange_ns: float) -> float:
    return max(elapsed_ns - exchange_ns, _SHORTEST_SHARE * exchange_ns, 1.0)


def _contradiction(blocks: Sequence[Block], exchange_ns: float) -> str | None:
    """Whether the candidate's own clock shows a larger saving than the judge's, beyond the noise."""
    seen = np.array([block.base_ns - block.candidate_ns for block in blocks])
    claimed = np.array([block.base_claimed_ns - block.candidate_claimed_ns for block in blocks])
    excess = claimed - seen
    error = float(np.std(excess, ddof=1)) / math.sqrt(len(blocks))
    low = float(np.mean(excess)) - critical(len(blocks) - 1, _CLAIM_ERROR_RATE) * error
    allowed = exchange_ns + _CLAIM_TOLERANCE * float(np.median([block.base_ns for block in blocks]))
    if low <= allowed:
        return None
    return (
        f"its own clock shows {float(np.median(claimed)) / 1e3:.0f} us saved per call, "
        f"the judge's {float(np.median(seen)) / 1e3:.0f} us"
    )
