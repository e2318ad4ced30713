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

from roofwatch.ci.ab.compare import MIN_BLOCKS, PairedEstimate, compare
from roofwatch.ci.messages import Remark
from roofwatch.model.history import SeriesPoint
from roofwatch.model.measurement import Block, Measurement

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
        """How many pairs were left out and why, for readers of the verdict."""
        reasons: dict[str, None] = {}
        for pair in self.left_out:
            reasons |= dict.fromkeys((*pair.base, *pair.head))
        count = len(self.left_out)
        total = len(self.base) + len(self.left_out)
        text = f"{count} of {total} block pairs left out, by {{}}"
        return Remark(text, (", ".join(reasons),))


@dataclass(frozen=True)
class CyclesEvidence:
    """Base against head in clock cycles."""

    comparison: PairedEstimate
    """In clock cycles instead of ns."""
    base_mhz: float
    """Median SM clock of the blocks."""
    head_mhz: float

    @property
    def remark(self) -> Remark:
        """Say how the clock moved, and the change in cycles, which a clock does not affect."""
        low, high = self.comparison.relative_interval
        interval = f"{low:+.1%} to {high:+.1%}"
        change = f"{self.comparison.relative_change:+.1%} ({interval})"
        clocks = f"from {self.base_mhz:.0f} to {self.head_mhz:.0f} MHz"
        return Remark(f"the SM clock moved {clocks}; in clock cycles the change is {change}")


def block_pairs(base: Measurement, head: Measurement) -> BlockPairs:
    """Pair the blocks of two measurements with equally many, and leave out degraded pairs."""
    base_blocks: list[Block] = []
    head_blocks: list[Block] = []
    left_out: list[LeftOut] = []
    pairs = zip(base.blocks, head.blocks, strict=True)
    for position, (base_block, head_block) in enumerate(pairs):
        base_reasons = _degraded_by(base_block)
        head_reasons = _degraded_by(head_block)
        # a pair with one bad side says nothing about the change
        if base_reasons or head_reasons:
            left_out.append(
                LeftOut(
                    position=position,
                    base=base_reasons,
                    head=head_reasons,
                )
            )
        else:
            base_blocks.append(base_block)
            head_blocks.append(head_block)
    return BlockPairs(
        base=tuple(base_blocks),
        head=tuple(head_blocks),
        left_out=tuple(left_out),
    )


def _degraded_by(block: Block) -> tuple[str, ...]:
    if block.device_state is None:
        return ()
    return block.device_state.degraded_by


def compare_cycles(pairs: BlockPairs, *, threshold: float) -> CyclesEvidence | None:
    """Compare clock cycles the way times are compared; None unless the SM clock of every block is
    known.
    """
    base = _in_cycles(pairs.base)
    head = _in_cycles(pairs.head)
    if base is None or head is None:
        return None
    comparison = compare(base.kilocycles, head.kilocycles, threshold=threshold)
    return CyclesEvidence(
        comparison,
        base_mhz=base.median_mhz,
        head_mhz=head.median_mhz,
    )


@dataclass(frozen=True)
class _Cycles:
    kilocycles: list[list[float]]
    """Of each sample, by block."""
    median_mhz: float


def _in_cycles(blocks: Sequence[Block]) -> _Cycles | None:
    """Samples in kilocycles, and the median clock in MHz."""
    kilocycles: list[list[float]] = []
    clocks_mhz: list[float] = []
    for block in blocks:
        clock_mhz = None
        if block.device_state is not None:
            clock_mhz = block.device_state.sm_clock_mhz
        # without the clock of every block, cycles and times would be of other blocks
        if not clock_mhz:
            return None
        clocks_mhz.append(clock_mhz)
        # MHz times ns are thousandths of a cycle
        kilocycles_per_ns = clock_mhz / 1e3
        kilocycles.append([sample_ns * kilocycles_per_ns for sample_ns in block.samples_ns])
    if not clocks_mhz:
        return None
    return _Cycles(kilocycles, statistics.median(clocks_mhz))


def is_clock_move(times: PairedEstimate, cycles: CyclesEvidence) -> bool:
    """Whether the clock explains the change in time: the verdict on cycles differs."""
    is_changed = times.verdict.is_change
    if not is_changed or cycles.comparison.verdict is times.verdict:
        return False
    clock_log_ratio = cycles.comparison.log_ratio - times.log_ratio
    is_opposed = clock_log_ratio * times.log_ratio < 0
    return is_opposed and abs(clock_log_ratio) > math.log1p(MIN_CLOCK_MOVE)


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
        # a lower clock takes longer, so the signs differ
        is_opposite = clock * self.log_change < 0
        return is_opposite and abs(clock) >= math.log1p(MIN_CLOCK_MOVE)

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
        # what remains of the change in clock cycles
        log_change_in_cycles = self.share_in_cycles * abs(self.log_change)
        return log_change_in_cycles < math.log1p(min_relative_change)

    def in_words(self) -> str:
        """Say how the clock moved, and the change in cycles, which it does not affect."""
        clocks = f"from {self.before_mhz:.0f} to {self.after_mhz:.0f} MHz"
        change = math.expm1(self.log_cycles)
        return f"the SM clock moved {clocks}, and in clock cycles the change is {change:+.1%}"


def clock_step(
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
    log_change: float,
) -> ClockStep | None:
    """Convert a step, ln(after / before) of times, to clock cycles; None if too few runs of a level
    have a clock.
    """
    old_clock = _clock_of(before)
    new_clock = _clock_of(after)
    if old_clock is None or new_clock is None:
        return None
    return ClockStep(
        before_mhz=old_clock.median_mhz,
        after_mhz=new_clock.median_mhz,
        log_change=log_change,
        log_cycles=log_change + new_clock.log_mhz - old_clock.log_mhz,
    )


@dataclass(frozen=True)
class _LevelClock:
    """The SM clock of the runs of one level."""

    median_mhz: float
    log_mhz: float
    """ln(cycles / time) of the level, from the median of each."""


def _clock_of(runs: Sequence[SeriesPoint]) -> _LevelClock | None:
    """Typical clock of a level in MHz; None if too few of its runs have one."""
    clocks: list[float] = []
    log_times: list[float] = []
    log_cycles: list[float] = []
    for run in runs:
        if run.value and run.sm_clock_mhz:
            clocks.append(run.sm_clock_mhz)
            log_times.append(math.log(run.value))
            log_cycles.append(math.log(run.value * run.sm_clock_mhz))
    # a few runs with a clock may not be like the others of the level
    if len(clocks) < max(_MIN_RUNS, _MIN_SHARE * len(runs)):
        return None
    log_mhz = statistics.median(log_cycles) - statistics.median(log_times)
    return _LevelClock(statistics.median(clocks), log_mhz)
