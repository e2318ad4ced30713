"""What hardware counters add to times and models. Pure; one function a rule.

docs/how-to/diagnose.md lists the rules with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight, at_least_one
from roofwatch.ci.message import Remark
from roofwatch.collector.record.metrics import format_bytes

EXCESS_TRAFFIC = 1.2
"""Bytes counted / bytes of the model from which on they are told: headers, masks and partial lines make a few per cent
on any kernel; a fifth more is data that was fetched twice, or lines of which a part was used.
"""
TAIL = 1.15
"""Rounds of blocks begun / rounds of blocks filled from which on the last one, half empty, is told."""
_MAX_PROFILER_FINDINGS = 3


def excess_traffic(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """More bytes than the work needs.

    Source: NVIDIA CUDA C++ Best Practices Guide, "Coalesced access to global memory".
    """
    counted, needed = evidence.counted.get("dram_bytes"), evidence.case.memory_bytes
    if counted is None or not needed or counted <= EXCESS_TRAFFIC * needed:
        return
    binds = limit is Limit.MEMORY and evidence.utilisation is not None
    yield Finding(
        rule="excess_traffic",
        limit=Limit.MEMORY,
        weight=Weight.CAUSE,
        title="more memory traffic than the work needs",
        evidence=Remark(
            f"The hardware counted {format_bytes(counted)} to and from memory; by its model the work needs "
            f"{format_bytes(needed)}, so {counted / needed:.1f} times as much was moved."
        ),
        advice="Either data is read again after the cache has dropped it (reorder the blocks so that neighbours use "
        "the "
        "same data, enlarge the tile), or neighbouring threads read addresses that are apart, and most of each line "
        "of memory is thrown away (let neighbours read neighbours).",
        most_speedup=at_least_one(min(counted / needed, 1 / (evidence.utilisation or 1.0))) if binds else None,
    )


def waves(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Blocks that do not fill the multiprocessors evenly.

    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Wave quantization" and "Tile quantization".
    """
    del limit
    known = [entry.values["waves_per_multiprocessor"] for entry in evidence.counters if _has_waves(entry.values)]
    if len(known) != 1 or evidence.timing is None:
        return  # of several kernels none is the call
    count = known[0]
    if count < 1:
        yield Finding(
            rule="waves",
            limit=Limit.LATENCY,
            weight=Weight.CAUSE,
            title="too few blocks for the device",
            evidence=Remark(f"Its blocks fill {count:.0%} of what the multiprocessors can hold at once."),
            advice="Make more blocks: smaller tiles, or split the dimension that is summed over (split K).",
        )
    elif math.ceil(count) / count >= TAIL:
        yield Finding(
            rule="waves",
            limit=Limit.LATENCY,
            weight=Weight.CAUSE,
            title="the last round of blocks is half empty",
            evidence=Remark(
                f"Its blocks fill the device {count:.3g} times, so they take {math.ceil(count)} rounds, of which the "
                "last "
                "leaves multiprocessors idle."
            ),
            advice="Choose tiles that make a whole number of rounds, or let as many blocks as fit take tiles from a "
            "list "
            "until none is left (a persistent kernel).",
            most_speedup=math.ceil(count) / count,
        )


def _has_waves(values: object) -> bool:
    return isinstance(values, dict) and values.get("waves_per_multiprocessor", 0.0) > 0


def profiler_says(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """The rules of Nsight Compute, by their own estimate.

    Source: Nsight Compute documentation, "Sections and rules".
    """
    del limit
    found = [
        (finding, entry.function)
        for entry in evidence.counters
        for finding in entry.findings
        if finding.estimated_speedup and not finding.is_estimate_of_a_part
    ]
    found.sort(key=lambda item: -(item[0].estimated_speedup or 0.0))
    for finding, function in found[:_MAX_PROFILER_FINDINGS]:
        saved = min(finding.estimated_speedup or 0.0, 0.99)
        yield Finding(
            rule="profiler_says",
            limit=None,
            weight=Weight.CAUSE,
            title="a rule of Nsight Compute",
            evidence=Remark(
                f"Of {{}} it says, with {saved:.0%} of the time to be saved: {{}}", (function, finding.message)
            ),
            advice="Follow it in the report, which `roofwatch ncu --output` keeps; how much it saves is its own "
            "estimate.",
            # of several kernels, how much of the call this one takes is not known
            most_speedup=1 / (1 - saved) if len(evidence.counters) == 1 else None,
        )
