"""Rules about the roofs: which of them binds, or that none does."""

from __future__ import annotations

from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import FAR, NEAR, Evidence, Limit, Timing
from roofwatch.ci.diagnosis.finding import Observation, Rule, Weight, share_in_words
from roofwatch.ci.diagnosis.record_rules import EXCESS_TRAFFIC
from roofwatch.collector.device.roofline import LevelPosition, binding_level
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric

_FEWER_BYTES = (
    "Only fewer bytes help: do it together with the operation before or after it, so that what lies between them never "
    "reaches memory, or keep the data in a narrower type."
)
_FEWER_FETCHES = (
    "Fetch each piece of data less often: larger tiles, or keep what is used again in shared memory or registers."
)
_NEARER_CACHE = (
    "Work on parts that fit into the nearest cache, one after another, and finish each part before the next is begun; "
    "or move fewer bytes. If that changes nothing the bytes were not it, but arithmetic that is not vectorised, such "
    "as exp and division, or operators that read and write what lies between them."
)
_LESS_ARITHMETIC = (
    "Only less arithmetic helps: a narrower type where accuracy allows it, or work that need not be done."
)
_MORE_OPERANDS = (
    "The arithmetic units wait for operands: larger tiles, more of them loaded ahead (num_stages), or fewer other "
    "instructions between the products."
)
_ON_A_CPU = (
    "On a CPU the rest of the time is mostly one of: several operators one after another, each of which reads and "
    "writes what lies between them (torch.compile joins them); arithmetic that is not vectorised, such as exp and "
    "division; data in an order that memory is slow at."
)
_MORE_IN_FLIGHT = (
    "The memory is not kept busy all the time: wider loads, more of them under way at once (more warps, num_stages), "
    "or enough blocks for every multiprocessor."
)
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


# --- at a roof, or the nearer of the two


def _near_roof(evidence: Evidence) -> Iterator[Observation]:
    timing, limit = evidence.timing, evidence.limit
    if timing is None:
        return
    level = _counted_level(evidence)
    if limit is Limit.COMPUTE:
        yield from _at_compute_roof(evidence, timing)
    elif limit in {Limit.MEMORY, Limit.CACHE}:
        if level is not None:
            yield _at_counted_roof(evidence, timing, level)
        elif evidence.misses_cache:
            yield _past_the_cache(evidence, timing)
        else:
            yield from _at_memory_roof(evidence, timing)


def _at_compute_roof(evidence: Evidence, timing: Timing) -> Iterator[Observation]:
    roof = evidence.roof
    if roof.compute is None or roof.compute_ns is None:
        return
    share = roof.compute_ns / timing.median_ns
    if share < FAR:
        return  # its own units are not busy: it runs on others, of which `no_tensor_cores` tells
    flop_count = evidence.case.flop_count
    done = _flop_per_s(flop_count).removesuffix("/s")
    yield _at_roof(
        evidence.limit,
        "arithmetic is the limit",
        share,
        f"It does {done} in {format_ns(timing.median_ns)}, that is {_flop_per_s(flop_count / timing.median_ns * 1e9)}: "
        f"{share:.0%} of the {_flop_per_s(roof.compute.per_s)} that a large matrix product reached in the same run.",
        advice=_LESS_ARITHMETIC if share >= NEAR else _MORE_OPERANDS if evidence.is_gpu else _ON_A_CPU,
    )


def _at_memory_roof(evidence: Evidence, timing: Timing) -> Iterator[Observation]:
    roof, byte_count = evidence.roof, evidence.case.memory_bytes
    if roof.memory is None or roof.memory_ns is None:
        return
    share = roof.memory_ns / timing.median_ns
    what = "data that fits into the cache" if roof.memory.level == "cache" else "far more data than caches hold"
    yield _at_roof(
        evidence.limit,
        _of_memory(evidence.limit),
        share,
        f"It moves {_moved(byte_count, timing)}: {share:.0%} of the {_bytes_per_s(roof.memory.per_s)} that this device "
        f"reached in the same run with {what}.",
        advice=_FEWER_BYTES if share >= NEAR else _MORE_IN_FLIGHT if evidence.is_gpu else _ON_A_CPU,
    )


def _at_roof(limit: Limit, title: str, share: float, text: str, *, advice: str) -> Observation:
    told = f"{title}, and little is left" if share >= NEAR else title
    return Observation(text, most_speedup=1 / share, limit=limit, title=told, advice=advice)


def _past_the_cache(evidence: Evidence, timing: Timing) -> Observation:
    byte_count = evidence.case.memory_bytes
    rate = byte_count / timing.median_ns * 1e9
    is_memory = evidence.limit is Limit.MEMORY
    where = "from memory" if is_memory else "from a slower part of it, shared by several cores,"
    return Observation(
        f"It moves {_moved(byte_count, timing)}; in the same run memory delivered "
        f"{_bytes_per_s(rate / (evidence.dram_share or 1.0))} and the fastest cache "
        f"{_bytes_per_s(rate / (evidence.memory_share or 1.0))}. So most of it seems to come {where} each time.",
        most_speedup=1 / (evidence.utilisation or 1.0),
        limit=evidence.limit,
        title=f"{_of_memory(evidence.limit)}: its data would fit into the cache, but is not where it is fastest",
        advice=_NEARER_CACHE,
    )


def _counted_level(evidence: Evidence) -> LevelPosition | None:
    """The level of memory whose counters show that it binds."""
    level = binding_level(evidence.levels)
    if level is None or (level.utilisation or 0.0) < NEAR:
        return None
    return level if (evidence.limit is Limit.MEMORY) == (level.level == "dram") else None


def _at_counted_roof(evidence: Evidence, timing: Timing, level: LevelPosition) -> Observation:
    share, limit = level.utilisation or 0.0, evidence.limit
    excess = level.byte_count / evidence.case.memory_bytes if evidence.case.memory_bytes else 1.0
    has_room = excess > EXCESS_TRAFFIC
    advice = _FEWER_FETCHES
    if limit is Limit.MEMORY:
        advice = "Move fewer bytes: it is more than the work needs." if has_room else _FEWER_BYTES
    return Observation(
        f"The hardware counted {format_bytes(level.byte_count)} through "
        f"{'the cache' if limit is Limit.CACHE else 'device memory'} in a call of {format_ns(timing.median_ns)}: "
        f"{share:.0%} of what it can deliver.",
        most_speedup=min(excess / share, 1 / (evidence.utilisation or 1.0)) if has_room else 1 / share,
        limit=limit,
        title=_of_memory(limit) if has_room else f"{_of_memory(limit)}, and little is left",
        advice=advice,
    )


# --- far from every roof


def _latency(evidence: Evidence) -> Iterator[Observation]:
    if evidence.limit is Limit.LATENCY and evidence.utilisation is not None:
        sentences = [f"It reaches {_shares_in_words(evidence)}: neither explains the time."]
        if len(evidence.counters) == 1:
            sentences += _warps_in_words(evidence.counters[0].values)
        yield Observation(" ".join(sentences), most_speedup=_most_speedup(evidence))


def _undetermined(evidence: Evidence) -> Iterator[Observation]:
    if evidence.limit is Limit.UNDETERMINED and evidence.utilisation is not None:
        could = "computed it" if evidence.roof.bound == "compute" else "moved its data"
        yield Observation(
            f"It reaches {_shares_in_words(evidence)}: in the same time this device could have {could} "
            f"{1 / evidence.utilisation:.1f} times.",
            most_speedup=_most_speedup(evidence),
        )


def _links(evidence: Evidence) -> Iterator[Observation]:
    timing, bus_bytes = evidence.timing, evidence.case.bus_bytes
    if evidence.limit is Limit.LINKS and timing is not None and bus_bytes is not None:
        yield Observation(
            f"Each link carries {_moved(bus_bytes, timing)}. No ceiling of the links is measured: compare with what "
            "the vendor says of them."
        )


ROOF_RULES = (
    Rule(
        name="near_roof",
        weight=Weight.BINDING,
        title="a roof is the limit",
        advice=_FEWER_BYTES,
        observe=_near_roof,
    ),
    Rule(
        name="latency",
        limit=Limit.LATENCY,
        weight=Weight.BINDING,
        title="the device mostly waits",
        advice="Have more under way at once: more blocks than multiprocessors (smaller tiles, or splitting the "
        "longest dimension), more independent loads for each thread (num_stages, unrolled loops), and more warps where "
        "registers and shared memory allow them.",
        observe=_latency,
    ),
    Rule(
        name="undetermined",
        limit=Limit.UNDETERMINED,
        weight=Weight.BINDING,
        title="more is done than the work needs",
        advice=_ON_A_CPU,
        observe=_undetermined,
    ),
    Rule(
        name="links",
        limit=Limit.LINKS,
        weight=Weight.BINDING,
        title="the links between devices are the limit",
        advice="Send fewer bytes (a narrower type, less often), or let it run beside arithmetic that does not need it.",
        observe=_links,
    ),
)


def _most_speedup(evidence: Evidence) -> float | None:
    least_ns = evidence.reachable_ns
    return None if least_ns is None or evidence.timing is None else evidence.timing.median_ns / least_ns


# --- words


def _shares_in_words(evidence: Evidence) -> str:
    parts = [
        (evidence.memory_share, "what memory can deliver"),
        (evidence.compute_share, "what the arithmetic units can do"),
    ]
    return " and ".join(f"{share_in_words(share)} of {what}" for share, what in parts if share is not None)


def _warps_in_words(counters: dict[str, float]) -> Iterator[str]:
    if "achieved_occupancy_share" in counters:
        yield f"On average {counters['achieved_occupancy_share']:.0%} of the places for warps were taken."
    stalls = [
        (share, name.removeprefix("stall_").removesuffix("_share").replace("_", " "))
        for name, share in counters.items()
        if name.startswith("stall_") and name.endswith("_share")
    ]
    share, reason = max(stalls, default=(0.0, ""))
    if reason in _STALLS:  # the name is that of a record: only known ones are repeated
        yield f"Warps wait {share:.0%} of the time for {_STALLS[reason]}."


def _of_memory(limit: Limit) -> str:
    return "the cache is the limit" if limit is Limit.CACHE else "memory is the limit"


def _moved(byte_count: float, timing: Timing) -> str:
    rate = _bytes_per_s(byte_count / timing.median_ns * 1e9)
    return f"{format_bytes(byte_count)} in {format_ns(timing.median_ns)}, that is {rate}"


def _bytes_per_s(value: float) -> str:
    return metric("memory_bytes_per_s").format(value)


def _flop_per_s(value: float) -> str:
    return metric("flop_per_s").format(value)
