"""Changes between two records other than times: memory, host time, accuracy, hardware counters.
Pure.

Memory is counted, and an accuracy check draws the same inputs every time. Their changes need a
relevant size and no test against noise. Host time is compared block by block, in a pair only.
Counters decide nothing.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.comparable import Key, SideResults
from roofwatch.ci.ab.compare import Comparison, alpha_at, compare, control_false_discoveries
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import metric
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Counters
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MIN_BLOCK_BYTES = 512
"""torch's smallest block: less memory counts as this."""
_MIN_SHARE = 0.01
"""A counter that is a share is left out if it stays below this on both sides."""
_MIN_COUNTER_CHANGE = 0.02
"""Two runs of one kernel differ by less."""
_FLOAT32_EPSILON, _FLOAT64_EPSILON = 2.0**-23, 2.0**-52
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
    reason: Reason = Reason.COUNTER_CHANGED
    part: str = ""
    """Tensor of an accuracy, kernel of a counter."""
    launch_index: int = 0
    """Launch of a call, for a counter."""
    relative_interval: tuple[float, float] | None = None
    """95 % interval of the change; None for counted metrics."""

    @property
    def relative_change(self) -> float:
        """(head - base) / base; infinite where the base is 0."""
        if self.base == self.head:
            return 0.0
        return (
            (self.head - self.base) / self.base if self.base else math.copysign(math.inf, self.head)
        )

    @property
    def log_ratio(self) -> float:
        """ln(head / base); infinite where one of the two is 0."""
        if self.base == self.head:
            return 0.0
        if self.base > 0 and self.head > 0:
            return math.log(self.head / self.base)
        return math.copysign(math.inf, self.head - self.base)

    @property
    def place(self) -> tuple[str, str, int, str, str]:
        """Orders changes of one size."""
        return self.case_id, self.implementation, self.launch_index, self.metric, self.part

    @property
    def in_words(self) -> str:
        """`peak allocated memory 1 MiB → 2 MiB (+100.0%)`."""
        known = metric(self.metric)
        change = "" if math.isinf(self.relative_change) else f" ({self.relative_change:+.1%})"
        return f"{known.title} {known.format(self.base)} → {known.format(self.head)}{change}"


# --- memory and host time


def find_secondary_changes(
    base: RunRecord, head: RunRecord, works: Sequence[Key], *, is_paired: bool
) -> tuple[Change, ...]:
    """Find changes of a launch's memory and host time where results are right on both sides, worst
    first.
    """
    if base.environment.runner_class != head.environment.runner_class:
        return ()
    before, after = SideResults(base).measurements, SideResults(head).measurements
    measured = {
        key: (before[key], after[key])
        for key in works
        if key in before
        and key in after
        and (before[key].timer, before[key].cache) == (after[key].timer, after[key].cache)
    }
    is_one_allocator = base.environment.torch_version == head.environment.torch_version
    changes = [
        change
        for key, sides in measured.items()
        if (change := _memory_change(key, *sides, is_one_allocator=is_one_allocator)) is not None
    ]
    if is_paired:
        changes += _host_changes(measured)
    return tuple(
        sorted(
            changes, key=lambda one: (_ORDER.index(one.verdict), -abs(one.log_ratio), *one.place)
        )
    )


def _memory_change(
    key: Key, base: Measurement, head: Measurement, *, is_one_allocator: bool
) -> Change | None:
    if base.memory is None or head.memory is None or not base.blocks or not head.blocks:
        return None
    before, after = float(base.memory.peak_allocated_bytes), float(head.memory.peak_allocated_bytes)
    log_ratio = math.log(max(after, MIN_BLOCK_BYTES) / max(before, MIN_BLOCK_BYTES))
    if abs(log_ratio) < math.log1p(THRESHOLDS.memory_relative_change):
        return None
    verdict, reason = Verdict.UNCHANGED, Reason.TOOLCHAIN_CHANGED
    if is_one_allocator:
        verdict, reason = (
            Verdict.REGRESSED if after > before else Verdict.IMPROVED,
            Reason.MEMORY_CHANGED,
        )
    return Change(*key, "peak_allocated_bytes", before, after, verdict, reason)


def _host_changes(measured: dict[Key, tuple[Measurement, Measurement]]) -> Iterator[Change]:
    compared = {
        key: comparison
        for key, sides in measured.items()
        if (comparison := _compare_hosts(*sides)) is not None
    }
    controlled = control_false_discoveries(list(compared.values()), THRESHOLDS.false_discovery_rate)
    for key, one in zip(compared, controlled, strict=True):
        if one.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}:
            sides = one.base_ns, one.head_ns
            yield Change(
                *key,
                "host_ns",
                *sides,
                one.verdict,
                Reason.HOST_CHANGED,
                relative_interval=one.relative_interval,
            )


def _compare_hosts(base: Measurement, head: Measurement) -> Comparison | None:
    """None unless every block of both sides has a host time."""
    if not base.blocks or len(base.blocks) != len(head.blocks):
        return None
    pairs = block_pairs(base, head)
    sides = [
        [[block.host_ns] for block in side if block.host_ns is not None]
        for side in (pairs.base, pairs.head)
    ]
    if pairs.are_too_few or not pairs.base or any(len(side) < len(pairs.base) for side in sides):
        return None
    error_rate = alpha_at(len(base.blocks))
    return compare(*sides, threshold=THRESHOLDS.host_relative_change, error_rate=error_rate)


# --- accuracy


def find_accuracy_changes(base: RunRecord, head: RunRecord) -> tuple[Change, ...]:
    """Find tensors whose error grew or fell by a factor within the tolerance, the largest growth
    first.

    Only results that were right on both sides and checked on one runner class, or in Triton's
    interpreter, count.
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
                changes.append(
                    Change(*subject, "rmse_ratio", old, new, reason=reason, part=tensor.tensor)
                )
    relevant = [
        change
        for change in changes
        if abs(change.log_ratio) >= math.log1p(THRESHOLDS.error_relative_change)
    ]
    return tuple(sorted(relevant, key=lambda one: (-one.log_ratio, *one.place)))


def error_floor(case_id: str) -> float:
    """RMSE ratio up to which a result is as accurate as its arithmetic. Kernels accumulate in
    float32 or wider.
    """
    return _FLOAT64_EPSILON if "/float64/" in case_id else _FLOAT32_EPSILON


# --- counters


def find_counter_changes(base: Iterable[Counters], head: Iterable[Counters]) -> tuple[Change, ...]:
    """Find hardware counters that changed by 2 % or more, the largest change first.

    Kernels are paired by case, implementation, name and their order among kernels of that name in
    the call. Kernels of one side alone are left out.
    """
    before = dict(_numbered(base))
    changes = []
    for key, new in _numbered(head):
        old = before[key].values if key in before else {}
        for name in new.values.keys() & old.keys():
            if not name.endswith("_share") or max(old[name], new.values[name]) >= _MIN_SHARE:
                subject = new.case_id, new.implementation, name
                sides = old[name], new.values[name]
                changes.append(
                    Change(*subject, *sides, part=new.function, launch_index=new.launch_index)
                )
    relevant = [
        change for change in changes if abs(change.log_ratio) >= math.log1p(_MIN_COUNTER_CHANGE)
    ]
    return tuple(sorted(relevant, key=lambda one: (-abs(one.log_ratio), *one.place)))


def _numbered(counters: Iterable[Counters]) -> Iterator[tuple[tuple[str, str, str, int], Counters]]:
    seen: dict[tuple[str, str, str], int] = {}
    for each in sorted(counters, key=lambda each: each.launch_index):
        kernel = (each.case_id, each.implementation, each.function)
        seen[kernel] = seen.get(kernel, -1) + 1
        yield (*kernel, seen[kernel]), each
