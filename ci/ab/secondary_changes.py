"""What is measured beside the times of a pull request, base against head: memory, and the host's time. Pure.

Memory is counted, as a compiled fact is: the same code takes the same, so that a move needs no test against noise and
no pair, only one device and one version of torch, whose allocator it is. The host's time of a launch is a time: it is
compared block by block, in a pair alone, and what is told of many cases is held at the rate of false discoveries. It
never says anything of the kernel on the device, whose own time is judged apart (docs/analysis.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.compare import Comparison, compare, control_false_discoveries
from roofwatch.ci.ab.interim_analysis import error_rate_at
from roofwatch.ci.ab.side_result import Key, Side
from roofwatch.ci.reason import Reason
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.values import Verdict

_MEMORY = "peak_allocated_bytes"
_LEAST_BYTES = 512
"""torch's smallest block: what takes none counts as taking this."""
_MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


@dataclass(frozen=True)
class BesideMove:
    """One metric of one case and implementation that moved."""

    case_id: str
    implementation: str
    metric: str
    verdict: Verdict
    """`unchanged` where other versions of torch counted."""
    reason: Reason
    base: float
    """In the metric's unit."""
    head: float
    relative_interval: tuple[float, float] | None = None
    """Of the change, held with 95 %; None of what is counted."""

    @property
    def relative_change(self) -> float | None:
        """(head − base) / base; None of what took nothing before."""
        return self.head / self.base - 1 if self.base else None

    @property
    def in_words(self) -> str:
        """`peak allocated memory 1 MiB → 2 MiB (+100.0%)`."""
        known = metric(self.metric)
        change = "" if self.relative_change is None else f" ({self.relative_change:+.1%})"
        return f"{known.title} {known.format(self.base)} → {known.format(self.head)}{change}"


def find_beside_moves(
    base: RunRecord, head: RunRecord, works: Sequence[Key], thresholds: Thresholds, *, is_paired: bool
) -> tuple[BesideMove, ...]:
    """What moved, worst first.

    Args:
        base: What to compare against.
        head: What is new.
        works: Cases and implementations that give right results on both sides.
        thresholds: What is worth telling.
        is_paired: The records are of one job, blocks interleaved, on one device.
    """
    there, here = Side(base).measurements, Side(head).measurements
    if base.environment.runner_class != head.environment.runner_class:
        return ()
    both = [
        (key, there[key], here[key])
        for key in works
        if key in there and key in here and (there[key].timer, there[key].cache) == (here[key].timer, here[key].cache)
    ]
    is_one_allocator = base.environment.torch_version == head.environment.torch_version
    moves = list(_memory_moves(both, thresholds.memory_relative_change, is_one_allocator=is_one_allocator))
    if is_paired:
        moves += _host_moves(both, thresholds)
    return tuple(sorted(moves, key=_worst_first))


_Both = Sequence[tuple[Key, Measurement, Measurement]]


def _memory_moves(both: _Both, threshold: float, *, is_one_allocator: bool) -> Iterator[BesideMove]:
    for key, base, head in both:
        if base.memory is None or head.memory is None or not base.blocks or not head.blocks:
            continue
        before, after = base.memory.peak_allocated_bytes, head.memory.peak_allocated_bytes
        floored = [max(side, _LEAST_BYTES) for side in (before, after)]
        if abs(math.log(floored[1] / floored[0])) < math.log1p(threshold):
            continue
        is_worse = metric(_MEMORY).is_worse(base=before, head=after)
        verdict = Verdict.REGRESSED if is_worse else Verdict.IMPROVED
        yield BesideMove(
            *key,
            metric=_MEMORY,
            verdict=verdict if is_one_allocator else Verdict.UNCHANGED,
            reason=Reason.MEMORY_MOVED if is_one_allocator else Reason.TOOLCHAIN_MOVED,
            base=float(before),
            head=float(after),
        )


def _host_moves(both: _Both, thresholds: Thresholds) -> Iterator[BesideMove]:
    compared = [
        (key, comparison)
        for key, base, head in both
        if (comparison := _compare_hosts(base, head, thresholds.host_relative_change)) is not None
    ]
    survivors = control_false_discoveries([one for _, one in compared], thresholds.false_discovery_rate)
    for (key, _), survivor in zip(compared, survivors, strict=True):
        if survivor.verdict in _MOVED:
            yield BesideMove(
                *key,
                metric="host_ns",
                verdict=survivor.verdict,
                reason=Reason.HOST_MOVED,
                base=survivor.base_ns,
                head=survivor.head_ns,
                relative_interval=survivor.relative_interval,
            )


def _compare_hosts(base: Measurement, head: Measurement, threshold: float) -> Comparison | None:
    """None where a side does not say what its host took in each block."""
    if not base.blocks or len(base.blocks) != len(head.blocks):
        return None
    pairs = block_pairs(base, head)
    there = [[block.host_ns] for block in pairs.base if block.host_ns is not None]
    here = [[block.host_ns] for block in pairs.head if block.host_ns is not None]
    if pairs.are_too_few or not there or len(there) != len(pairs.base) or len(here) != len(pairs.head):
        return None
    return compare(there, here, threshold=threshold, error_rate=error_rate_at(len(base.blocks)))


def _worst_first(move: BesideMove) -> tuple[int, float, str, str, str]:
    order = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED)
    size = abs(math.log(move.head / move.base)) if move.base and move.head else math.inf
    return (
        order.index(move.verdict),
        -size,
        *(move.case_id, move.implementation, move.metric),
    )
