"""What is said of the limit that binds, and what was measured that explains it. Pure; one function a rule.

docs/how-to/diagnose.md lists the rules with their sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofwatch.ci.diagnosis.counter_rules import EXCESS_TRAFFIC
from roofwatch.ci.diagnosis.evidence import Evidence, Timing
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight, at_least_one, share_in_words
from roofwatch.ci.diagnosis.limits import FAR, NEAR, misses_cache, reachable_ns
from roofwatch.ci.message import Remark
from roofwatch.collector.device.roofline import LevelPosition, binding_level
from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric

FASTER_BY = 1.05
"""Another implementation that is faster by less says nothing: two runs of one differ by as much."""


# --- the limit itself


def near_roof(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Bytes or arithmetic at the ceiling, or the nearer of the two.

    Source: Williams et al., Roofline, 2009.
    """
    timing, roof = evidence.timing, evidence.roof
    if timing is None or limit not in {Limit.MEMORY, Limit.CACHE, Limit.COMPUTE}:
        return
    level = _level_that_binds(evidence, limit)
    if level is not None:
        yield _counted_roof(evidence, timing, level, limit)
    elif limit is not Limit.COMPUTE and misses_cache(evidence):
        yield _missed_cache(evidence, timing, limit)
    elif limit is Limit.COMPUTE and roof.compute is not None and roof.compute_ns is not None:
        share = roof.compute_ns / timing.median_ns
        if share < FAR:
            return  # its own units are not busy: it runs on others, of which `no_tensor_cores` tells
        rate = evidence.case.flop_count / timing.median_ns * 1e9
        yield _at_roof(
            limit,
            share,
            title="arithmetic is the limit",
            evidence=f"It does {_flop(evidence.case.flop_count)} in {format_ns(timing.median_ns)}, that is "
            f"{_flop_per_s(rate)}: {share:.0%} of the {_flop_per_s(roof.compute.per_s)} that a large matrix product "
            f"reached in the same run.",
            near="Only less arithmetic helps: a narrower type where accuracy allows it, or work that need not be done.",
            far=_MORE_OPERANDS if evidence.is_gpu else _ON_A_CPU,
        )
    elif roof.memory is not None and roof.memory_ns is not None:
        share = roof.memory_ns / timing.median_ns
        yield _at_roof(
            limit,
            share,
            title=_of_memory(limit),
            evidence=_moved(evidence.case.memory_bytes, timing, share, roof.memory),
            near=_FEWER_BYTES,
            far=_MORE_IN_FLIGHT if evidence.is_gpu else _ON_A_CPU,
        )


_FEWER_BYTES = (
    "Only fewer bytes help: do it together with the operation before or after it, so that what lies between them never "
    "reaches memory, or keep the data in a narrower type."
)
_MORE_OPERANDS = (
    "The arithmetic units wait for operands: larger tiles, more of them loaded ahead (num_stages), or fewer other "
    "instructions between the products."
)
_ON_A_CPU = (
    "On a CPU the rest of the time is mostly one of: several operators one after another, each of which reads and "
    "writes what lies "
    "between them (torch.compile joins them); arithmetic that is not vectorised, such as exp and division; data in an "
    "order that memory is slow at."
)
_MORE_IN_FLIGHT = (
    "The memory is not kept busy all the time: wider loads, more of them under way at once (more warps, num_stages), "
    "or enough blocks for every multiprocessor."
)


def _of_memory(limit: Limit) -> str:
    return "the cache is the limit" if limit is Limit.CACHE else "memory is the limit"


def _moved(byte_count: float, timing: Timing, share: float, ceiling: Ceiling) -> str:
    rate = byte_count / timing.median_ns * 1e9
    what = "data that fits into the cache" if ceiling.level == "cache" else "far more data than caches hold"
    return (
        f"It moves {format_bytes(byte_count)} in {format_ns(timing.median_ns)}, that is {_bytes_per_s(rate)}: "
        f"{share:.0%} "
        f"of the {_bytes_per_s(ceiling.per_s)} that this device reached in the same run with {what}."
    )


def _at_roof(limit: Limit, share: float, *, title: str, evidence: str, near: str, far: str) -> Finding:
    is_near = share >= NEAR
    return Finding(
        rule="near_roof",
        limit=limit,
        weight=Weight.BINDING,
        title=f"{title}, and little is left" if is_near else title,
        evidence=Remark(evidence),
        advice=near if is_near else far,
        most_speedup=at_least_one(1 / share),
    )


def _missed_cache(evidence: Evidence, timing: Timing, limit: Limit) -> Finding:
    rate = evidence.case.memory_bytes / timing.median_ns * 1e9
    memory = rate / (evidence.dram_share or 1.0)
    cache = rate / (evidence.memory_share or 1.0)
    where = "from memory" if limit is Limit.MEMORY else "from a slower part of it, shared by several cores,"
    return Finding(
        rule="near_roof",
        limit=limit,
        weight=Weight.BINDING,
        title=f"{_of_memory(limit)}: its data would fit into the cache, but is not where it is fastest",
        evidence=Remark(
            f"It moves {format_bytes(evidence.case.memory_bytes)} in {format_ns(timing.median_ns)}, that is "
            f"{_bytes_per_s(rate)}; in the same run memory delivered {_bytes_per_s(memory)} and the fastest cache "
            f"{_bytes_per_s(cache)}. So most of it seems to come {where} each time."
        ),
        advice="Work on parts that fit into the nearest cache, one after another, and finish each part before the next "
        "is begun; or move fewer bytes. If that changes nothing the bytes were not it, but arithmetic that is not "
        "vectorised, such as exp and division, or operators that read and write what lies between them.",
        most_speedup=at_least_one(1 / (evidence.utilisation or 1.0)),
    )


def _level_that_binds(evidence: Evidence, limit: Limit) -> LevelPosition | None:
    """The level of memory that was counted, where it shows more than the model does."""
    level = binding_level(evidence.levels)
    if level is None or limit is Limit.COMPUTE or (level.utilisation or 0.0) < NEAR:
        return None
    return level if (limit is Limit.MEMORY) == (level.level == "dram") else None


def _counted_roof(evidence: Evidence, timing: Timing, level: LevelPosition, limit: Limit) -> Finding:
    share = level.utilisation or 0.0
    beyond = level.byte_count / evidence.case.memory_bytes if evidence.case.memory_bytes else 1.0
    has_room = beyond > EXCESS_TRAFFIC
    if limit is Limit.CACHE:
        name = "the cache"
        advice = (
            "Fetch each piece of data less often: larger tiles, or keep what is used again in shared memory or "
            "registers."
        )
    else:
        name = "device memory"
        advice = "Move fewer bytes: it is more than the work needs." if has_room else _FEWER_BYTES
    most = min(beyond / share, 1 / (evidence.utilisation or 1.0)) if has_room else 1 / share
    return Finding(
        rule="near_roof",
        limit=limit,
        weight=Weight.BINDING,
        title=_of_memory(limit) if has_room else f"{_of_memory(limit)}, and little is left",
        evidence=Remark(
            f"The hardware counted {format_bytes(level.byte_count)} through {name} in a call of "
            f"{format_ns(timing.median_ns)}: {share:.0%} of what it can deliver."
        ),
        advice=advice,
        most_speedup=at_least_one(most),
    )


def latency(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Far from both roofs: the device waits.

    Source: Volkov, Understanding Latency Hiding on GPUs, 2016: throughput is what is under way at once, over how long
    each piece of it takes (Little's law).
    """
    if limit is not Limit.LATENCY or evidence.utilisation is None:
        return
    reached = _shares_in_words(evidence)
    seen = [_occupancy_in_words(evidence), _stall_in_words(evidence)]
    yield Finding(
        rule="latency",
        limit=limit,
        weight=Weight.BINDING,
        title="the device mostly waits",
        evidence=Remark(" ".join([f"It reaches {reached}: neither explains the time.", *filter(None, seen)])),
        advice="Have more under way at once: more blocks than multiprocessors (smaller tiles, or splitting the longest "
        "dimension), more independent loads for each thread (num_stages, unrolled loops), and more warps where "
        "registers and shared memory allow them.",
        most_speedup=_up_to_reach(evidence),
    )


def undetermined(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """On a CPU, far from both roofs."""
    if limit is not Limit.UNDETERMINED or evidence.utilisation is None:
        return
    times = 1 / evidence.utilisation
    could = "computed it" if evidence.roof.bound == "compute" else "moved its data"
    yield Finding(
        rule="undetermined",
        limit=limit,
        weight=Weight.BINDING,
        title="more is done than the work needs",
        evidence=Remark(
            f"It reaches {_shares_in_words(evidence)}: in the same time this device could have {could} {times:.1f} "
            "times."
        ),
        advice=_ON_A_CPU,
        most_speedup=_up_to_reach(evidence),
    )


def links(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """A collective.

    Source: NCCL tests, PERFORMANCE.md, on bus bandwidth.
    """
    timing, bus_bytes = evidence.timing, evidence.case.bus_bytes
    if limit is not Limit.LINKS or timing is None or bus_bytes is None:
        return
    rate = bus_bytes / timing.median_ns * 1e9
    yield Finding(
        rule="links",
        limit=limit,
        weight=Weight.BINDING,
        title="the links between devices are the limit",
        evidence=Remark(
            f"Each link carries {format_bytes(bus_bytes)} in {format_ns(timing.median_ns)}, that is "
            f"{_bytes_per_s(rate)}. "
            "No ceiling of the links is measured: compare with what the vendor says of them."
        ),
        advice="Send fewer bytes (a narrower type, less often), or let it run beside arithmetic that does not need it.",
    )


def faster_implementation(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Another way to compute the same is faster on the same device: how much is certainly possible."""
    if evidence.timing is None or not evidence.others:
        return
    name, median_ns = min(evidence.others.items(), key=lambda item: item[1])
    speedup = evidence.timing.median_ns / median_ns
    if speedup < FASTER_BY:
        return
    yield Finding(
        rule="faster_implementation",
        limit=None if limit is Limit.UNDETERMINED else limit,
        weight=Weight.CAUSE,
        title="another implementation is faster",
        evidence=Remark(
            f"{{}} takes {format_ns(median_ns)} for the same case in the same run, against "
            f"{format_ns(evidence.timing.median_ns)}: {speedup:.2f} times as fast.",
            (name,),
        ),
        advice="Use it, or find out what it does otherwise.",
        most_speedup=speedup,
        is_measured=True,
    )


def _up_to_reach(evidence: Evidence) -> float | None:
    least_ns = reachable_ns(evidence)
    return None if least_ns is None or evidence.timing is None else at_least_one(evidence.timing.median_ns / least_ns)


# --- words


def _shares_in_words(evidence: Evidence) -> str:
    parts = [
        (evidence.memory_share, "what memory can deliver"),
        (evidence.compute_share, "what the arithmetic units can do"),
    ]
    return " and ".join(f"{share_in_words(share)} of {what}" for share, what in parts if share is not None)


def _occupancy_in_words(evidence: Evidence) -> str | None:
    achieved = [
        entry.values["achieved_occupancy_share"]
        for entry in evidence.counters
        if "achieved_occupancy_share" in entry.values
    ]
    if len(achieved) == 1:
        return f"On average {achieved[0]:.0%} of the places for warps were taken."
    return None


_STALLS = {
    "long scoreboard": "data from memory or the cache",
    "short scoreboard": "data from shared memory",
    "lg throttle": "a full queue of memory instructions",
    "mio throttle": "a full queue of shared-memory and special instructions",
    "math pipe throttle": "a busy arithmetic unit",
    "barrier": "the other warps of their block",
    "membar": "their own writes to become visible",
    "wait": "the fixed time that each instruction takes",
    "not selected": "their turn: enough others are ready",
    "no instruction": "the instructions themselves to be fetched",
    "branch resolving": "a branch",
    "drain": "their last writes",
    "sleeping": "a sleep that the code asks for",
    "gmma": "the tensor cores",
}
"""Source: Nsight Compute documentation, "Warp stall reasons"."""


def _stall_in_words(evidence: Evidence) -> str | None:
    stalls = [
        (share, name.removeprefix("stall_").removesuffix("_share").replace("_", " "))
        for entry in evidence.counters
        for name, share in entry.values.items()
        if name.startswith("stall_") and name.endswith("_share")
    ]
    if len(evidence.counters) != 1 or not stalls:
        return None
    share, reason = max(stalls)
    # the name is that of a record: only those that are known are repeated
    return f"Warps wait {share:.0%} of the time for {_STALLS[reason]}." if reason in _STALLS else None


def _bytes_per_s(value: float) -> str:
    return metric("memory_bytes_per_s").format(value)


def _flop_per_s(value: float) -> str:
    return metric("flop_per_s").format(value)


def _flop(value: float) -> str:
    return _flop_per_s(value).removesuffix("/s")
