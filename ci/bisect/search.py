"""Which commit to measure next against the good end, and when one may be named. Pure.

Method: a search by probabilities (`roofwatch.ci.bisect.posterior`). The commit is measured next that halves what is
still
possible best, as often as it takes to leave little doubt about it; it may be come back to. One is named when what is
left for all others is below the error rate, and when it and the commit before were measured themselves. That the
probability is Bayes' makes the stop valid however often one looks: averaged over where changes are, and as far as the
model holds, the wrong one is named at most so often.

Source: Waeber, Frazier and Henderson 2013 measure each point until a sequential test is sure to a fixed degree, then
move to the posterior's median; ours moves on sooner, since doubt that is left is not lost but stays in the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.bisect.posterior import Floats, change_probabilities


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
