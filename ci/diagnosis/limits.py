"""Which limit binds, by times, ceilings and counters. Pure.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009) for the roofs; Nsight Compute documentation, "Speed
Of Light", for what is near and far of them; Volkov, Understanding Latency Hiding on GPUs (2016) for what it means to be
far from all of them; Gray, Getting Started with CUDA Graphs (NVIDIA developer blog, 2019) for launches.
"""

from __future__ import annotations

from roofwatch.ci.diagnosis.evidence import Evidence, Timing
from roofwatch.ci.diagnosis.finding import Limit
from roofwatch.collector.device.roofline import binding_level
from roofwatch.collector.record.measurement import is_host_bound

NEAR = 0.8
"""From here on a roof is taken to bind, and what is left below it is little. Nsight Compute's own rule speaks of a
bottleneck above 80 % of the peak.
"""
FAR = 0.6
"""Below it no roof explains the time. Nsight Compute's rule speaks of latency where both memory and arithmetic stay
below 60 %. Between the two the nearer roof binds, with room below it.
"""
FIXED_COST_NS = {"cpu": 3_000.0, "cuda": 2_000.0, "hip": 3_000.0}
"""What a launch costs that does nothing, where the record has none: on a GPU from a kernel's start to its end; on a
CPU one operator of torch. Only the order of magnitude matters.
"""
FIXED_SHARE = 0.5
"""A launch of which half or more is that cost is bound by it: nothing done to its body can halve it."""
MISSED_CACHE = 1 / NEAR
"""Data that would fit into the cache comes from memory all the same where memory's own ceiling explains the time: from
`NEAR` of it up to this many times of it. Further above, a slower part of the cache served it.
"""
GAP_SHARE = 0.2
"""Of the time between a call's first and last kernel. Kernels that are issued ahead follow each other within a
microsecond; where a fifth and more is pauses, closing them saves more than most tuning does.
"""


def binding_limit(evidence: Evidence) -> Limit:
    """The one thing that the time of a call is spent on most, as far as the record tells.

    What keeps the device from working at all is asked first (the host, pauses), then the roofs, then what a launch
    costs by itself. What none of them explains is latency on a GPU; on a CPU there is no such name for the rest.
    """
    timing = evidence.timing
    if timing is None:
        return Limit.UNDETERMINED
    if is_host_bound(timing.median_ns, timing.host_ns):
        return Limit.HOST
    if gap_share(timing) >= GAP_SHARE:
        return Limit.LAUNCH
    if evidence.case.bus_bytes is not None:
        return Limit.LINKS
    roof = _near_roof(evidence)
    if roof is not None:
        return roof
    if fixed_share(evidence) >= FIXED_SHARE:
        return Limit.LAUNCH
    if (evidence.utilisation or 0.0) >= FAR:
        return _own_roof(evidence)
    if evidence.is_gpu and (evidence.vector_share or 0.0) >= FAR:
        return Limit.COMPUTE
    if misses_cache(evidence):
        return Limit.MEMORY if (evidence.dram_share or 0.0) <= MISSED_CACHE else Limit.CACHE
    if is_all_calls(evidence):
        return Limit.LAUNCH
    if evidence.is_gpu and evidence.utilisation is not None:
        return Limit.LATENCY
    return Limit.UNDETERMINED


def gap_share(timing: Timing) -> float:
    """Of the time from the first kernel's start to the last one's end, the share in which nothing ran and the device
    did not wait for its host: times are taken on an idle device, where pauses up to the time that issuing the call
    takes are the host's, and are not there in a loop of calls that the host keeps ahead of.
    """
    paused_ns = timing.span_ns - timing.median_ns
    return max(0.0, paused_ns - (timing.host_ns or 0.0)) / timing.span_ns


def fixed_ns(evidence: Evidence) -> float:
    """What the launches of one call cost if they did nothing."""
    timing = evidence.timing
    kernels = 1 if timing is None or not timing.kernel_count else timing.kernel_count
    return kernels * one_launch_ns(evidence)


def one_launch_ns(evidence: Evidence) -> float:
    """What one launch costs that does nothing, by the record or by rule of thumb."""
    return evidence.floor_ns or FIXED_COST_NS[evidence.environment.device_kind]


def fixed_share(evidence: Evidence) -> float:
    """Of the call's time, the part that its launches cost if they did nothing; 1 at most."""
    return 0.0 if evidence.timing is None else min(fixed_ns(evidence) / evidence.timing.median_ns, 1.0)


def reachable_ns(evidence: Evidence) -> float | None:
    """The least time that a single launch can take: that of the roof, or what a launch costs; None without a roof."""
    least_ns = evidence.roof.least_ns
    return None if least_ns is None or not evidence.has_roof else max(least_ns, one_launch_ns(evidence))


def misses_cache(evidence: Evidence) -> bool:
    """Far below the cache's ceiling, yet at memory's or above it."""
    is_cache = evidence.roof.memory is not None and evidence.roof.memory.level == "cache"
    return is_cache and (evidence.utilisation or 0.0) < FAR and (evidence.dram_share or 0.0) >= NEAR


def is_all_calls(evidence: Evidence) -> bool:
    """On a CPU, where nobody counts kernels: the work is so little that even one call costs more."""
    least_ns = evidence.roof.least_ns
    return (
        not evidence.is_gpu
        and least_ns is not None
        and evidence.has_roof
        and least_ns < FIXED_SHARE * one_launch_ns(evidence)
    )


def _near_roof(evidence: Evidence) -> Limit | None:
    """By what was counted, where that was; else by the model."""
    level = binding_level(evidence.levels)
    if level is not None and (level.utilisation or 0.0) >= max(NEAR, evidence.compute_share or 0.0):
        return Limit.MEMORY if level.level == "dram" else Limit.CACHE
    return _own_roof(evidence) if (evidence.utilisation or 0.0) >= NEAR else None


def _own_roof(evidence: Evidence) -> Limit:
    if evidence.roof.bound == "compute":
        return Limit.COMPUTE
    return Limit.CACHE if evidence.roof.memory is not None and evidence.roof.memory.level == "cache" else Limit.MEMORY
