"""Rules about the roof: which ceiling binds, or that none does."""

from collections.abc import Iterator

from roofwatch.ci.diagnosis.counter_rules import EXCESS_TRAFFIC
from roofwatch.ci.diagnosis.evidence import FAR, NEAR, Evidence, Limit, Timing
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight, share_in_words
from roofwatch.collector.device.roofline import LevelPosition
from roofwatch.collector.profiling.ncu_metrics import stalls_of
from roofwatch.collector.profiling.ncu_names import STALL_REASONS
from roofwatch.model.metrics import format_bytes, format_ns, metric

_MOVE_FEWER_BYTES = (
    "Move fewer bytes: fuse it with the operation before or after it, or store "
    "the data in a narrower type."
)
_BLOCK_FOR_CACHE = (
    "Process blocks that fit the nearest cache one after another, or move fewer bytes. If that "
    "changes nothing, the "
    "limit is scalar arithmetic such as exp and division, or operators that read and write "
    "intermediate values."
)
_LIMIT_NAMES = {Limit.CACHE: "the cache", Limit.COMPUTE: "arithmetic"}
_MOVE_NO_EXCESS = "Move fewer bytes: the kernel moves more than it needs."
_REUSE_DATA = (
    "Fetch data less often: larger tiles, or keep reused data in shared memory or registers."
)
_DO_LESS_ARITHMETIC = (
    "Do less arithmetic: use a narrower type if accuracy allows, or skip unnecessary work."
)
_FEED_TENSOR_CORES = (
    "The arithmetic units wait for operands: use larger tiles, load more of them ahead "
    "(num_stages), or run fewer "
    "other instructions between the products."
)
_KEEP_MEMORY_BUSY = (
    "Keep more loads in flight: wider loads, more warps or stages (num_stages), or enough blocks "
    "for every "
    "multiprocessor."
)
_CPU_ADVICE = (
    "On a CPU the rest is usually one of: several operators that read and write intermediate "
    "values (fuse them with "
    "torch.compile); scalar arithmetic such as exp and division; a memory layout with large "
    "strides."
)


def near_roof(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """A ceiling binds: that of arithmetic, of memory, or of a cache."""
    timing = evidence.timing
    limit = evidence.limit
    level = evidence.counted_ceiling
    if timing is None:
        return
    if limit is Limit.COMPUTE:
        yield from _at_compute_ceiling(evidence, timing)
    elif limit in {Limit.MEMORY, Limit.CACHE} and level is not None:
        yield _at_counted_ceiling(evidence, timing, level)
    elif limit in {Limit.MEMORY, Limit.CACHE}:
        yield from _at_memory_ceiling(evidence, timing)


def _at_compute_ceiling(evidence: Evidence, timing: Timing) -> Iterator[DiagnosisFinding]:
    roof = evidence.roof
    flop_count = evidence.case.flop_count
    if roof.compute is None or roof.compute_ns is None:
        return
    share = roof.compute_ns / timing.median_ns
    if share < FAR:
        return  # it runs on other units; `no_tensor_cores` reports that
    write = metric("flop_per_s").format
    text = (
        f"It does {write(flop_count).removesuffix('/s')} in {format_ns(timing.median_ns)}, or "
        f"{write(flop_count / timing.median_ns * 1e9)}: {share:.0%} of the "
        f"{write(roof.compute.per_s)} of a large "
        "matrix product in the same run."
    )
    is_near = share >= NEAR
    advice = _CPU_ADVICE
    if is_near:
        advice = _DO_LESS_ARITHMETIC
    elif evidence.is_gpu:
        advice = _FEED_TENSOR_CORES
    yield _binding(
        evidence,
        text=text,
        advice=advice,
        most_speedup=1 / share,
        is_near=is_near,
    )


def _at_memory_ceiling(evidence: Evidence, timing: Timing) -> Iterator[DiagnosisFinding]:
    roof = evidence.roof
    if roof.memory is None or roof.memory_ns is None:
        return
    share = roof.memory_ns / timing.median_ns
    source = "memory"
    if roof.memory.level == "cache":
        source = "the cache"
    text = (
        f"It moves {_moved(evidence.case.memory_bytes, timing)}: {share:.0%} of the "
        f"{_bytes_per_s(roof.memory.per_s)} "
        f"of {source} in the same run."
    )
    if evidence.is_past_fastest_cache:
        text += (
            f" The data fits the cache but not its fastest level: that is "
            f"{evidence.dram_share:.0%} of memory's speed."
        )
        advice = _BLOCK_FOR_CACHE
    elif share >= NEAR:
        advice = _MOVE_FEWER_BYTES
    elif evidence.is_gpu:
        advice = _KEEP_MEMORY_BUSY
    else:
        advice = _CPU_ADVICE
    yield _binding(
        evidence,
        text=text,
        advice=advice,
        most_speedup=1 / share,
        is_near=share >= NEAR,
    )


def _at_counted_ceiling(
    evidence: Evidence,
    timing: Timing,
    level: LevelPosition,
) -> DiagnosisFinding:
    share = level.utilisation or 1.0
    excess_ratio = 1.0
    if evidence.case.memory_bytes:
        excess_ratio = level.byte_count / evidence.case.memory_bytes
    has_excess = excess_ratio > EXCESS_TRAFFIC
    most_speedup = 1 / share
    if has_excess:
        # without the excess, the roof of the bytes that it needs is the limit
        most_by_roof = 1 / (evidence.utilisation or 1.0)
        most_speedup = min(excess_ratio / share, most_by_roof)
    if evidence.limit is not Limit.MEMORY:
        source = "the cache"
        advice = _REUSE_DATA
    elif has_excess:
        source = "device memory"
        advice = _MOVE_NO_EXCESS
    else:
        source = "device memory"
        advice = _MOVE_FEWER_BYTES
    text = (
        f"The hardware counted {format_bytes(level.byte_count)} through {source} in "
        f"{format_ns(timing.median_ns)}: "
        f"{share:.0%} of its ceiling."
    )
    return _binding(
        evidence,
        text=text,
        advice=advice,
        most_speedup=most_speedup,
        is_near=not has_excess,
    )


def _binding(
    evidence: Evidence,
    *,
    text: str,
    advice: str,
    most_speedup: float,
    is_near: bool,
) -> DiagnosisFinding:
    limit_name = _LIMIT_NAMES.get(evidence.limit, "memory")
    gain = ", little can be gained" if is_near else ""
    return DiagnosisFinding(
        title=f"{limit_name} is the limit{gain}",
        text=text,
        advice=advice,
        weight=Weight.BINDING,
        most_speedup=most_speedup,
    )


def latency(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The device waits: no ceiling explains the time."""
    if evidence.limit is not Limit.LATENCY or evidence.utilisation is None:
        return
    if evidence.is_issue_bound:  # it does not wait; `busy_issue_slots` reports that
        return
    sentences = [f"It reaches {_shares_in_words(evidence)}; neither explains the time."]
    # with several kernels, the counters of one do not explain the call
    if len(evidence.counters) == 1:
        values = evidence.counters[0].values
        if "achieved_occupancy_share" in values:
            sentences.append(f"Achieved occupancy is {values['achieved_occupancy_share']:.0%}.")
        # the longest wait comes first
        stalls = iter(stalls_of(values).items())
        reason, share = next(stalls, ("", 0.0))
        if reason in STALL_REASONS:  # a record may hold any name
            sentences.append(f"Warps wait {share:.0%} of the time for {STALL_REASONS[reason]}.")
    yield DiagnosisFinding(
        title="the device mostly waits",
        text=" ".join(sentences),
        advice="Put more work in flight: more blocks than multiprocessors (smaller tiles, or a "
        "split of the longest "
        "dimension), more independent loads per thread (num_stages, unrolled loops), and more "
        "warps if registers and "
        "shared memory allow.",
        weight=Weight.BINDING,
        most_speedup=evidence.most_speedup,
    )


def undetermined(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The measured ceilings alone do not say what the time is spent on."""
    if evidence.limit is Limit.UNDETERMINED and evidence.utilisation is not None:
        work = "move its data"
        if evidence.roof.bound == "compute":
            work = "do its arithmetic"
        yield DiagnosisFinding(
            title="extra work",
            text=f"{1 / evidence.utilisation:.1f}× the time that this device needs to {work}: "
            f"{_shares_in_words(evidence)}.",
            advice=_CPU_ADVICE,
            weight=Weight.BINDING,
            most_speedup=evidence.most_speedup,
        )


def links(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The links between devices bind, whose ceiling is not measured."""
    timing = evidence.timing
    bus_bytes = evidence.case.bus_bytes
    if evidence.limit is Limit.LINKS and timing is not None and bus_bytes is not None:
        yield DiagnosisFinding(
            title="the links between devices are the limit",
            text=f"Each link carries {_moved(bus_bytes, timing)}. The ceiling of the links is not "
            f"measured: compare it "
            "with the datasheet.",
            advice="Send fewer bytes (a narrower type, or less often), or overlap it with "
            "independent arithmetic.",
            weight=Weight.BINDING,
        )


LIMIT_RULES: tuple[Rule, ...] = (
    near_roof,
    latency,
    undetermined,
    links,
)


def _shares_in_words(evidence: Evidence) -> str:
    texts = []
    if evidence.memory_share is not None:
        texts.append(f"{share_in_words(evidence.memory_share)} of the memory ceiling")
    if evidence.compute_share is not None:
        texts.append(f"{share_in_words(evidence.compute_share)} of the compute ceiling")
    return " and ".join(texts)


def _moved(byte_count: float, timing: Timing) -> str:
    per_s = _bytes_per_s(byte_count / timing.median_ns * 1e9)
    return f"{format_bytes(byte_count)} in {format_ns(timing.median_ns)}, or {per_s}"


def _bytes_per_s(value: float) -> str:
    return metric("memory_bytes_per_s").format(value)
