"""Whether the clock changed or the code: in a comparison of two records, and at a step of a
history. Pure.

Pairs of blocks taken while the device was throttled or shared are left out. A change in time must
also show in clock cycles (time × SM clock): a kernel that takes the same cycles at a lower clock
has not regressed. Source: nvbench-compare, NVIDIA/nvbench.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare
from roofwatch.ci.messages import Remark
from roofwatch.model.history import SeriesPoint
from roofwatch.model.measurement import Block, Measurement
from roofwatch.model.verdict import Verdict

MIN_CLOCK_MOVE = 0.01
"""A smaller change of the clock is none: its steps are 15 MHz, of some 1,500."""
GONE = 1 / 3
"""A change in cycles below this share of the change in time is none: a median clock is about that
noisy.
"""
_MIN_RUNS = 3
"""Runs with a clock on either level."""
_MIN_SHARE = 0.5
"""Share of a level's runs with a clock."""


# --- two records


@dataclass(frozen=True)
class LeftOut:
    """A pair of blocks that is not compared."""

    position: int
    """From 0, in the order taken."""
    base: tuple[str, ...]
    """What degraded the base's block."""
    head: tuple[str, ...]


@dataclass(frozen=True)
class BlockPairs:
    """Blocks to compare: block i of the base next to block i of the head."""

    base: tuple[Block, ...]
    head: tuple[Block, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def are_too_few(self) -> bool:
        """Too few pairs remain because some were left out."""
        return bool(self.left_out) and len(self.base) < MIN_BLOCKS

    @property
    def remark(self) -> Remark:
        total = len(self.base) + len(self.left_out)
        reasons = dict.fromkeys(
            reason for pair in self.left_out for reason in (*pair.base, *pair.head)
        )
        return Remark(
            f"{len(self.left_out)} of {total} block pairs left out, by {{}}", (", ".join(reasons),)
        )


@dataclass(frozen=True)
class CyclesEvidence:
    """Base against head in clock cycles."""

    comparison: Comparison
    """In clock cycles instead of ns."""
    base_mhz: float
    """Median SM clock of the blocks."""
    head_mhz: float

    @property
    def remark(self) -> Remark:
        low, high = self.comparison.relative_interval
        return Remark(
            f"the SM clock moved from {self.base_mhz:.0f} to {self.head_mhz:.0f} MHz; in clock "
            f"cycles the change is "
            f"{self.comparison.relative_change:+.1%} ({low:+.1%} to {high:+.1%})"
        )


def block_pairs(base: Measurement, head: Measurement) -> BlockPairs:
    """Pair the blocks of two measurements with equally many, and leave out degraded pairs."""
    kept: list[tuple[Block, Block]] = []
    left_out = []
    for position, (before, after) in enumerate(zip(base.blocks, head.blocks, strict=True)):
        reasons = [
            () if one.device_state is None else one.device_state.degraded_by
            for one in (before, after)
        ]
        if any(reasons):
            left_out.append(LeftOut(position, *reasons))
        else:
            kept.append((before, after))
    return BlockPairs(
        tuple(before for before, _ in kept), tuple(after for _, after in kept), tuple(left_out)
    )


def compare_cycles(pairs: BlockPairs, *, threshold: float) -> CyclesEvidence | None:
    """Compare clock cycles the way times are compared; None unless the SM clock of every block is
    known.
    """
    base, head = _in_cycles(pairs.base), _in_cycles(pairs.head)
    if base is None or head is None:
        return None
    return CyclesEvidence(
        compare(base[0], head[0], threshold=threshold), base_mhz=base[1], head_mhz=head[1]
    )


def _in_cycles(blocks: Sequence[Block]) -> tuple[list[list[float]], float] | None:
    """Samples in kilocycles, and the median clock in MHz."""
    clocks = [block.device_state.sm_clock_mhz for block in blocks if block.device_state is not None]
    if not blocks or len(clocks) < len(blocks) or not all(clocks):
        return None
    known = [clock for clock in clocks if clock]
    cycles = [
        [ns * clock / 1e3 for ns in block.samples_ns]
        for block, clock in zip(blocks, known, strict=True)
    ]
    return cycles, statistics.median(known)


def is_clock_move(times: Comparison, cycles: CyclesEvidence) -> bool:
    """Whether the clock explains the change in time: the verdict on cycles differs."""
    if (
        times.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}
        or cycles.comparison.verdict is times.verdict
    ):
        return False
    clock_log_ratio = cycles.comparison.log_ratio - times.log_ratio
    return clock_log_ratio * times.log_ratio < 0 and abs(clock_log_ratio) > math.log1p(
        MIN_CLOCK_MOVE
    )


# --- one step of a history


@dataclass(frozen=True)
class ClockStep:
    """A step of a time, with the clocks on either side."""

    before_mhz: float
    """Median SM clock of the runs."""
    after_mhz: float
    log_change: float
    """Change of the time."""
    log_cycles: float
    """Change of the clock cycles."""

    @property
    def is_opposed(self) -> bool:
        """Whether the clock changed in the direction that explains the time."""
        clock = self.log_cycles - self.log_change
        return clock * self.log_change < 0 and abs(clock) >= math.log1p(MIN_CLOCK_MOVE)

    @property
    def share_in_cycles(self) -> float:
        """Change in cycles / change in time; negative where they differ in sign."""
        return self.log_cycles / self.log_change

    def is_clock_move(self, *, min_relative_change: float) -> bool:
        """Whether the clock explains the change, and what is left in cycles is below
        `min_relative_change`.
        """
        if not self.is_opposed or self.share_in_cycles > GONE:
            return False
        return self.share_in_cycles * abs(self.log_change) < math.log1p(min_relative_change)

    def in_words(self) -> str:
        return (
            f"the SM clock moved from {self.before_mhz:.0f} to {self.after_mhz:.0f} MHz, and in "
            f"clock cycles the "
            f"change is {math.expm1(self.log_cycles):+.1%}"
        )


def clock_step(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], log_change: float
) -> ClockStep | None:
    """Convert a step, ln(after / before) of times, to clock cycles; None if too few runs of a level
    have a clock.
    """
    sides = []
    for runs in (before, after):
        clocks = [run.sm_clock_mhz for run in runs if run.value and run.sm_clock_mhz]
        if len(clocks) < max(_MIN_RUNS, _MIN_SHARE * len(runs)):
            return None
        times = [run.value for run in runs if run.value and run.sm_clock_mhz]
        cycles = [math.log(time * clock) for time, clock in zip(times, clocks, strict=True)]
        log_clock = statistics.median(cycles) - statistics.median(map(math.log, times))
        sides.append((statistics.median(clocks), log_clock))
    (before_mhz, log_before), (after_mhz, log_after) = sides
    return ClockStep(
        before_mhz, after_mhz, log_change, log_cycles=log_change + log_after - log_before
    )
