"""The state of the device in a comparison: which pairs of blocks count, and whether the clock moved or the code. Pure.

A block that was taken while the device was held back, or shared, says less about the kernel; its pair is left out on
both sides, so that what remains still lies side by side. What remains is judged in time. A move in time must then be
there in clock cycles too, time multiplied by the SM clock that was read meanwhile: a kernel that takes the same cycles
at a lower clock has not regressed.

Source: deciding in cycles as well as in time is nvbench's (NVIDIA/nvbench, nvbench-compare).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare
from roofwatch.ci.message import Remark
from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.db.values import Verdict

MIN_CLOCK_MOVE = 0.01
"""A clock that moved by less is at the same step: steps are 15 MHz, of some 1,500."""


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
        reasons = (_degraded_by(there), _degraded_by(here))
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
    """Whether times moved because the clock did: in cycles the verdict is another, and the clock moved so that it
    explains this.
    """
    if times.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED} or cycles.comparison.verdict is times.verdict:
        return False
    clock_log_ratio = cycles.comparison.log_ratio - times.log_ratio
    return clock_log_ratio * times.log_ratio < 0 and abs(clock_log_ratio) > math.log1p(MIN_CLOCK_MOVE)


def _degraded_by(block: Block) -> tuple[str, ...]:
    return () if block.device_state is None else block.device_state.degraded_by


def _clocks_mhz(blocks: Sequence[Block]) -> list[float] | None:
    known = [block.device_state.sm_clock_mhz for block in blocks if block.device_state is not None]
    clocks = [clock for clock in known if clock]
    return clocks if len(clocks) == len(blocks) else None


def _cycles(blocks: Sequence[Block], clocks_mhz: Sequence[float]) -> list[list[float]]:
    return [
        [sample_ns * clock_mhz / 1e3 for sample_ns in block.samples_ns]
        for block, clock_mhz in zip(blocks, clocks_mhz, strict=True)
    ]
