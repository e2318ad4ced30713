"""Base against head: paired samples to a verdict with its interval and its reason. Pure.

The block is the unit of evidence, not the sample: samples of one block share its clock, its neighbours on the machine
and its memory layout.

Method (docs/explanation/verdicts.md): the logarithm of head/base of the block medians, one number per pair of
neighbouring blocks, and Student's interval for their centre, which is valid at every level below 8.3 % however unequal
the blocks' noise (Bakirov and Székely 2005; Ibragimov and Müller 2010). From eight blocks up the
extreme blocks are trimmed (Tukey and McLaughlin 1963), with one degree of freedom less than theirs.

Blocks may be added until the verdict is clear. The interim analyses are planned before anything is measured, at 8, 12,
18, 27, 40 ... blocks, and half of what is left of the 5 % error rate is spent at each (alpha spending, Lan and DeMets
1983, with Bonferroni's sum in place of the joint distribution). The level depends on the number of blocks alone, so
blocks of one commit pair that several jobs measured add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.chance import critical_t, two_sided_p
from roofwatch.ci.reason import Reason
from roofwatch.db.values import Verdict

MIN_BLOCKS = 3
"""Fewer blocks decide nothing."""
MAX_FLAT_BLOCKS = 10
"""Into so many contiguous blocks a flat list of samples is cut."""

ERROR_RATE = 0.05
"""How often the intervals of all interim analyses together may miss the truth."""
FIRST_LOOK_BLOCKS = 8

_GROWTH = 1.5
"""Each look has so many times the blocks of the one before."""
_TRIM_FROM_BLOCKS = 8
_BLOCKS_PER_TRIMMED = 6
_MISSED_EITHER_WAY = 0.4
"""One time in five a centre falls as far short of the truth, and one time in five as far beyond it."""
_FORESEEN_BLOCKS = 300
"""What would take more is for a quieter machine."""

Samples = Sequence[float] | Sequence[Sequence[float]] | Sequence[NDArray[np.float64]] | NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Two sides of one case and implementation. `is_significant`: the change is beyond the noise; `is_relevant`: it is
    large enough to report. The verdict needs more than both: the whole interval.
    """

    verdict: Verdict
    reason: Reason
    base_ns: float
    """Median of all samples of the base."""
    head_ns: float
    log_ratio: float
    """Centre of ln(head / base) over pairs of blocks; above 0 is slower."""
    log_interval: tuple[float, float]
    """Of `log_ratio`, held with 95 % by all looks together; infinite where there are too few blocks."""
    block_count: int
    threshold: float
    p_value: float
    """Two-sided, of the hypothesis that the true change lies within the threshold; holds however often one looks."""
    more_blocks: int | None = None
    """How many more on each side a verdict would take, if noise and centre stay; None where there is a verdict, or
    where no number in reach would do."""
    block_deviation: float | None = None
    """Robust standard deviation of the logarithm of one block's time, less what its neighbour on the other side shares;
    None where there are too few blocks."""

    @property
    def relative_change(self) -> float:
        """(head − base) / base, from the paired log ratio."""
        return math.expm1(self.log_ratio)

    @property
    def relative_interval(self) -> tuple[float, float]:
        low, high = self.log_interval
        return _expm1(low), _expm1(high)

    @property
    def speedup(self) -> float:
        """Base time / head time; above 1 is faster."""
        return math.exp(-self.log_ratio)

    @property
    def is_significant(self) -> bool:
        low, high = self.log_interval
        return low > 0 or high < 0

    @property
    def is_relevant(self) -> bool:
        return abs(self.log_ratio) > math.log1p(self.threshold)


def compare(
    base_ns: Samples, head_ns: Samples, *, threshold: float = 0.03, error_rate: float | None = None
) -> Comparison:
    """Judge the times of a head against those of its base. Swapping the sides flips the sign of everything.

    Args:
        base_ns: Blocks of samples, block i taken next to block i of the head; or a flat list of samples in the order
            taken, which is cut into up to ten contiguous blocks.
        head_ns: In the same form.
        threshold: Smallest change worth reporting, as a fraction: a factor of 1 + `threshold` either way.
        error_rate: How often the interval may miss the truth; `alpha_at` the number of blocks if left out.

    Returns:
        `regressed` or `improved` only if the whole interval lies beyond the threshold, `unchanged` only if it lies
        inside, else `inconclusive`.

    Raises:
        ValueError: a sample that is not a finite number above 0, a side without samples, sides of different form or
            with unequal numbers of blocks, or a threshold that is not above 0.
    """
    if not (threshold > 0 and math.isfinite(threshold)):
        raise ValueError(f"threshold={threshold}: give a fraction above 0, such as 0.03")
    base_blocks, head_blocks = _pair_blocks(base_ns, head_ns)
    log_ratios = np.array(
        [np.median(np.log(head)) - np.median(np.log(base)) for base, head in zip(base_blocks, head_blocks, strict=True)]
    )
    pairs = _Pairs.of(log_ratios)
    edge = math.log1p(threshold)
    interval, p_value = (-math.inf, math.inf), 1.0
    more_blocks: int | None = FIRST_LOOK_BLOCKS - pairs.count
    verdict, reason = Verdict.INCONCLUSIVE, Reason.TOO_FEW_BLOCKS
    if pairs.count >= MIN_BLOCKS:
        level = alpha_at(pairs.count) if error_rate is None else error_rate
        half = critical(pairs.degrees, level) * pairs.error
        interval = (pairs.centre - half, pairs.centre + half)
        p_value = min(1.0, pairs.p_beyond(edge) * ERROR_RATE / level)
        verdict, reason = judge_interval(interval, edge)
        more_blocks = _more_blocks(pairs, edge)
    return Comparison(
        verdict=verdict,
        reason=reason,
        base_ns=float(np.median(np.concatenate(base_blocks))),
        head_ns=float(np.median(np.concatenate(head_blocks))),
        log_ratio=pairs.centre,
        log_interval=interval,
        block_count=pairs.count,
        threshold=threshold,
        p_value=p_value,
        more_blocks=more_blocks if verdict is Verdict.INCONCLUSIVE else None,
        block_deviation=pairs.error * math.sqrt(pairs.count / 2) if pairs.count >= MIN_BLOCKS else None,
    )


def detectable_change(block_deviation: float, block_count: int, *, threshold: float = 0.03) -> float:
    """The smallest slowdown that so many blocks a side find beyond the threshold four times in five, as a fraction.

    Args:
        block_deviation: As a comparison says it.
        block_count: On each side, 3 or more.
        threshold: Practical threshold as a fraction.
    """
    error, degrees = block_deviation * math.sqrt(2 / block_count), _degrees(block_count)
    errors = critical(degrees, alpha_at(block_count)) + critical(degrees, _MISSED_EITHER_WAY)
    return math.expm1(math.log1p(threshold) + errors * error)


def control_false_discoveries(comparisons: Sequence[Comparison], rate: float) -> list[Comparison]:
    """Hold the expected share of false ones among all `regressed` and `improved` of a family at `rate`.

    Those that do not survive become `inconclusive`, with reason `multiplicity`. Source: Benjamini and Hochberg 1995;
    valid for positively dependent tests too (Benjamini and Yekutieli 2001), as cases timed side by side are.
    """
    ordered = sorted(comparison.p_value for comparison in comparisons)
    survivors = [p for rank, p in enumerate(ordered, start=1) if p <= rate * rank / len(ordered)]
    largest = survivors[-1] if survivors else -1.0
    return [
        replace(comparison, verdict=Verdict.INCONCLUSIVE, reason=Reason.MULTIPLICITY)
        if comparison.verdict in {Verdict.REGRESSED, Verdict.IMPROVED} and comparison.p_value > largest
        else comparison
        for comparison in comparisons
    ]


# --- interim analyses


def look_number(block_count: int) -> int:
    """Which interim analysis so many blocks are at: 1 up to 8 blocks, 2 up to 12 and so on."""
    return next(number for number, blocks in enumerate(_looks(), start=1) if block_count <= blocks)


def alpha_at(block_count: int) -> float:
    """How often the interval of this interim analysis may miss the truth."""
    return ERROR_RATE / 2.0 ** look_number(block_count)


def looks_after(block_count: int) -> Iterator[int]:
    """The numbers of blocks at which to look next; without end."""
    reached = look_number(block_count)
    return (blocks for number, blocks in enumerate(_looks(), start=1) if number > reached)


def _looks() -> Iterator[int]:
    blocks = FIRST_LOOK_BLOCKS
    while True:
        yield blocks
        blocks = math.floor(blocks * _GROWTH)


# --- intervals


def judge_interval(interval: tuple[float, float], edge: float) -> tuple[Verdict, Reason]:
    """What an interval of the log ratio says of a change, and of the threshold `edge` on the same scale."""
    low, high = interval
    if low > edge:
        return Verdict.REGRESSED, Reason.BEYOND_THRESHOLD
    if high < -edge:
        return Verdict.IMPROVED, Reason.BEYOND_THRESHOLD
    if -edge < low and high < edge:
        return Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD
    return Verdict.INCONCLUSIVE, Reason.NOISE


@dataclass(frozen=True)
class _Pairs:
    """The log ratios of pairs of blocks, reduced."""

    count: int
    centre: float
    """Trimmed mean."""
    variance: float
    """Winsorised, of one log ratio."""

    @classmethod
    def of(cls, log_ratios: NDArray[np.float64]) -> _Pairs:
        """Sums are exactly rounded, so that swapping the sides negates the centre to the last bit."""
        count = len(log_ratios)
        ordered = np.sort(log_ratios)
        trimmed = _trimmed(count)
        winsorised = np.clip(ordered, ordered[trimmed], ordered[count - trimmed - 1])
        mean = math.fsum(winsorised) / count
        return cls(
            count=count,
            centre=math.fsum(ordered[trimmed : count - trimmed]) / (count - 2 * trimmed),
            variance=math.fsum((winsorised - mean) ** 2) / count,
        )

    @property
    def error(self) -> float:
        """Standard error of the centre."""
        return self.error_at(self.count)

    @property
    def degrees(self) -> int:
        return _degrees(self.count)

    def error_at(self, count: int) -> float:
        """What the standard error would be with so many pairs of the same noise."""
        kept = count - 2 * _trimmed(count)
        return math.sqrt(self.variance * count / (kept * (kept - 1)))

    def p_beyond(self, edge: float) -> float:
        distance = abs(self.centre) - edge
        if distance <= 0:
            return 1.0
        return two_sided_p(distance / self.error, self.degrees) if self.error > 0 else 0.0


def _more_blocks(pairs: _Pairs, edge: float) -> int | None:
    distance = abs(abs(pairs.centre) - edge)
    for blocks in takewhile(lambda blocks: blocks <= _FORESEEN_BLOCKS, looks_after(pairs.count)):
        if critical(_degrees(blocks), alpha_at(blocks)) * pairs.error_at(blocks) < distance:
            return blocks - pairs.count
    return None


def _trimmed(count: int) -> int:
    """How many of so many pairs are trimmed on either side."""
    return count // _BLOCKS_PER_TRIMMED if count >= _TRIM_FROM_BLOCKS else 0


def _degrees(count: int) -> int:
    trimmed = _trimmed(count)
    return count - 2 * trimmed - (2 if trimmed else 1)


@cache
def critical(degrees: int, error_rate: float) -> float:
    """The t of an interval that misses the truth so often."""
    return critical_t(degrees, 1 - error_rate)


def _expm1(value: float) -> float:
    return math.inf if value > 700 else math.expm1(value)


def _pair_blocks(base_ns: Samples, head_ns: Samples) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    for side, samples in (("base", base_ns), ("head", head_ns)):
        if len(samples) == 0:
            raise ValueError(f"{side}: no samples; what was not measured cannot be compared")
    if _is_flat(base_ns) != _is_flat(head_ns):
        raise ValueError("base and head: one is a list of blocks and the other of samples; give both in one form")
    if _is_flat(base_ns):
        base, head = read_samples("base", base_ns), read_samples("head", head_ns)
        count = min(MAX_FLAT_BLOCKS, len(base), len(head))
        return np.array_split(base, count), np.array_split(head, count)
    if len(base_ns) != len(head_ns):
        raise ValueError(f"base has {len(base_ns)} blocks and head {len(head_ns)}; blocks are compared in pairs")
    return (
        [read_samples(f"base, block {i}", block) for i, block in enumerate(base_ns)],
        [read_samples(f"head, block {i}", block) for i, block in enumerate(head_ns)],
    )


def _is_flat(samples: Samples) -> bool:
    return np.ndim(samples[0]) == 0


def read_samples(name: str, samples: object) -> NDArray[np.float64]:
    """Samples as an array.

    Raises:
        ValueError: one is not a finite number above 0, or there is none; the message names the list.
    """
    try:
        array = np.asarray(samples, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: samples must be numbers of nanoseconds") from None
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name}: expected a list of samples, got shape {array.shape}")
    wrong = array[~(np.isfinite(array) & (array > 0))]
    if len(wrong):
        raise ValueError(f"{name}: sample {wrong[0]} ns; a time is a finite number above 0")
    return array
