"""Search for the commit of a change: prior weights, probabilities from measurements, and what to measure next. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAME_SOURCES = "nothing that it is made from changed"
SAME_CODE = "its machine code is the same"
SAME_CODE_WEIGHT = 0.01
"""Of a commit with other sources and the same machine code, beside 1 of one with other machine code."""


@dataclass(frozen=True)
class MadeFrom:
    """What a series is made from at a commit."""

    sources: str | None = None
    """Digest of all that it may use; None where it cannot be told."""
    machine_code: str | None = None
    """Digest of what is compiled of it; None where nothing is, or it was not."""
    trouble: str = ""
    """Why the commit cannot be measured; empty where nothing speaks against it."""


@dataclass(frozen=True)
class Weight:
    weight: float
    reason: str = ""
    """Why it is below 1."""


def weigh(made: Sequence[MadeFrom]) -> list[Weight]:
    """The weight of each commit.

    Args:
        made: Of the good end, then of each commit up to the bad end.

    Returns:
        One for each commit but the good end; all 1 where by their sources none could matter.
    """
    weights: list[Weight] = []
    last, broken = made[0], 0
    for one in made[1:]:
        if one.trouble:
            broken += 1
            continue
        weights += [_beside(last, one)] * (broken + 1)
        last, broken = one, 0
    weights += [Weight(1.0)] * broken
    return weights if any(each.weight for each in weights) else [Weight(1.0)] * len(weights)


def _beside(before: MadeFrom, now: MadeFrom) -> Weight:
    if now.sources is not None and now.sources == before.sources:
        return Weight(0.0, SAME_SOURCES)
    if now.machine_code is not None and now.machine_code == before.machine_code:
        return Weight(SAME_CODE_WEIGHT, SAME_CODE)
    return Weight(1.0)


_STEP_ERRORS = np.linspace(-5.0, 5.0, 21)
"""Steps of the grid, in standard errors around what the bad end shows."""
_SCALE_FACTORS = 2.0 ** np.linspace(-2.0, 2.0, 13)
_DEGREES = np.array([3.0, 8.0, 60.0])
"""From noise with spikes to normal."""
_OF_A_NORMAL = 1.4826
"""Standard deviation over the median absolute deviation."""
_SMALLEST_SCALE = 1e-7
"""Times that are all equal were rounded: nobody is sure to more than this."""

Floats = NDArray[np.float64]


def change_probabilities(weights: Sequence[float], log_ratios: Sequence[Sequence[float]]) -> Floats:
    """The probability of each commit that the change came with it.

    Args:
        weights: Of each commit from the one after the good end to the bad end, how likely that was before anything was
            measured; not all 0.
        log_ratios: Of each commit, ln(commit / good) of its pairs; some of the bad end's, two or more in all.

    Returns:
        Shape [commits]; their sum is 1.
    """
    scale = _scale(log_ratios)
    bad_end = np.asarray(log_ratios[-1])
    steps = np.median(bad_end) + _STEP_ERRORS * scale / math.sqrt(len(bad_end))  # [steps]
    scales, degrees = (grid.ravel() for grid in np.meshgrid(_SCALE_FACTORS * scale, _DEGREES))  # [noises]
    # [commits, noises] and [commits, steps, noises]: how likely a commit's pairs are before and after the change
    before = np.stack([_log_likelihood(pairs, np.zeros(1), scales, degrees)[0] for pairs in log_ratios])
    after = np.stack([_log_likelihood(pairs, steps, scales, degrees) for pairs in log_ratios])
    all_before = np.concatenate([np.zeros_like(before[:1]), np.cumsum(before, axis=0)[:-1]])
    all_after = np.cumsum(after[::-1], axis=0)[::-1]
    together = all_before[:, None, :] + all_after
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(weights, dtype=np.float64))
    likelihoods = np.exp(together - together.max()).sum(axis=(1, 2))
    with np.errstate(divide="ignore"):
        logs = np.log(likelihoods) + log_weights
    shares = np.exp(logs - logs.max())
    probabilities: Floats = shares / shares.sum()
    return probabilities


def _log_likelihood(pairs: Sequence[float], centres: Floats, scales: Floats, degrees: Floats) -> Floats:
    """Of some pairs under each centre and each noise, [centres, noises]; a constant aside."""
    if not pairs:
        return np.zeros((len(centres), len(scales)))
    apart = (np.asarray(pairs, dtype=np.float64)[:, None, None] - centres[:, None]) / scales
    kernel = -(degrees + 1) / 2 * np.log1p(apart**2 / degrees) - np.log(scales) + _log_norms(degrees)
    total: Floats = kernel.sum(axis=0)
    return total


def _log_norms(degrees: Floats) -> Floats:
    return np.array(
        [math.lgamma((each + 1) / 2) - math.lgamma(each / 2) - math.log(each * math.pi) / 2 for each in degrees]
    )


def _scale(log_ratios: Sequence[Sequence[float]]) -> float:
    """Robust standard deviation of a pair, around the centre of its own commit."""
    many = [np.asarray(pairs) for pairs in log_ratios if len(pairs) > 1]
    apart = np.concatenate([pairs - np.median(pairs) for pairs in many])
    # each centre that was taken from the pairs takes a degree of freedom
    freedom = math.sqrt(len(apart) / (len(apart) - len(many)))
    return max(float(np.median(np.abs(apart))) * _OF_A_NORMAL * freedom, _SMALLEST_SCALE)


@dataclass(frozen=True)
class SearchPlan:
    """When to stop.

    Args:
        error_rate: How often the wrong commit may be named.
        doubt: Of one commit, whether the change is there or before: below this it is left for another.
        first_pairs: Taken of a commit before it is looked at.
        max_pairs: Of one commit; what is not clear by then is not one step.
    """

    error_rate: float = 0.02
    doubt: float = 0.2
    first_pairs: int = 2
    max_pairs: int = 60


@dataclass(frozen=True)
class Evidence:
    """What is known of the commits from the one after the good end to the bad end; all of one length.

    Args:
        weights: How likely each is before anything is measured; 0 for what cannot matter.
        log_ratios: ln(commit / good) of each one's pairs.
        unmeasurable: Whether it is known that it cannot be measured.
    """

    weights: tuple[float, ...]
    log_ratios: tuple[tuple[float, ...], ...]
    unmeasurable: tuple[bool, ...]

    @property
    def commit_count(self) -> int:
        return len(self.weights)

    def probabilities(self) -> Floats:
        """That the change came with each, [commits]."""
        return change_probabilities(self.weights, self.log_ratios)


@dataclass(frozen=True)
class Measure:
    """Take so many more pairs of a commit."""

    position: int
    pair_count: int


@dataclass(frozen=True)
class Named:
    """The change came with one of these."""

    first: int
    last: int
    confidence: float


@dataclass(frozen=True)
class Stuck:
    """More pairs of these commits do not make it clear, so there is more to it than one step."""

    named: Named


Move = Measure | Named | Stuck


def next_move(evidence: Evidence, plan: SearchPlan, *, at: int | None = None) -> Move:
    """What to do now.

    Args:
        evidence: All that is known; of the bad end two pairs or more.
        plan: When to stop.
        at: The commit that is being measured, which is stayed at while it is in doubt.
    """
    probabilities = evidence.probabilities()
    if at is not None and not evidence.unmeasurable[at]:
        missing = plan.first_pairs - len(evidence.log_ratios[at])
        if missing > 0:
            return Measure(at, missing)
        if _is_in_doubt(probabilities[: at + 1].sum(), plan) and len(evidence.log_ratios[at]) < plan.max_pairs:
            return Measure(at, 1)
    named = _likeliest(evidence, probabilities)
    if named.confidence >= 1 - plan.error_rate:
        unseen = [_unseen(evidence, edge, plan) for edge in (named.first - 1, named.last)]
        to_see = next((position for position in unseen if position is not None), None)
        return named if to_see is None else Measure(to_see, plan.first_pairs)
    best = _halving(evidence, probabilities, plan)
    if best is None:
        return Stuck(named)
    return Measure(best, max(1, plan.first_pairs - len(evidence.log_ratios[best])))


def cells(evidence: Evidence) -> list[tuple[int, int]]:
    """First and last of the commits between which nothing can be measured: which of them it was cannot be told."""
    ends = [position for position in range(evidence.commit_count) if not evidence.unmeasurable[position]]
    firsts = [0, *(end + 1 for end in ends[:-1])]
    return list(zip(firsts, ends, strict=True))


def _likeliest(evidence: Evidence, probabilities: Floats) -> Named:
    """The likeliest commits that can be told from the others, without those at their edges that cannot matter."""
    shares = [(float(probabilities[first : last + 1].sum()), first, last) for first, last in cells(evidence)]
    share, first, last = max(shares)
    possible = [position for position in range(first, last + 1) if evidence.weights[position] > 0]
    return Named(possible[0], possible[-1], share)


def _is_in_doubt(probability: float, plan: SearchPlan) -> bool:
    return plan.doubt < probability < 1 - plan.doubt


def _unseen(evidence: Evidence, position: int, plan: SearchPlan) -> int | None:
    """What to measure where neither a commit nor what is surely the same was measured yet; None where one was, or none
    can be.
    """
    alike = _surely_same(evidence.weights, position)
    measurable = [each for each in alike if each >= 0 and not evidence.unmeasurable[each]]
    if -1 in alike or any(len(evidence.log_ratios[each]) >= plan.first_pairs for each in measurable):
        return None
    return min(measurable, key=lambda each: abs(each - position), default=None)


def _surely_same(weights: Sequence[float], position: int) -> range:
    """The commits around one, itself included, between which nothing lies that may matter; -1 is the good end."""
    first, last = position, position
    while first >= 0 and weights[first] == 0:
        first -= 1
    while last + 1 < len(weights) and weights[last + 1] == 0:
        last += 1
    return range(first, last + 1)


def _halving(evidence: Evidence, probabilities: Floats, plan: SearchPlan) -> int | None:
    """The commit that splits what is possible best, and may be measured more."""
    until = np.cumsum(probabilities)
    free = [
        position
        for position in range(evidence.commit_count)
        if not evidence.unmeasurable[position] and len(evidence.log_ratios[position]) < plan.max_pairs
    ]
    # what is past the last that is possible splits nothing
    splitting = [position for position in free if 0 < until[position] < 1 - 1e-12]
    return min(splitting, key=lambda position: (abs(until[position] - 0.5), position), default=None)
