"""Probabilistic bisection: prior weights, probabilities from measurements, and what to measure
next. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, looks_after
from roofwatch.ci.bisect.pairs import PairResult, compare_pairs
from roofwatch.model.history import CommitRef
from roofwatch.model.triage import (
    BisectionCommit,
    BisectionProgress,
    BisectionState,
    BisectionStep,
    CommitStatus,
)
from roofwatch.model.verdict import Verdict

SAME_SOURCES = "no source of the kernel changed"
SAME_CODE = "the machine code is identical"
SAME_CODE_WEIGHT = 0.01
"""Prior weight of a commit with changed sources and identical machine code; 1 if the machine code
changed.
"""

_STEP_ERRORS = np.linspace(-5.0, 5.0, 21)
"""Grid of step sizes, in standard errors around the median of the bad end."""
_SCALE_FACTORS = 2.0 ** np.linspace(-2.0, 2.0, 13)
_DEGREES = np.array([3.0, 8.0, 60.0])
"""Degrees of freedom of Student's t: from noise with outliers to normal noise."""
_MAD_TO_DEVIATION = 1.4826
_DOUBT = 0.2
"""A commit is measured further while the probability that it has the change is between this and 1 −
this.
"""
_FIRST_PAIRS = 2
"""Pairs of a commit before its probability is used."""
_MIN_SCALE = 1e-7
"""Noise of identical, rounded times."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BuildInputs:
    """What a series is built from at one commit."""

    sources: str | None = None
    """Digest of everything the kernel may use; None if unknown."""
    machine_code: str | None = None
    """Digest of the compiled code; None if nothing was compiled."""
    error: str = ""
    """Why the suite cannot be loaded."""


@dataclass(frozen=True)
class Weight:
    value: float
    reason: str = ""
    """Why it is below 1."""


def compare_inputs(before: BuildInputs, now: BuildInputs) -> Weight:
    """Weight the chance that performance changed between two commits."""
    if now.sources is not None and now.sources == before.sources:
        return Weight(0.0, SAME_SOURCES)
    if now.machine_code is not None and now.machine_code == before.machine_code:
        return Weight(SAME_CODE_WEIGHT, SAME_CODE)
    return Weight(1.0)


def prior_weights(inputs: Sequence[BuildInputs]) -> list[Weight]:
    """Weight each commit after the good end, given the inputs of the good end and of each commit.

    A commit that cannot be loaded gets the weight of the next one that can. If no sources changed
    at all, all weights are 1.
    """
    weights: list[Weight] = []
    last, failed_count = inputs[0], 0
    for one in inputs[1:]:
        if one.error:
            failed_count += 1
            continue
        weights += [compare_inputs(last, one)] * (failed_count + 1)
        last, failed_count = one, 0
    weights += [Weight(1.0)] * failed_count
    return weights if any(one.value for one in weights) else [Weight(1.0)] * len(weights)


def change_probabilities(weights: Sequence[float], log_ratios: Sequence[Sequence[float]]) -> Floats:
    """Compute the probability of each commit that the change came with it.

    The noise is Student's t; its scale and degrees of freedom and the size of the step are
    integrated over a grid.

    Args:
        weights: Prior weight of each commit from the one after the good end to the bad end; not all
            0.
        log_ratios: ln(commit / good) of each commit's pairs; at least two of the bad end.

    Returns:
        Shape [commits]; the sum is 1.
    """
    scale = _scale(log_ratios)
    bad_end = np.asarray(log_ratios[-1])
    steps = np.median(bad_end) + _STEP_ERRORS * scale / math.sqrt(len(bad_end))  # [steps]
    scales, degrees = (
        grid.ravel() for grid in np.meshgrid(_SCALE_FACTORS * scale, _DEGREES)
    )  # shape [noises]
    # the log-likelihood of a commit's pairs before the change has shape [commits, noises], and
    # after it [commits, steps, noises]
    before = np.stack(
        [_log_likelihood(pairs, np.zeros(1), scales, degrees)[0] for pairs in log_ratios]
    )
    after = np.stack([_log_likelihood(pairs, steps, scales, degrees) for pairs in log_ratios])
    all_before = np.concatenate([np.zeros_like(before[:1]), np.cumsum(before, axis=0)[:-1]])
    all_after = np.cumsum(after[::-1], axis=0)[::-1]
    together = all_before[:, None, :] + all_after
    with np.errstate(divide="ignore"):
        logs = np.log(np.exp(together - together.max()).sum(axis=(1, 2))) + np.log(
            np.asarray(weights, dtype=float)
        )
    shares = np.exp(logs - logs.max())
    probabilities: Floats = shares / shares.sum()
    return probabilities


def _log_likelihood(
    pairs: Sequence[float], centres: Floats, scales: Floats, degrees: Floats
) -> Floats:
    """Log-likelihood of pairs for each centre and noise, [centres, noises], up to a constant."""
    if not pairs:
        return np.zeros((len(centres), len(scales)))
    distance = (np.asarray(pairs, dtype=float)[:, None, None] - centres[:, None]) / scales
    norm = [
        math.lgamma((n + 1) / 2) - math.lgamma(n / 2) - math.log(n * math.pi) / 2 for n in degrees
    ]
    total: Floats = (
        np.array(norm) - np.log(scales) - (degrees + 1) / 2 * np.log1p(distance**2 / degrees)
    ).sum(axis=0)
    return total


def _scale(log_ratios: Sequence[Sequence[float]]) -> float:
    """Estimate the standard deviation of a pair around the median of its commit, robustly."""
    repeated = [np.asarray(pairs) for pairs in log_ratios if len(pairs) > 1]
    residuals = np.concatenate([pairs - np.median(pairs) for pairs in repeated])
    correction = math.sqrt(
        len(residuals) / (len(residuals) - len(repeated))
    )  # one degree of freedom per median
    return max(float(np.median(np.abs(residuals))) * _MAD_TO_DEVIATION * correction, _MIN_SCALE)


# --- what is known of the commits


def begin_search(commits: Sequence[CommitRef]) -> BisectionProgress:
    """Know nothing of the commits from the one after the good end to the bad end."""
    return BisectionProgress(tuple(BisectionCommit(commit, 1 / len(commits)) for commit in commits))


def with_inputs(progress: BisectionProgress, inputs: Sequence[BuildInputs]) -> BisectionProgress:
    """Add prior weights, from the inputs of the good end and of each commit."""
    commits = []
    for known, one, weight in zip(progress.commits, inputs[1:], prior_weights(inputs), strict=True):
        status = known.status
        if one.error:
            status = CommitStatus.SKIPPED
        elif weight.reason and not known.log_ratios:
            status = CommitStatus.SAME
        commits.append(
            replace(known, status=status, reason=one.error or weight.reason, weight=weight.value)
        )
    return replace(progress, commits=_with_probabilities(commits), is_weighed=True)


def with_pair(
    progress: BisectionProgress, position: int, pair: PairResult, finished_at: datetime
) -> BisectionProgress:
    """Add the measurement of a commit, or why it cannot be measured."""
    commits = list(progress.commits)
    known = commits[position]
    log_ratios = (*known.log_ratios, *pair.log_ratios)
    commits[position] = replace(
        known,
        status=CommitStatus.SKIPPED if pair.error else CommitStatus.MEASURED,
        reason=pair.error or known.reason,
        pair_count=len(log_ratios),
        relative_change=_relative_change(log_ratios),
        log_ratios=log_ratios,
    )
    updated = _with_probabilities(commits)
    has_change = sum(one.probability for one in updated[: position + 1])
    step = BisectionStep(
        sha=known.commit.sha,
        pair_count=len(pair.log_ratios),
        relative_change=_relative_change(pair.log_ratios),
        probability=min(1.0, has_change) if progress.is_weighed and not pair.error else 1.0,
        note=pair.error,
        finished_at=finished_at,
    )
    count = progress.measurement_count + 2 * pair.block_count
    return replace(
        progress, commits=updated, steps=(*progress.steps, step), measurement_count=count
    )


def _with_probabilities(commits: Sequence[BisectionCommit]) -> tuple[BisectionCommit, ...]:
    if len(commits[-1].log_ratios) < 2:
        return tuple(commits)
    found = _probabilities(commits)
    return tuple(
        replace(one, probability=min(1.0, float(share)))
        for one, share in zip(commits, found, strict=True)
    )


def _probabilities(commits: Sequence[BisectionCommit]) -> Floats:
    return change_probabilities(
        [one.weight for one in commits], [one.log_ratios for one in commits]
    )


def _relative_change(log_ratios: Sequence[float]) -> float | None:
    return math.expm1(median(log_ratios)) if log_ratios else None


def _is_skipped(known: BisectionCommit) -> bool:
    return known.status is CommitStatus.SKIPPED


# --- the search


@dataclass(frozen=True)
class SearchPlan:
    """When to stop.

    Args:
        error_rate: How often a wrong commit may be named.
        threshold: Ends that differ by less, as a fraction, count as equal.
        max_pairs: Maximum number of pairs of one commit.
    """

    error_rate: float = 0.02
    threshold: float = 0.01
    max_pairs: int = 60


@dataclass(frozen=True)
class Measure:
    """Take more pairs of a commit."""

    position: int
    pair_count: int


@dataclass(frozen=True)
class Result:
    """How a search ended.

    With `FOUND`, `NARROWED` and an `UNDECIDED` that more pairs cannot settle, the change is
    probably in one of the commits `first` to `last`.
    """

    state: BisectionState
    first: int = -1
    last: int = -1
    confidence: float = 0.0


def compare_ends(pairs: Sequence[float], plan: SearchPlan) -> int | Result:
    """Decide whether the ends differ, from the pairs of the bad end.

    Returns:
        How many more pairs to take, 0 if the ends differ; or the end of the search.
    """
    count = len(pairs)
    if count < FIRST_LOOK_BLOCKS:
        return FIRST_LOOK_BLOCKS - count
    comparison = compare_pairs(pairs, threshold=plan.threshold)
    if comparison.is_significant:
        return 0
    if comparison.verdict is Verdict.UNCHANGED:
        return Result(BisectionState.NO_CHANGE)
    if count >= plan.max_pairs:
        return Result(BisectionState.UNDECIDED)
    return next(looks_after(count)) - count


def next_move(
    commits: Sequence[BisectionCommit], plan: SearchPlan, *, at: int | None = None
) -> Measure | Result:
    """Choose the commit to measure next, or end the search. The ends are known to differ.

    Args:
        commits: What is known of each, from the one after the good end to the bad end.
        plan: When to stop.
        at: The commit that is being measured; it is measured further while it is in doubt.
    """
    probabilities = _probabilities(commits)
    if at is not None and not _is_skipped(commits[at]):
        count, has_change = len(commits[at].log_ratios), float(probabilities[: at + 1].sum())
        if count < _FIRST_PAIRS:
            return Measure(at, _FIRST_PAIRS - count)
        if _DOUBT < has_change < 1 - _DOUBT and count < plan.max_pairs:
            return Measure(at, 1)
    first, last, confidence = _likeliest(commits, probabilities)
    if confidence >= 1 - plan.error_rate:
        edges = [_unmeasured_edge(commits, edge) for edge in (first - 1, last)]
        edge = next((position for position in edges if position is not None), None)
        state = BisectionState.FOUND if first == last else BisectionState.NARROWED
        return (
            Result(state, first, last, confidence) if edge is None else Measure(edge, _FIRST_PAIRS)
        )
    best = _halving_commit(commits, probabilities, plan)
    if best is None:
        return Result(BisectionState.UNDECIDED, first, last, confidence)
    return Measure(best, max(1, _FIRST_PAIRS - len(commits[best].log_ratios)))


def _likeliest(commits: Sequence[BisectionCommit], probabilities: Floats) -> tuple[int, int, float]:
    """Return the first and last of the likeliest commits that measurements can distinguish, with
    their probability.

    Commits that cannot be measured belong to the next one that can. Commits of weight 0 at the
    edges are left out.
    """
    lasts = [position for position, known in enumerate(commits) if not _is_skipped(known)]
    firsts = [0, *(last + 1 for last in lasts[:-1])]
    cells = [
        (float(probabilities[a : b + 1].sum()), a, b) for a, b in zip(firsts, lasts, strict=True)
    ]
    confidence, first, last = max(cells)
    possible = [position for position in range(first, last + 1) if commits[position].weight > 0]
    return possible[0], possible[-1], confidence


def _unmeasured_edge(commits: Sequence[BisectionCommit], position: int) -> int | None:
    """Return a commit to measure if neither this one nor an equivalent one was;
    −1 is the good end.
    """
    first = last = position
    while first >= 0 and commits[first].weight == 0:
        first -= 1
    while last + 1 < len(commits) and commits[last + 1].weight == 0:
        last += 1
    measurable = [one for one in range(max(first, 0), last + 1) if not _is_skipped(commits[one])]
    if first < 0 or any(len(commits[one].log_ratios) >= _FIRST_PAIRS for one in measurable):
        return None
    return min(measurable, key=lambda one: abs(one - position), default=None)


def _halving_commit(
    commits: Sequence[BisectionCommit], probabilities: Floats, plan: SearchPlan
) -> int | None:
    """Return the measurable commit that splits the probability most evenly."""
    cumulative = np.cumsum(probabilities)
    splitting = [
        position
        for position, share in enumerate(cumulative)
        if 0 < share < 1 - 1e-12
        and not _is_skipped(commits[position])
        and len(commits[position].log_ratios) < plan.max_pairs
    ]
    return min(
        splitting, key=lambda position: (abs(cumulative[position] - 0.5), position), default=None
    )
