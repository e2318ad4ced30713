"""Rules about hardware counters: work beyond the cost model, waves, rate of instructions, and the
advice of Nsight Compute.
"""

import math
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.model.metrics import format_bytes, metric

EXCESS_TRAFFIC = 1.2
"""Counted / necessary bytes; masks and partial cache lines add a few per cent to any kernel."""
EXCESS_WORK = 1.2
"""As for memory traffic."""
PARTIAL_WAVE = 1.15
"""Waves of blocks started / waves filled."""
_MAX_PROFILER_FINDINGS = 3
FEWER_INSTRUCTIONS = (
    "Execute fewer instructions per element: exp2 with a folded factor instead of exp, "
    "wider loads, packed arithmetic, and index arithmetic outside the loop."
)
_PIPES = {
    "fma_pipe_share": "FMA",
    "alu_pipe_share": "ALU",
    "xu_pipe_share": "XU (exp, log, sin)",
    "lsu_pipe_share": "LSU (loads, stores)",
    "fp64_pipe_share": "FP64",
    "tensor_pipe_share": "tensor",
}


def excess_traffic(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The device moved clearly more bytes than the cost model needs."""
    counted_bytes = evidence.counted.get("dram_bytes")
    needed_bytes = evidence.case.memory_bytes
    if counted_bytes is None or not needed_bytes:
        return
    excess_ratio = counted_bytes / needed_bytes
    if excess_ratio <= EXCESS_TRAFFIC:
        return
    most_speedup = None
    # less traffic helps only where memory is the limit
    if evidence.limit is Limit.MEMORY and evidence.utilisation is not None:
        most_speedup = min(excess_ratio, 1 / (evidence.utilisation or 1.0))
    yield DiagnosisFinding(
        title="more memory traffic than necessary",
        text=f"The hardware counted {format_bytes(counted_bytes)} of memory traffic; the cost "
        f"model needs {format_bytes(needed_bytes)}: {excess_ratio:.1f} times as much.",
        advice="Either data is read again after eviction from the cache (reorder the blocks to "
        "share data, enlarge "
        "the tile), or accesses are not coalesced (let neighbouring threads read neighbouring "
        "addresses).",
        most_speedup=most_speedup,
    )


def waves(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The blocks of the only kernel leave multiprocessors idle at the end."""
    counts = [entry.values.get("waves_per_multiprocessor", 0.0) for entry in evidence.counters]
    positive_counts = [count for count in counts if count > 0]
    if len(positive_counts) != 1 or evidence.timing is None:
        return  # the waves of one of several kernels are not those of the call
    (wave_count,) = positive_counts
    started_count = math.ceil(wave_count)
    if wave_count < 1:
        yield DiagnosisFinding(
            title="too few blocks for the device",
            text=f"Its blocks fill {wave_count:.0%} of one wave.",
            advice="Launch more blocks: use smaller tiles, or split the reduction dimension "
            "(split-K).",
        )
    elif started_count / wave_count >= PARTIAL_WAVE:
        yield DiagnosisFinding(
            title="a partial last wave",
            text=f"Its blocks fill {wave_count:.3g} waves, so the last of {started_count} waves "
            "leaves multiprocessors idle.",
            advice="Choose tiles that make a whole number of waves, or use a persistent kernel.",
            most_speedup=started_count / wave_count,
        )


def profiler_advice(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The largest savings that the rules of Nsight Compute estimate."""
    savings: list[tuple[float, str, str]] = []
    for entry in evidence.counters:
        for finding in entry.findings:
            # an estimate for a part of a kernel is no bound for the whole
            if finding.estimated_speedup and not finding.is_estimate_of_a_part:
                saved_share = min(finding.estimated_speedup, 0.99)
                savings.append((saved_share, entry.function, finding.message))
    savings.sort(key=lambda saving: -saving[0])
    # of several kernels, the share of each in the time of the call is unknown
    is_single_kernel = len(evidence.counters) == 1
    for saved_share, function, message in savings[:_MAX_PROFILER_FINDINGS]:
        most_speedup = None
        if is_single_kernel:
            most_speedup = 1 / (1 - saved_share)
        yield DiagnosisFinding(
            title="a rule of Nsight Compute",
            text=f"{{}} could save {saved_share:.0%} of its time: {{}}",
            words=(function, message),
            advice="Open the report that `roofwatch ncu --output` keeps. The saving is an "
            "estimate of Nsight Compute.",
            most_speedup=most_speedup,
        )


def excess_work(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The device executed clearly more arithmetic than the cost model needs."""
    executed = evidence.executed_flop_count
    declared = evidence.case.flop_count
    if executed is None or not declared or executed < EXCESS_WORK * declared:
        return
    excess_ratio = executed / declared
    most_speedup = None
    # less arithmetic helps only where arithmetic is the limit
    if evidence.limit is Limit.COMPUTE and evidence.utilisation is not None:
        most_speedup = min(excess_ratio, 1 / evidence.utilisation)
    write = metric("flop_per_s").format
    executed_text, declared_text = (
        write(count).removesuffix("/s") for count in (executed, declared)
    )
    yield DiagnosisFinding(
        title="more arithmetic than necessary",
        text=f"The hardware executed {executed_text}; the cost model needs {declared_text}: "
        f"{excess_ratio:.1f} times as much.",
        advice="Skip tiles that a mask removes, do not compute a value twice, and check whether "
        "padding or an emulated precision adds products.",
        most_speedup=most_speedup,
    )


def busy_issue_slots(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Schedulers issue in nearly every cycle, so the number of instructions is the limit."""
    if not evidence.is_issue_bound:
        return
    values = evidence.counters[0].values
    busy_share = values["issue_slots_share"]
    text = f"Schedulers issue an instruction in {busy_share:.0%} of cycles"
    counted_pipes = [name for name in _PIPES if values.get(name)]
    pipes = {_PIPES[name]: values[name] for name in counted_pipes}
    if pipes:
        busiest = max(pipes, key=pipes.__getitem__)
        text += f"; the busiest pipe is {busiest} at {pipes[busiest]:.0%}"
    yield DiagnosisFinding(
        title="instruction issue is the limit",
        text=f"{text}.",
        advice=FEWER_INSTRUCTIONS,
        weight=Weight.BINDING,
        most_speedup=evidence.most_speedup,
    )


COUNTER_RULES: tuple[Rule, ...] = (
    excess_traffic,
    waves,
    profiler_advice,
    excess_work,
    busy_issue_slots,
)
