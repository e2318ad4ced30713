"""Whether the clock changed or the code: of a comparison of two records, and of one step of a history. Pure.

A block taken while the device was held back or shared says less about the kernel; its pair is left out on both sides.
A change in time must then be there in clock cycles too, time multiplied by the SM clock that was read meanwhile: a
kernel that takes the same cycles at a lower clock has not regressed. (As nvbench-compare does, NVIDIA/nvbench.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare
from roofwatch.ci.message import Remark
from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.db.values import SeriesPoint, Verdict

MIN_CLOCK_MOVE = 0.01
"""A clock that moved by less is at the same step: steps are 15 MHz, of some 1,500."""


GONE = 1 / 3
"""A change in cycles of less than this share of the change in time is none: the noise of a median clock leaves that."""
_MIN_RUNS = 3
"""On either level, with a clock."""
_MIN_SHARE = 0.5
"""Of the runs of a level, with a clock."""


# --- two records


@dataclass(frozen=True)
class LeftOut:
    """A pair of blocks that is not compared, and why."""

    position: int
    """From 0, in the order taken."""
    base: tuple[str, ...]
    """What degraded the base's block; empty where it is fine."""
    head: tuple[str, ...]


@dataclass(frozen=True)
class BlockPairs:
    base: tuple[Block, ...]
    """Those that count, block i beside block i of the head."""
    head: tuple[Block, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def are_too_few(self) -> bool:
        """There were enough pairs, or there might have been, and too few count."""
        return bool(self.left_out) and len(self.base) < MIN_BLOCKS

    @property
    def remark(self) -> Remark:
        """What was left out, in words."""
        total = len(self.base) + len(self.left_out)
        reasons = dict.fromkeys(reason for pair in self.left_out for reason in (*pair.base, *pair.head))
        return Remark(f"{len(self.left_out)} of {total} block pairs left out, by {{}}", (", ".join(reasons),))


@dataclass(frozen=True)
class CycleComparison:
    """Base against head in clock cycles."""

    comparison: Comparison
    """Its times are clock cycles: ns multiplied by GHz."""
    base_mhz: float
    """Median of the blocks' SM clocks."""
    head_mhz: float

    @property
    def remark(self) -> Remark:
        low, high = self.comparison.relative_interval
        return Remark(
            f"the SM clock moved from {self.base_mhz:.0f} to {self.head_mhz:.0f} MHz; in clock cycles the change is "
            f"{self.comparison.relative_change:+.1%} ({low:+.1%} to {high:+.1%})"
        )


def block_pairs(base: Measurement, head: Measurement) -> BlockPairs:
    """Pair the blocks of two measurements with equally many, and leave degraded pairs out."""
    kept: list[tuple[Block, Block]] = []
    left_out = []
    for position, (there, here) in enumerate(zip(base.blocks, head.blocks, strict=True)):
        reasons = [() if one.device_state is None else one.device_state.degraded_by for one in (there, here)]
        if any(reasons):
            left_out.append(LeftOut(position, *reasons))
        else:
            kept.append((there, here))
    return BlockPairs(tuple(there for there, _ in kept), tuple(here for _, here in kept), tuple(left_out))


def compare_cycles(pairs: BlockPairs, *, threshold: float) -> CycleComparison | None:
    """Judge clock cycles as times are judged; None unless the SM clock of every block is known."""
    base_mhz, head_mhz = _clocks_mhz(pairs.base), _clocks_mhz(pairs.head)
    if not pairs.base or base_mhz is None or head_mhz is None:
        return None
    return CycleComparison(
        compare(_cycles(pairs.base, base_mhz), _cycles(pairs.head, head_mhz), threshold=threshold),
        base_mhz=statistics.median(base_mhz),
        head_mhz=statistics.median(head_mhz),
    )


def is_clock_move(times: Comparison, cycles: CycleComparison) -> bool:
    """Whether the clock explains the change in time: in cycles the verdict is another."""
    if times.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED} or cycles.comparison.verdict is times.verdict:
        return False
    clock_log_ratio = cycles.comparison.log_ratio - times.log_ratio
    return clock_log_ratio * times.log_ratio < 0 and abs(clock_log_ratio) > math.log1p(MIN_CLOCK_MOVE)


def _clocks_mhz(blocks: Sequence[Block]) -> list[float] | None:
    known = [block.device_state.sm_clock_mhz for block in blocks if block.device_state is not None]
    clocks = [clock for clock in known if clock]
    return clocks if len(clocks) == len(blocks) else None


def _cycles(blocks: Sequence[Block], clocks_mhz: Sequence[float]) -> list[list[float]]:
    return [
        [sample_ns * clock_mhz / 1e3 for sample_ns in block.samples_ns]
        for block, clock_mhz in zip(blocks, clocks_mhz, strict=True)
    ]


# --- one step of a history


@dataclass(frozen=True)
class ClockStep:
    """One step of a time, with the clocks on either side."""

    before_mhz: float
    """Median SM clock of the runs on the old level."""
    after_mhz: float
    log_change: float
    """Of the time."""
    log_cycles: float
    """Of the clock cycles."""

    @property
    def is_opposed(self) -> bool:
        """Whether the clock changed, in the direction that explains the time."""
        clock = self.log_cycles - self.log_change
        return clock * self.log_change < 0 and abs(clock) >= math.log1p(MIN_CLOCK_MOVE)

    @property
    def share_in_cycles(self) -> float:
        """Of the change in time, what is left in clock cycles; below 0 where these go the other way."""
        return self.log_cycles / self.log_change

    def is_clock_move(self, *, min_relative_change: float) -> bool:
        """Whether the clock explains the change, and less than `min_relative_change` is left of it in cycles."""
        if not self.is_opposed or self.share_in_cycles > GONE:
            return False
        return self.share_in_cycles * abs(self.log_change) < math.log1p(min_relative_change)

    def in_words(self) -> str:
        return (
            f"the SM clock moved from {self.before_mhz:.0f} to {self.after_mhz:.0f} MHz, and in clock cycles the "
            f"change is {math.expm1(self.log_cycles):+.1%}"
        )


def clock_step(before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], log_change: float) -> ClockStep | None:
    """A step in cycles, from the timed runs of both levels and ln(after / before) of their times; None where the clock
    of too few runs was read.
    """
    there, here = _clocked(before), _clocked(after)
    if there is None or here is None:
        return None
    levels = [statistics.median(math.log(time * mhz) for time, mhz in runs) for runs in (there, here)]
    times = [statistics.median(math.log(time) for time, _ in runs) for runs in (there, here)]
    clock_log_change = (levels[1] - levels[0]) - (times[1] - times[0])
    return ClockStep(
        before_mhz=statistics.median(mhz for _, mhz in there),
        after_mhz=statistics.median(mhz for _, mhz in here),
        log_change=log_change,
        log_cycles=log_change + clock_log_change,
    )


def _clocked(runs: Sequence[SeriesPoint]) -> list[tuple[float, float]] | None:
    """Times and clocks of the runs that have both."""
    known = [(run.value, run.sm_clock_mhz) for run in runs if run.value and run.sm_clock_mhz]
    return known if len(known) >= max(_MIN_RUNS, _MIN_SHARE * len(runs)) else None
