"""Changes between two records besides their times: memory, host time, accuracy, hardware counters. Pure.

Memory is counted and a check draws the same inputs every time, so code that did not change shows the same numbers: a
change needs a size worth reporting, and no test against noise. The host's time of a launch is a time: it is compared
block by block, in a pair only. Counters say what changed in the work of a kernel; they decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.comparable import Key, SideResults
from roofwatch.ci.ab.compare import Comparison, alpha_at, compare, control_false_discoveries
from roofwatch.ci.reason import Reason
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters
from roofwatch.db.values import Verdict

_MEMORY = "peak_allocated_bytes"
_LEAST_BYTES = 512
"""torch's smallest block: what takes none counts as taking this."""
_LEAST_SHARE = 0.01
"""A counted share that stays below it on both sides, such as a stall that nearly never happens, is left out."""
_SINGLE_SPACING, _DOUBLE_SPACING = 2.0**-23, 2.0**-52
"""Between 1 and the next number, of float32 and float64. Kernels add up in float32, whatever they read and write."""
_ORDER = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED)


@dataclass(frozen=True)
class Change:
    """One number of one case and implementation, base against head."""

    case_id: str
    implementation: str
    metric: str
    """Or the name of a counter, with its unit."""
    base: float
    """In the metric's unit."""
    head: float
    verdict: Verdict = Verdict.UNCHANGED
    """`unchanged` where the number decides nothing."""
    reason: Reason = Reason.COUNTER_MOVED
    part: str = ""
    """Tensor of an accuracy, kernel of a counter."""
    launch_index: int = 0
    """Of a counter: which launch of a call."""
    relative_interval: tuple[float, float] | None = None
    """Of the change, at 95 %; None of what is counted."""

    @property
    def relative_change(self) -> float:
        """(head − base) / base; infinite where the base is 0."""
        if self.base == self.head:
            return 0.0
        return (self.head - self.base) / self.base if self.base else math.copysign(math.inf, self.head)

    @property
    def log_ratio(self) -> float:
        """ln(head / base); infinite where one of the two is 0."""
        if self.base == self.head:
            return 0.0
        if self.base > 0 and self.head > 0:
            return math.log(self.head / self.base)
        return math.copysign(math.inf, self.head - self.base)

    @property
    def in_words(self) -> str:
        """`peak allocated memory 1 MiB → 2 MiB (+100.0%)`."""
        known = metric(self.metric)
        change = "" if math.isinf(self.relative_change) else f" ({self.relative_change:+.1%})"
        return f"{known.title} {known.format(self.base)} → {known.format(self.head)}{change}"


# --- memory and the host's time


def find_secondary_changes(
    base: RunRecord, head: RunRecord, works: Sequence[Key], thresholds: Thresholds, *, is_paired: bool
) -> tuple[Change, ...]:
    """Changes of a launch's memory and of the host's time for it, worst first.

    Args:
        base: What to compare against.
        head: What is new.
        works: Cases and implementations that give right results on both sides.
        thresholds: What is worth reporting.
        is_paired: The records are of one job, blocks interleaved, on one device.
    """
    if base.environment.runner_class != head.environment.runner_class:
        return ()
    there, here = SideResults(base).measurements, SideResults(head).measurements
    both = [
        (key, there[key], here[key])
        for key in works
        if key in there and key in here and (there[key].timer, there[key].cache) == (here[key].timer, here[key].cache)
    ]
    is_one_allocator = base.environment.torch_version == head.environment.torch_version
    changes = list(_memory_changes(both, thresholds.memory_relative_change, is_one_allocator=is_one_allocator))
    if is_paired:
        changes += _host_changes(both, thresholds)
    return tuple(
        sorted(
            changes,
            key=lambda one: (
                *(_ORDER.index(one.verdict), -abs(one.log_ratio)),
                *(one.case_id, one.implementation, one.metric),
            ),
        )
    )


_Both = Sequence[tuple[Key, Measurement, Measurement]]


def _memory_changes(both: _Both, threshold: float, *, is_one_allocator: bool) -> Iterator[Change]:
    for key, base, head in both:
        if base.memory is None or head.memory is None or not base.blocks or not head.blocks:
            continue
        before, after = base.memory.peak_allocated_bytes, head.memory.peak_allocated_bytes
        if abs(math.log(max(after, _LEAST_BYTES) / max(before, _LEAST_BYTES))) < math.log1p(threshold):
            continue
        verdict, reason = Verdict.UNCHANGED, Reason.TOOLCHAIN_MOVED
        if is_one_allocator:
            is_worse = metric(_MEMORY).is_worse(base=before, head=after)
            verdict, reason = Verdict.REGRESSED if is_worse else Verdict.IMPROVED, Reason.MEMORY_MOVED
        yield Change(*key, _MEMORY, float(before), float(after), verdict, reason)


def _host_changes(both: _Both, thresholds: Thresholds) -> Iterator[Change]:
    compared = {
        key: comparison
        for key, base, head in both
        if (comparison := _compare_hosts(base, head, thresholds.host_relative_change)) is not None
    }
    survivors = control_false_discoveries(list(compared.values()), thresholds.false_discovery_rate)
    for key, one in zip(compared, survivors, strict=True):
        if one.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}:
            yield Change(
                *(*key, "host_ns", one.base_ns, one.head_ns, one.verdict, Reason.HOST_MOVED),
                relative_interval=one.relative_interval,
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
    return compare(there, here, threshold=threshold, error_rate=alpha_at(len(base.blocks)))


# --- accuracy


def find_accuracy_changes(base: RunRecord, head: RunRecord, *, relative_change: float) -> tuple[Change, ...]:
    """Tensors whose error changed within the tolerance, what got less accurate first, then by the factor.

    Compared is what was right on both sides and was checked by the same means: on one runner class, or in Triton's
    interpreter on both.

    Args:
        base: What to compare against.
        head: What is new.
        relative_change: Growth of an error that is worth reporting, as a fraction; a fall by the same factor is too.
    """
    known = {(one.case_id, one.implementation, one.executor): one for one in base.accuracies}
    is_one_device = base.environment.runner_class == head.environment.runner_class
    changes = []
    for after in head.accuracies:
        before = known.get((after.case_id, after.implementation, after.executor))
        if before is None or not before.outcome is after.outcome is Outcome.OK:
            continue
        if not is_one_device and after.executor != "interpreter":
            continue
        errors = {tensor.tensor: tensor.rmse_ratio for tensor in before.tensors}
        for tensor in after.tensors:
            old, new = errors.get(tensor.tensor), tensor.rmse_ratio
            if old is not None and old != new and max(old, new) > error_floor(after.case_id):
                reason = Reason.LESS_ACCURATE if new > old else Reason.MORE_ACCURATE
                subject = after.case_id, after.implementation
                changes.append(Change(*subject, "rmse_ratio", old, new, reason=reason, part=tensor.tensor))
    return tuple(
        sorted(
            (one for one in changes if abs(one.log_ratio) >= math.log1p(relative_change)),
            key=lambda one: (-one.log_ratio, one.case_id, one.implementation, one.part),
        )
    )


def error_floor(case_id: str) -> float:
    """RMS of the error / RMS of the reference up to which a result is as right as its arithmetic: a few roundings leave
    that much, and in another order another part of it.
    """
    return _DOUBLE_SPACING if "/float64/" in case_id else _SINGLE_SPACING


# --- counters


def find_counter_changes(
    base: Iterable[Counters], head: Iterable[Counters], *, least_change: float = 0.02
) -> tuple[Change, ...]:
    """Hardware counters that changed, the most first.

    Kernels are paired by case, implementation, name and how many of that name went before in the call, so a kernel more
    or less in between changes nothing. What only one side has is left out.

    Args:
        base: Of the record to compare against.
        head: Of the new record.
        least_change: Two runs of one kernel differ by less than this fraction.
    """
    before = dict(_numbered(base))
    changes = [
        Change(
            *(new.case_id, new.implementation, name, old.values[name], value),
            part=new.function,
            launch_index=new.launch_index,
        )
        for key, new in _numbered(head)
        if (old := before.get(key)) is not None
        for name, value in new.values.items()
        if name in old.values and not (name.endswith("_share") and max(old.values[name], value) < _LEAST_SHARE)
    ]
    return tuple(
        sorted(
            (one for one in changes if abs(one.log_ratio) >= math.log1p(least_change)),
            key=lambda one: (-abs(one.log_ratio), one.case_id, one.implementation, one.launch_index, one.metric),
        )
    )


def _numbered(counters: Iterable[Counters]) -> Iterator[tuple[tuple[str, str, str, int], Counters]]:
    seen: dict[tuple[str, str, str], int] = {}
    for each in sorted(counters, key=lambda each: each.launch_index):
        kernel = (each.case_id, each.implementation, each.function)
        seen[kernel] = seen.get(kernel, -1) + 1
        yield (*kernel, seen[kernel]), each
