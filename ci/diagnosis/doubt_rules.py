"""What makes the numbers of a record less than they seem. Pure; one function a rule."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight
from roofwatch.ci.message import Remark
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import metric

ABOVE_THE_ROOF = 1.1
"""A ceiling that was measured a moment earlier repeats to a few per cent; a tenth is told."""


def failed(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """It was not timed because it failed."""
    del limit
    measurement = evidence.measurement
    if measurement is None or measurement.outcome in {Outcome.OK, Outcome.UNSUPPORTED}:
        return
    yield Finding(
        rule="failed",
        limit=None,
        weight=Weight.DOUBT,
        title=f"it was not timed: {str(measurement.outcome).replace('_', ' ')}",
        evidence=Remark("The record says: {}", ((measurement.message or "nothing more")[:300],)),
        advice="Mend that first: `roofwatch check` says what is wrong with a result and where.",
    )


def throttled(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """The device was held down or shared while it was measured.

    Source: NVIDIA NVML API reference, clock event reasons.
    """
    del limit
    measurement = evidence.measurement
    if measurement is None:
        return
    blocks = [block for block in measurement.blocks if block.device_state is not None]
    degraded = [block for block in blocks if block.device_state is not None and block.device_state.degraded_by]
    if not degraded:
        return
    reasons = sorted({name for block in degraded if block.device_state for name in block.device_state.degraded_by})
    clean = [block.median_ns for block in measurement.blocks if block not in degraded]
    slower = statistics.median(block.median_ns for block in degraded) / statistics.median(clean) if clean else None
    told = "" if slower is None else f" They took {slower:.2f} times as long as the others."
    yield Finding(
        rule="throttled",
        limit=None,
        weight=Weight.DOUBT,
        title="the device did not run freely",
        evidence=Remark(
            f"{len(degraded)} of {len(measurement.blocks)} blocks were taken while the device was slowed down or "
            "shared: "
            f"{', '.join('{}' for _ in reasons)}.{told}",
            tuple(reasons),
        ),
        advice="Measure again when it is cool and alone; raise the power limit or lock the clocks below what it can "
        "hold.",
        most_speedup=slower if slower is not None and slower > 1 else None,
        is_measured=True,
    )


def unbelievable_ceilings(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Ceilings above what the vendor says the device can do."""
    del limit
    for found in evidence.published:
        if not found.is_suspicious:
            continue
        measured, allowed = found.measured, max(found.published_per_s, found.at_clock_per_s)
        write = metric("memory_bytes_per_s" if measured.resource == "memory" else "flop_per_s").format
        what, words = ("memory", ()) if measured.dtype is None else ("arithmetic in {}", (measured.dtype,))
        yield Finding(
            rule="unbelievable_ceilings",
            limit=None,
            weight=Weight.DOUBT,
            title="a ceiling above the datasheet",
            evidence=Remark(
                f"For {what} this run measured {write(measured.per_s)}; the vendor's datasheet allows "
                f"{write(allowed)}. "
                "Shares of that ceiling are too low.",
                words,
            ),
            advice="Measure again; if it stays, the timer or the device is not what it says.",
        )


def above_the_roof(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Faster than the ceilings of its own run, by less than what is refused as impossible."""
    share = evidence.utilisation
    if share is None or share <= ABOVE_THE_ROOF or evidence.timing is None:
        return
    yield Finding(
        rule="above_the_roof",
        limit=None if limit is Limit.UNDETERMINED else limit,
        weight=Weight.DOUBT,
        title="faster than the ceiling of its own run",
        evidence=Remark(
            f"It reaches {share:.0%} of the roof: the device was slower while its ceilings were measured than while "
            "this "
            "was, or the cost model of the case counts work that is not done."
        ),
        advice="Measure again while nothing else runs; if it stays, look at flop_count and memory_bytes of the case.",
    )


def varying_kernels(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Calls that did not all do the same."""
    del limit
    blocks = () if evidence.measurement is None else evidence.measurement.blocks
    varying = sum(block.is_kernel_set_varying for block in blocks)
    if not varying:
        return
    yield Finding(
        rule="varying_kernels",
        limit=None,
        weight=Weight.DOUBT,
        title="calls ran different kernels",
        evidence=Remark(f"In {varying} of {len(blocks)} blocks not every launch ran the same kernels."),
        advice="Look for a choice at run time: autotuning, a cache of plans, a shape that changes.",
    )
