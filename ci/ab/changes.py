"""Judges of memory, host time, accuracy and hardware counters: a pairing to changes. Pure.

Memory is counted, and an accuracy check draws the same inputs every time. Their changes need a
relevant size and no test against noise. Host time is compared block by block, in a pair only.
Counters decide nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.compare import PairedEstimate, alpha_at, compare, control_false_discoveries
from roofwatch.ci.judge.change import (
    Change,
    ChangeSubject,
    counted_change,
    log_ratio_of,
)
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.model.case_key import CaseKey
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Block, Measurement
from roofwatch.model.results import Accuracy, Counters
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MIN_BLOCK_BYTES = 512
"""torch's smallest block: less memory counts as this."""
_MIN_SHARE = 0.01
"""A counter that is a share is left out if it stays below this on both sides."""
_MIN_COUNTER_CHANGE = 0.02
"""Two runs of one kernel differ by less."""
_FLOAT32_EPSILON = 2.0**-23
_FLOAT64_EPSILON = 2.0**-52
_ORDER = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED)


# --- memory and host time


def judge_launches(pairing: Pairing, keys: Iterable[CaseKey]) -> list[Change[None]]:
    """Judge memory and host time of a launch where results are right on both sides, worst first."""
    # another device has another allocator and another host
    if not pairing.is_one_runner:
        return []
    measured = dict(_timed_alike(pairing, keys))
    changes: list[Change[None]] = []
    base = pairing.base.environment
    head = pairing.head.environment
    for key, (base_measured, head_measured) in measured.items():
        memory = _judge_memory(
            key=key,
            base=base_measured,
            head=head_measured,
            is_one_allocator=base.torch_version == head.torch_version,
        )
        if memory is not None:
            changes.append(memory)
    # host time drifts with the load of the machine, so only neighbouring blocks compare
    if pairing.is_interleaved:
        changes += _judge_hosts(measured)
    return sorted(changes, key=_worst_first)


_Measured = tuple[Measurement, Measurement]
"""Of base and head."""


def _timed_alike(pairing: Pairing, keys: Iterable[CaseKey]) -> Iterator[tuple[CaseKey, _Measured]]:
    for key in keys:
        base, head = (results.measurement for results in pairing.of(key))
        if base is None or head is None:
            continue
        # rotated inputs take more memory, and each timer its own host time
        base_method = base.timer, base.cache
        head_method = head.timer, head.cache
        # times of another timer or cache state are not comparable
        if base_method == head_method:
            yield key, (base, head)


def _judge_memory(
    key: CaseKey,
    base: Measurement,
    head: Measurement,
    *,
    is_one_allocator: bool,
) -> Change[None] | None:
    """Judge the peak of allocated memory; None if it did not change by enough."""
    if base.memory is None or head.memory is None:
        return None
    # a call that failed has allocated only a part
    if not base.blocks or not head.blocks:
        return None
    base_bytes = float(base.memory.peak_allocated_bytes)
    head_bytes = float(head.memory.peak_allocated_bytes)
    # 0 to 1 byte is no relevant growth
    ratio = max(head_bytes, MIN_BLOCK_BYTES) / max(base_bytes, MIN_BLOCK_BYTES)
    if abs(math.log(ratio)) < math.log1p(THRESHOLDS.memory_relative_change):
        return None
    verdict = Verdict.of_change(is_worse=head_bytes > base_bytes)
    reason = Reason.MEMORY_CHANGED
    # another release of torch rounds allocations in another way
    if not is_one_allocator:
        verdict = Verdict.UNCHANGED
        reason = Reason.TOOLCHAIN_CHANGED
    return counted_change(
        subject=ChangeSubject(*key),
        name="peak_allocated_bytes",
        base=base_bytes,
        head=head_bytes,
        verdict=verdict,
        reason=reason,
    )


def _judge_hosts(measured: Mapping[CaseKey, _Measured]) -> Iterator[Change[None]]:
    """Judge the time that the host takes to issue a call, with one error rate for all cases."""
    compared: dict[CaseKey, PairedEstimate] = {}
    for key, (base, head) in measured.items():
        comparison = _compare_hosts(base, head)
        if comparison is not None:
            compared[key] = comparison
    # one family: of many cases some differ by chance
    controlled = control_false_discoveries(list(compared.values()), THRESHOLDS.false_discovery_rate)
    for key, comparison in zip(compared, controlled, strict=True):
        if comparison.verdict.is_change:
            yield Change(
                subject=ChangeSubject(*key),
                metric="host_ns",
                base=comparison.base_ns,
                head=comparison.head_ns,
                log_ratio=comparison.log_ratio,
                log_interval=comparison.log_interval,
                verdict=comparison.verdict,
                reason=Reason.HOST_CHANGED,
                evidence=None,
            )


def _compare_hosts(base: Measurement, head: Measurement) -> PairedEstimate | None:
    """None unless every block of both sides has a host time."""
    # blocks are compared in pairs
    if not base.blocks or len(base.blocks) != len(head.blocks):
        return None
    pairs = block_pairs(base, head)
    base_ns = _host_times(pairs.base)
    head_ns = _host_times(pairs.head)
    if pairs.are_too_few or not pairs.base or base_ns is None or head_ns is None:
        return None
    return compare(
        base_ns,
        head_ns,
        threshold=THRESHOLDS.host_relative_change,
        error_rate=alpha_at(len(base.blocks)),
    )


def _host_times(blocks: Sequence[Block]) -> list[list[float]] | None:
    times_ns = [[block.host_ns] for block in blocks if block.host_ns is not None]
    # blocks are compared in pairs, so all need a time
    if len(times_ns) < len(blocks):
        return None
    return times_ns


def _worst_first(change: Change[None]) -> tuple[int, float, str, ChangeSubject]:
    size = abs(change.log_ratio)
    return (
        _ORDER.index(change.verdict),
        -size,
        change.metric,
        change.subject,
    )


# --- accuracy


def judge_accuracy(pairing: Pairing) -> list[Change[None]]:
    """Find tensors whose error grew or fell by a factor within the tolerance, the largest growth
    first.

    Only results that were right on both sides and checked on one runner class, or in Triton's
    interpreter, count.
    """
    changes: list[Change[None]] = []
    for key in pairing.keys:
        base, head = (results.accuracy for results in pairing.of(key))
        if base is None or head is None or base.executor != head.executor:
            continue
        # the interpreter computes the same on every machine
        is_same_machine = pairing.is_one_runner or head.executor == "interpreter"
        is_right = base.outcome is head.outcome is Outcome.OK
        if is_right and is_same_machine:
            changes += _changed_errors(base, head)
    least = math.log1p(THRESHOLDS.error_relative_change)
    relevant = [change for change in changes if abs(change.log_ratio) >= least]
    return sorted(relevant, key=lambda change: (-change.log_ratio, change.subject))


def _changed_errors(base: Accuracy, head: Accuracy) -> Iterator[Change[None]]:
    """The tensors whose error changed noticeably within the tolerance."""
    base_errors = {tensor.tensor: tensor.rmse_ratio for tensor in base.tensors}
    for tensor in head.tensors:
        base_error = base_errors.get(tensor.tensor)
        head_error = tensor.rmse_ratio
        # an equal error is no change, however large it is
        if base_error is None or base_error == head_error:
            continue
        # below the floor, an error is rounding
        if max(base_error, head_error) > error_floor(head.case_id):
            reason = Reason.MORE_ACCURATE
            if head_error > base_error:
                reason = Reason.LESS_ACCURATE
            yield counted_change(
                subject=ChangeSubject(
                    head.case_id,
                    head.implementation,
                    part=tensor.tensor,
                ),
                name="rmse_ratio",
                base=base_error,
                head=head_error,
                reason=reason,
            )


def error_floor(case_id: str) -> float:
    """RMSE ratio up to which a result is as accurate as its arithmetic. Kernels accumulate in
    float32 or wider.
    """
    if "/float64/" in case_id:
        return _FLOAT64_EPSILON
    return _FLOAT32_EPSILON


# --- counters


def judge_counters(pairing: Pairing) -> list[Change[None]]:
    """Find hardware counters that changed by 2 % or more, the largest change first."""
    return compare_counters(pairing.base.counters, pairing.head.counters)


def compare_counters(base: Iterable[Counters], head: Iterable[Counters]) -> list[Change[None]]:
    """Compare counters of launches.

    Kernels are paired by case, implementation, name and their order among kernels of that name in
    the call. Kernels of one side alone are left out.
    """
    base_by_kernel = dict(_numbered(base))
    changes: list[Change[None]] = []
    for kernel, head_counters in _numbered(head):
        base_counters = base_by_kernel.get(kernel)
        if base_counters is not None:
            changes += _changed_counters(base_counters, head_counters)
    # the name decides between equal sizes, so the order is always the same
    return sorted(changes, key=lambda change: (-abs(change.log_ratio), _name_of(change)))


def _changed_counters(base: Counters, head: Counters) -> Iterator[Change[None]]:
    """The counters that both sides have and that changed noticeably."""
    least = math.log1p(_MIN_COUNTER_CHANGE)
    for name in head.values.keys() & base.values.keys():
        base_value = base.values[name]
        head_value = head.values[name]
        # twice next to nothing is still next to nothing
        if name.endswith("_share") and max(base_value, head_value) < _MIN_SHARE:
            continue
        if abs(log_ratio_of(base_value, head_value)) >= least:
            subject = ChangeSubject(
                case_id=head.case_id,
                implementation=head.implementation,
                part=head.function,
                launch_index=head.launch_index,
            )
            yield counted_change(
                subject=subject,
                name=name,
                base=base_value,
                head=head_value,
                reason=Reason.COUNTER_CHANGED,
            )


def _name_of(change: Change[None]) -> tuple[str, str, int, str, str]:
    subject = change.subject
    return (
        subject.case_id,
        subject.implementation,
        subject.launch_index,
        change.metric,
        subject.part,
    )


_Kernel = tuple[str, str, str, int]
"""Case id, implementation, name, and order among the kernels of that name."""


def _numbered(counters: Iterable[Counters]) -> Iterator[tuple[_Kernel, Counters]]:
    """Number the launches of each kernel of a case, in their order."""
    counts = Counter[tuple[str, str, str]]()
    for launch in sorted(counters, key=lambda launch: launch.launch_index):
        name = launch.case_id, launch.implementation, launch.function
        yield (*name, counts[name]), launch
        counts[name] += 1
