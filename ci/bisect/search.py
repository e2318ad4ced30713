"""Probabilistic bisection: probabilities from measurements, and what to measure next. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, looks_after
from roofwatch.ci.bisect.pairs import PairResult, compare_pairs
from roofwatch.ci.bisect.priors import BuildInputs, prior_weights
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.model.history import CommitRef
from roofwatch.model.triage import (
    BisectionCommit,
    BisectionProgress,
    BisectionState,
    BisectionStep,
    CommitStatus,
)
from roofwatch.model.verdict import Verdict

_STEP_ERRORS = np.linspace(-5.0, 5.0, 21)
"""Grid of step sizes, in standard errors around the median of the bad end."""
_SCALE_FACTORS = 2.0 ** np.linspace(-2.0, 2.0, 13)
_DEGREES = np.array([3.0, 8.0, 60.0])
"""Degrees of freedom of Student's t: from noise with outliers to normal noise."""
_DOUBT = 0.2
"""A commit is measured further while the probability that it has the change is between this and 1 −
this.
"""
_FIRST_PAIRS = 2
"""Pairs of a commit before its probability is used."""
_MIN_SCALE = 1e-7
"""Noise of identical, rounded times."""

Floats = NDArray[np.float64]


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
    step_error = scale / math.sqrt(len(bad_end))
    steps = np.median(bad_end) + _STEP_ERRORS * step_error  # [steps]
    scale_grid, degree_grid = np.meshgrid(_SCALE_FACTORS * scale, _DEGREES)
    scales = scale_grid.ravel()  # [noises]
    degrees = degree_grid.ravel()  # [noises]
    no_step = np.zeros(1)
    likelihood = partial(
        _log_likelihood,
        scales=scales,
        degrees=degrees,
    )
    # log-likelihood of each commit's pairs if it lies before the change, shape [commits, noises]
    without_change = np.stack([likelihood(pairs, no_step)[0] for pairs in log_ratios])
    # and if it has the change, shape [commits, steps, noises]
    with_change = np.stack([likelihood(pairs, steps) for pairs in log_ratios])
    # if a commit brought the change, all before it are without, and it and all later ones with it
    earlier = np.cumsum(without_change, axis=0)[:-1]
    all_earlier = np.concatenate([np.zeros_like(without_change[:1]), earlier])
    all_later = np.cumsum(with_change[::-1], axis=0)[::-1]
    joint = all_earlier[:, None, :] + all_later
    # relative to the largest, so no exponential underflows everywhere
    relative = np.exp(joint - joint.max())
    likelihoods = relative.sum(axis=(1, 2))
    prior = np.asarray(weights, dtype=float)
    with np.errstate(divide="ignore"):  # a weight of 0 excludes its commit
        logs = np.log(likelihoods) + np.log(prior)
    shares = np.exp(logs - logs.max())
    probabilities: Floats = shares / shares.sum()
    return probabilities


def _log_likelihood(
    pairs: Sequence[float],
    centres: Floats,
    scales: Floats,
    degrees: Floats,
) -> Floats:
    """Log-likelihood of pairs for each centre and noise, [centres, noises], up to a constant."""
    # a commit without pairs is as likely with the change as without
    if not pairs:
        return np.zeros((len(centres), len(scales)))
    values = np.asarray(pairs, dtype=float)
    offsets = values[:, None, None] - centres[:, None]
    distances = offsets / scales  # [pairs, centres, noises]
    # the density of Student's t
    norms = np.array([_log_norm(degree) for degree in degrees])
    exponents = (degrees + 1) / 2
    tails = exponents * np.log1p(distances**2 / degrees)
    total: Floats = (norms - np.log(scales) - tails).sum(axis=0)
    return total


def _log_norm(degrees: float) -> float:
    """Logarithm of the norm of Student's t density."""
    upper_gamma = math.lgamma((degrees + 1) / 2)
    gammas = upper_gamma - math.lgamma(degrees / 2)
    return gammas - math.log(degrees * math.pi) / 2


def _scale(log_ratios: Sequence[Sequence[float]]) -> float:
    """Estimate the standard deviation of a pair around the median of its commit, robustly."""
    repeated = [np.asarray(pairs) for pairs in log_ratios if len(pairs) > 1]
    residuals = np.concatenate([pairs - np.median(pairs) for pairs in repeated])
    count = len(residuals)
    # one degree of freedom per median
    correction = math.sqrt(count / (count - len(repeated)))
    deviation = float(np.median(np.abs(residuals))) * MAD_TO_DEVIATION
    return max(deviation * correction, _MIN_SCALE)


# --- what is known of the commits


def begin_search(commits: Sequence[CommitRef]) -> BisectionProgress:
    """Know nothing of the commits from the one after the good end to the bad end."""
    # before any pair, every commit is as likely as the others
    weight = 1 / len(commits)
    return BisectionProgress(tuple(BisectionCommit(commit, weight) for commit in commits))


def with_inputs(progress: BisectionProgress, inputs: Sequence[BuildInputs]) -> BisectionProgress:
    """Add prior weights, from the inputs of the good end and of each commit."""
    commits = []
    weights = prior_weights(inputs)
    for commit, commit_inputs, weight in zip(progress.commits, inputs[1:], weights, strict=True):
        status = commit.status
        # what cannot be built has no times
        if commit_inputs.error:
            status = CommitStatus.SKIPPED
        elif weight.reason and not commit.log_ratios:
            # a measured commit counts, even if its code is that of its parent
            status = CommitStatus.SAME
        weighed = replace(
            commit,
            status=status,
            reason=commit_inputs.error or weight.reason,
            weight=weight.value,
        )
        commits.append(weighed)
    return replace(
        progress,
        commits=_with_probabilities(commits),
        is_weighed=True,
    )


def with_pair(
    progress: BisectionProgress,
    position: int,
    pair: PairResult,
    finished_at: datetime,
) -> BisectionProgress:
    """Add the measurement of a commit, or why it cannot be measured."""
    commits = list(progress.commits)
    measured = commits[position]
    log_ratios = (*measured.log_ratios, *pair.log_ratios)
    status = CommitStatus.MEASURED
    if pair.error:
        status = CommitStatus.SKIPPED
    commits[position] = replace(
        measured,
        status=status,
        reason=pair.error or measured.reason,
        pair_count=len(log_ratios),
        relative_change=_relative_change(log_ratios),
        log_ratios=log_ratios,
    )
    updated = _with_probabilities(commits)
    has_change = 1.0
    # the ends are compared first, before any weight is known
    if progress.is_weighed and not pair.error:
        up_to_here = [commit.probability for commit in updated[: position + 1]]
        has_change = min(1.0, sum(up_to_here))
    step = BisectionStep(
        sha=measured.commit.sha,
        pair_count=len(pair.log_ratios),
        relative_change=_relative_change(pair.log_ratios),
        probability=has_change,
        note=pair.error,
        finished_at=finished_at,
    )
    return replace(
        progress,
        commits=updated,
        steps=(*progress.steps, step),
        measurement_count=progress.measurement_count + 2 * pair.block_count,
    )


def _with_probabilities(commits: Sequence[BisectionCommit]) -> tuple[BisectionCommit, ...]:
    """Update the probability of each commit, once the step has a size."""
    # without two pairs of the bad end, the size of the step is unknown
    if len(commits[-1].log_ratios) < 2:
        return tuple(commits)
    return tuple(
        replace(commit, probability=min(1.0, float(probability)))
        for commit, probability in zip(commits, _probabilities(commits), strict=True)
    )


def _probabilities(commits: Sequence[BisectionCommit]) -> Floats:
    weights = [commit.weight for commit in commits]
    log_ratios = [commit.log_ratios for commit in commits]
    return change_probabilities(weights, log_ratios)


def _relative_change(log_ratios: Sequence[float]) -> float | None:
    """Median change against the good end; None without pairs."""
    if not log_ratios:
        return None
    return math.expm1(median(log_ratios))


def _is_skipped(commit: BisectionCommit) -> bool:
    """Whether it cannot be built or measured."""
    return commit.status is CommitStatus.SKIPPED


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
    """Of the commit among those of the range."""
    pair_count: int
    """Pairs to measure before the next decision."""


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended.

    With `FOUND`, `NARROWED` and an `UNDECIDED` that more pairs cannot settle, the change is
    probably in one of the commits `first` to `last`.
    """

    state: BisectionState
    first: int = -1
    last: int = -1
    confidence: float = 0.0
    """Probability that the change is between `first` and `last`."""


def compare_ends(pairs: Sequence[float], plan: SearchPlan) -> int | SearchEnd:
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
        return SearchEnd(BisectionState.NO_CHANGE)
    # more pairs would take longer than the answer is worth
    if count >= plan.max_pairs:
        return SearchEnd(BisectionState.UNDECIDED)
    return next(looks_after(count)) - count


def next_move(
    commits: Sequence[BisectionCommit],
    plan: SearchPlan,
    *,
    current: int | None,
) -> Measure | SearchEnd:
    """Choose the commit to measure next, or end the search. The ends are known to differ.

    Args:
        commits: What is known of each, from the one after the good end to the bad end.
        plan: When to stop.
        current: The commit that is being measured; it is measured further while it is in doubt.
    """
    probabilities = _probabilities(commits)
    if current is not None and not _is_skipped(commits[current]):
        count = len(commits[current].log_ratios)
        has_change = float(probabilities[: current + 1].sum())
        # one pair alone says nothing about noise
        if count < _FIRST_PAIRS:
            return Measure(current, _FIRST_PAIRS - count)
        if _DOUBT < has_change < 1 - _DOUBT and count < plan.max_pairs:
            return Measure(current, 1)
    first, last, confidence = _likeliest(commits, probabilities)
    if confidence >= 1 - plan.error_rate:
        # the commits on both sides of the answer must have been measured themselves
        for edge in (first - 1, last):
            unmeasured = _unmeasured_edge(commits, edge)
            if unmeasured is not None:
                return Measure(unmeasured, _FIRST_PAIRS)
        # commits that cannot be measured are not told apart from their successor
        state = BisectionState.NARROWED
        if first == last:
            state = BisectionState.FOUND
        return SearchEnd(
            state=state,
            first=first,
            last=last,
            confidence=confidence,
        )
    best = _halving_commit(commits, probabilities, plan)
    # every commit that would help was measured as often as allowed
    if best is None:
        return SearchEnd(
            state=BisectionState.UNDECIDED,
            first=first,
            last=last,
            confidence=confidence,
        )
    missing_pairs = _FIRST_PAIRS - len(commits[best].log_ratios)
    return Measure(best, max(1, missing_pairs))


def _likeliest(commits: Sequence[BisectionCommit], probabilities: Floats) -> tuple[int, int, float]:
    """Return the first and last of the likeliest commits that measurements can distinguish, with
    their probability.

    Commits that cannot be measured belong to the next one that can. Commits of weight 0 at the
    edges are left out.
    """
    cells: list[tuple[float, int, int]] = []
    cell_start = 0
    for position, commit in enumerate(commits):
        if _is_skipped(commit):
            continue
        probability = float(probabilities[cell_start : position + 1].sum())
        cells.append((probability, cell_start, position))
        cell_start = position + 1
    confidence, first, last = max(cells)
    cell = range(first, last + 1)
    possible = [position for position in cell if commits[position].weight > 0]
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
    if first < 0:
        return None  # equivalent to the good end, which every pair measures
    remaining = range(first, last + 1)
    measurable = [index for index in remaining if not _is_skipped(commits[index])]
    if any(len(commits[index].log_ratios) >= _FIRST_PAIRS for index in measurable):
        return None
    return min(
        measurable,
        key=lambda index: abs(index - position),
        default=None,
    )


def _halving_commit(
    commits: Sequence[BisectionCommit],
    probabilities: Floats,
    plan: SearchPlan,
) -> int | None:
    """Return the measurable commit that splits the probability most evenly."""
    cumulative = np.cumsum(probabilities)

    def is_useful(position: int) -> bool:
        commit = commits[position]
        can_split = 0 < cumulative[position] < 1 - 1e-12
        if not can_split:
            return False
        if _is_skipped(commit):
            return False
        return len(commit.log_ratios) < plan.max_pairs

    useful = filter(is_useful, range(len(commits)))
    return min(
        useful,
        key=lambda position: abs(cumulative[position] - 0.5),
        default=None,
    )
