"""Base against head: paired samples to a verdict with its interval and its reason. Pure.

The unit of evidence is the block, because samples of one block share its clock, its neighbours on
the machine and its memory layout.

Method (docs/explanation/verdicts.md): the log ratio of the block medians, one number per pair of
neighbouring blocks, and Student's interval for their centre. It is valid at every level below 8.3 %
however unequal the blocks' noise (Bakirov and Székely 2005; Ibragimov and Müller 2010). From eight
blocks up the extreme blocks are trimmed (Tukey and McLaughlin 1963), with one degree of freedom
less than theirs.

Blocks may be added until the verdict is clear. Interim analyses are planned at 8, 12, 18, 27, 40
... blocks, and each spends half of what is left of the 5 % error rate (alpha spending, Lan and
DeMets 1983, with Bonferroni's sum in place of the joint distribution).
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from roofwatch.ci.changepoint.student import critical_t, two_sided_p
from roofwatch.ci.judge.change import expm1
from roofwatch.model.history import CommitRef, Pair
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MIN_BLOCKS = 3
"""Fewer blocks decide nothing."""

ERROR_RATE = 0.05
"""How often the intervals of all interim analyses may miss the truth."""
FIRST_LOOK_BLOCKS = 8

_GROWTH = 1.5
"""Ratio of the blocks of one interim analysis to those of the one before."""
# fewer blocks leave too few degrees of freedom after trimming
_TRIM_FROM_BLOCKS = 8
# on either side: a few disturbed blocks must not move the centre
_BLOCKS_PER_TRIMMED = 6
_POWER_ERROR = 0.4
"""Two-sided error rate of a power of 80 %."""
# beyond this, the time of a GPU is worth more than the verdict
_MAX_PLANNED_BLOCKS = 300
_VISIBLE = 0.005
"""Log ratio that a reader sees in two times of three digits."""

SAME_CODE_REASONS = frozenset({Reason.SAME_CODE, Reason.SAME_SOURCES})
"""Reasons of pairs whose sides ran the same code."""

Blocks = Iterable[Iterable[float]]
"""Samples in ns, by block."""


@dataclass(frozen=True)
class PairedEstimate:
    """The ratio of two times, estimated from blocks, and what it decides: evidence of a change."""

    verdict: Verdict
    reason: Reason
    base_ns: float
    """Median of the medians of the base's blocks that are compared."""
    head_ns: float
    """The same of the head."""
    log_ratio: float
    """Centre of ln(head / base) over pairs of blocks; above 0 is slower."""
    log_interval: tuple[float, float]
    """95 % interval of `log_ratio` over all interim analyses; infinite where there are too few
    blocks.
    """
    block_count: int
    threshold: float
    """Smallest relative change that matters, as a fraction."""
    p_value: float
    """Two-sided, for the hypothesis that the true change lies within the threshold; valid over all
    interim analyses.
    """
    more_blocks: int | None = None
    """Blocks on each side that a verdict still needs, at this noise and centre; None if there is a
    verdict, or if no affordable number is enough."""
    block_deviation: float | None = None
    """Robust standard deviation of the log time of one block, without what both sides share; None
    with too few blocks."""

    @property
    def relative_change(self) -> float:
        """(head − base) / base, from the paired log ratio."""
        return math.expm1(self.log_ratio)

    @property
    def relative_interval(self) -> tuple[float, float]:
        """The interval of the relative change, low and high."""
        low, high = self.log_interval
        return expm1(low), expm1(high)

    @property
    def change_of_medians(self) -> float | None:
        """(head_ns − base_ns) / base_ns where a reader sees that it is not the change, else None.

        Neighbouring blocks cancel a drift of the machine, and the medians of the two sides do not.
        """
        log_ratio = math.log(self.head_ns / self.base_ns)
        is_visible = abs(log_ratio - self.log_ratio) > _VISIBLE
        if not is_visible:
            return None
        return math.expm1(log_ratio)

    @property
    def speedup(self) -> float:
        """Base time / head time; above 1 is faster."""
        return math.exp(-self.log_ratio)

    @property
    def is_significant(self) -> bool:
        """Whether the change is beyond the noise."""
        low, high = self.log_interval
        return low > 0 or high < 0


@dataclass(frozen=True)
class ComparedRange:
    """What the blocks of two commits say about the commits between them."""

    base: CommitRef
    head: CommitRef
    """The first commit with the change, if there is one."""
    comparison: PairedEstimate

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict


def compare(
    base_ns: Blocks,
    head_ns: Blocks,
    *,
    threshold: float = 0.03,
    error_rate: float | None = None,
) -> PairedEstimate:
    """Judge the times of a head against those of its base. Swapping the sides flips every sign.

    Args:
        base_ns: Blocks of samples above 0, block i taken next to block i of the head.
        head_ns: As many blocks.
        threshold: Smallest change worth reporting, as a fraction.
        error_rate: How often the interval may miss the truth; by default, of the interim analysis
            at these blocks.

    Returns:
        `regressed` or `improved` only if the whole interval lies beyond the threshold, `unchanged`
        only if it lies inside, else `inconclusive`.

    Raises:
        ValueError: the sides have unequal numbers of blocks, or none.
    """
    base_blocks = [_BlockMedian.of(block) for block in base_ns]
    head_blocks = [_BlockMedian.of(block) for block in head_ns]
    neighbours = zip(base_blocks, head_blocks, strict=True)
    pairs = _BlockRatios.of([head.log - base.log for base, head in neighbours])
    comparison = PairedEstimate(
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.TOO_FEW_BLOCKS,
        base_ns=statistics.median(block.ns for block in base_blocks),
        head_ns=statistics.median(block.ns for block in head_blocks),
        log_ratio=pairs.centre,
        log_interval=(-math.inf, math.inf),
        block_count=pairs.count,
        threshold=threshold,
        p_value=1.0,
        more_blocks=FIRST_LOOK_BLOCKS - pairs.count,
    )
    if pairs.count < MIN_BLOCKS:
        return comparison
    edge = math.log1p(threshold)
    error = pairs.error_at(pairs.count)
    if error_rate is None:
        level = alpha_at(pairs.count)
    else:
        level = error_rate
    half = critical(_degrees(pairs.count), level) * error
    interval = (pairs.centre - half, pairs.centre + half)
    verdict, reason = judge_interval(interval, edge)
    more_blocks = None
    if verdict is Verdict.INCONCLUSIVE:
        more_blocks = _more_blocks(pairs, edge)
    return replace(
        comparison,
        verdict=verdict,
        reason=reason,
        log_interval=interval,
        # corrected for all interim analyses: this one spends the share `level`
        p_value=min(1.0, pairs.p_beyond(edge) * ERROR_RATE / level),
        more_blocks=more_blocks,
        block_deviation=error * math.sqrt(pairs.count / 2),
    )


def compare_pairs(pairs: Iterable[Pair]) -> PairedEstimate:
    """Judge the blocks of several pairs of the same two commits together.

    Pairs of the same code decide no change: their difference comes from the machine.
    """
    base_blocks_ns: list[Sequence[float]] = []
    head_blocks_ns: list[Sequence[float]] = []
    is_same_code = True
    for pair in pairs:
        base_blocks_ns.extend(pair.base_blocks_ns)
        head_blocks_ns.extend(pair.head_blocks_ns)
        is_same_code = is_same_code and pair.is_same_code
    estimate = compare(base_blocks_ns, head_blocks_ns, threshold=THRESHOLDS.relative_change)
    if not is_same_code or estimate.verdict is Verdict.UNCHANGED:
        return estimate
    reason = Reason.SAME_CODE
    if estimate.verdict.is_change:
        reason = Reason.SAME_SOURCES
    return replace(
        estimate,
        verdict=Verdict.INCONCLUSIVE,
        reason=reason,
        more_blocks=None,
    )


@dataclass(frozen=True)
class _BlockMedian:
    """The median of one block, and the median of its logarithms."""

    ns: float
    """Median time of a launch in the block."""
    log: float
    """Its natural logarithm, which all estimates use."""

    @classmethod
    def of(cls, block_ns: Iterable[float]) -> "_BlockMedian":
        ordered = sorted(block_ns)
        count = len(ordered)
        # the logarithm is monotone, so only the samples in the middle need one
        low = float(ordered[(count - 1) // 2])
        high = float(ordered[count // 2])
        mean_log = (math.log(low) + math.log(high)) / 2
        return cls((low + high) / 2, mean_log)


def detectable_change(
    block_deviation: float,
    block_count: int,
    *,
    threshold: float = 0.03,
) -> float:
    """Smallest slowdown, as a fraction, that is found beyond the threshold with a power of 80 %.

    Args:
        block_deviation: As in `PairedEstimate`.
        block_count: On each side, 3 or more.
        threshold: Practical threshold as a fraction.
    """
    error = block_deviation * math.sqrt(2 / block_count)
    degrees = _degrees(block_count)
    errors = critical(degrees, alpha_at(block_count)) + critical(degrees, _POWER_ERROR)
    return math.expm1(math.log1p(threshold) + errors * error)


def control_false_discoveries(
    comparisons: Sequence[PairedEstimate],
    rate: float,
) -> list[PairedEstimate]:
    """Control the false discovery rate among all `regressed` and `improved` of a family.

    The others become `inconclusive`, with reason `multiplicity`. Source: Benjamini and Hochberg
    1995; valid for positively dependent tests too (Benjamini and Yekutieli 2001), such as cases
    timed side by side.
    """
    largest = largest_discovery([comparison.p_value for comparison in comparisons], rate)
    controlled: list[PairedEstimate] = []
    for comparison in comparisons:
        is_change = comparison.verdict.is_change
        # a single case may pass its own test and still be one of the expected mistakes
        if is_change and comparison.p_value > largest:
            comparison = replace(
                comparison,
                verdict=Verdict.INCONCLUSIVE,
                reason=Reason.MULTIPLICITY,
            )
        controlled.append(comparison)
    return controlled


def largest_discovery(
    p_values: Sequence[float],
    rate: float,
    test_count: int | None = None,
) -> float:
    """Largest p-value that Benjamini and Hochberg's procedure rejects at a rate; -1 if none.

    The number of tests includes those whose p-value is 1 and not listed; by default it is that of
    the p-values.
    """
    count = test_count or len(p_values)
    largest = -1.0
    for rank, p_value in enumerate(sorted(p_values), start=1):
        if p_value <= rate * rank / count:
            largest = p_value
    return largest


# --- interim analyses


def look_number(block_count: int) -> int:
    """Number of the interim analysis: 1 up to 8 blocks, 2 up to 12 and so on."""
    looks = enumerate(_looks(), start=1)
    return next(number for number, blocks in looks if block_count <= blocks)


def alpha_at(block_count: int) -> float:
    """Error rate of the interval of the interim analysis at so many blocks."""
    return ERROR_RATE / 2.0 ** look_number(block_count)


def looks_after(block_count: int) -> Iterator[int]:
    """Numbers of blocks of the next interim analyses, without end."""
    reached = look_number(block_count)
    looks = enumerate(_looks(), start=1)
    return (blocks for number, blocks in looks if number > reached)


def _looks() -> Iterator[int]:
    blocks = FIRST_LOOK_BLOCKS
    while True:
        yield blocks
        blocks = math.floor(blocks * _GROWTH)


# --- intervals


def judge_interval(interval: tuple[float, float], edge: float) -> tuple[Verdict, Reason]:
    """Judge an interval of the log ratio against the threshold `edge` on the same scale."""
    low, high = interval
    if low > edge:
        return Verdict.REGRESSED, Reason.BEYOND_THRESHOLD
    if high < -edge:
        return Verdict.IMPROVED, Reason.BEYOND_THRESHOLD
    if -edge < low and high < edge:
        return Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD
    return Verdict.INCONCLUSIVE, Reason.NOISE


@dataclass(frozen=True)
class _BlockRatios:
    """Centre and spread of the log ratios of pairs of blocks."""

    count: int
    """Number of pairs of blocks."""
    centre: float
    """Trimmed mean."""
    variance: float
    """Winsorised, of one log ratio."""

    @classmethod
    def of(cls, log_ratios: Sequence[float]) -> "_BlockRatios":
        """Summarise ln(head / base) of each pair."""
        count = len(log_ratios)
        if not count:
            raise ValueError("there are no blocks to compare")
        ordered = sorted(log_ratios)
        trimmed = _trimmed(count)
        middle = ordered[trimmed : count - trimmed]
        lowest = middle[0]
        highest = middle[-1]
        winsorised = [min(max(log_ratio, lowest), highest) for log_ratio in ordered]
        # sums are exactly rounded, so swapping the sides negates the centre to the last bit
        mean = math.fsum(winsorised) / count
        centre = math.fsum(middle) / len(middle)
        squares = [(log_ratio - mean) ** 2 for log_ratio in winsorised]
        return cls(
            count=count,
            centre=centre,
            variance=math.fsum(squares) / count,
        )

    def error_at(self, count: int) -> float:
        """Standard error of the centre of so many pairs with the same noise."""
        remaining = count - 2 * _trimmed(count)
        # winsorised squares over the values that trimming leaves
        squares = self.variance * count
        return math.sqrt(squares / (remaining * (remaining - 1)))

    def p_beyond(self, edge: float) -> float:
        """Two-sided p-value for a true log ratio within `edge` of 0."""
        distance = abs(self.centre) - edge
        error = self.error_at(self.count)
        if distance <= 0:
            return 1.0
        if error > 0:
            return two_sided_p(distance / error, _degrees(self.count))
        return 0.0


def _more_blocks(pairs: _BlockRatios, edge: float) -> int | None:
    """Blocks to add until the centre would be decided; None if no planned look suffices."""
    distance = abs(abs(pairs.centre) - edge)
    for blocks in looks_after(pairs.count):
        if blocks > _MAX_PLANNED_BLOCKS:
            return None
        quantile = critical(_degrees(blocks), alpha_at(blocks))
        if quantile * pairs.error_at(blocks) < distance:
            return blocks - pairs.count
    return None


def _trimmed(count: int) -> int:
    """Pairs that are trimmed on either side."""
    if count >= _TRIM_FROM_BLOCKS:
        return count // _BLOCKS_PER_TRIMMED
    return 0


def _degrees(count: int) -> int:
    trimmed = _trimmed(count)
    return count - 2 * trimmed - (2 if trimmed else 1)


@cache
def critical(degrees: int, error_rate: float) -> float:
    """Student's t of an interval with this error rate."""
    return critical_t(degrees, 1 - error_rate)
