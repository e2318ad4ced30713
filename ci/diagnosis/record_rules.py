"""Rules about what was measured besides the roofs: failures, the device's state, launches, hardware counters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import FIXED_SHARE, GAP_SHARE, Evidence, Limit
from roofwatch.ci.diagnosis.finding import Observation, Rule, Weight
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import is_host_bound
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric

ABOVE_THE_ROOF = 1.1
"""Share of the roof that is told: a ceiling that was measured a moment earlier repeats to a few per cent."""
SMALL_KERNEL_NS = 10_000.0
"""Starting a shorter kernel costs a fifth of its time and more."""
MANY_KERNELS = 3
"""From here on joining is worth a look; two are often one that cannot be had without the other."""
EXCESS_TRAFFIC = 1.2
"""Counted bytes / needed bytes that are told: headers, masks and partial lines make a few per cent on any kernel."""
TAIL = 1.15
"""Rounds of blocks begun / rounds filled from which on the last, half empty one is told."""
FASTER_BY = 1.05
"""Two runs of one implementation differ by less."""
CLOSE_SECOND = 1.02
"""Two configurations closer than this are chosen between by noise."""
_MAX_PROFILER_FINDINGS = 3


# --- doubts about the numbers


def _failed(evidence: Evidence) -> Iterator[Observation]:
    measurement = evidence.measurement
    if measurement is not None and measurement.outcome not in {Outcome.OK, Outcome.UNSUPPORTED}:
        yield Observation(
            "The record says: {}",
            ((measurement.message or "nothing more")[:300],),
            title=f"it was not timed: {str(measurement.outcome).replace('_', ' ')}",
        )


def _throttled(evidence: Evidence) -> Iterator[Observation]:
    blocks = () if evidence.measurement is None else evidence.measurement.blocks
    degraded = [block for block in blocks if block.device_state is not None and block.device_state.degraded_by]
    if not degraded:
        return
    reasons = sorted({name for block in degraded if block.device_state for name in block.device_state.degraded_by})
    clean = [block.median_ns for block in blocks if block not in degraded]
    slower = statistics.median(block.median_ns for block in degraded) / statistics.median(clean) if clean else None
    took = "" if slower is None else f" They took {slower:.2f} times as long as the others."
    yield Observation(
        f"{len(degraded)} of {len(blocks)} blocks were taken while the device was slowed down or shared: "
        f"{', '.join('{}' for _ in reasons)}.{took}",
        tuple(reasons),
        most_speedup=slower if slower is not None and slower > 1 else None,
        is_measured=True,
    )


def _unbelievable_ceilings(evidence: Evidence) -> Iterator[Observation]:
    for found in evidence.published:
        if found.is_suspicious:
            measured, allowed = found.measured, max(found.published_per_s, found.at_clock_per_s)
            write = metric("memory_bytes_per_s" if measured.resource == "memory" else "flop_per_s").format
            what, words = ("memory", ()) if measured.dtype is None else ("arithmetic in {}", (measured.dtype,))
            yield Observation(
                f"For {what} this run measured {write(measured.per_s)}; the vendor's datasheet allows "
                f"{write(allowed)}. Shares of that ceiling are too low.",
                words,
            )


def _above_the_roof(evidence: Evidence) -> Iterator[Observation]:
    share = evidence.utilisation
    if share is not None and share > ABOVE_THE_ROOF:
        yield Observation(
            f"It reaches {share:.0%} of the roof: the device was slower while its ceilings were measured than while "
            "this was, or the cost model of the case counts work that is not done.",
            limit=None if evidence.limit is Limit.UNDETERMINED else evidence.limit,
        )


def _varying_kernels(evidence: Evidence) -> Iterator[Observation]:
    blocks = () if evidence.measurement is None else evidence.measurement.blocks
    varying = sum(block.is_kernel_set_varying for block in blocks)
    if varying:
        yield Observation(f"In {varying} of {len(blocks)} blocks not every launch ran the same kernels.")


DOUBT_RULES = (
    Rule(
        name="failed",
        weight=Weight.DOUBT,
        title="it was not timed",
        advice="Mend that first: `roofwatch check` says what is wrong with a result and where.",
        observe=_failed,
    ),
    Rule(
        name="throttled",
        weight=Weight.DOUBT,
        title="the device did not run freely",
        advice="Measure again when it is cool and alone; raise the power limit or lock the clocks below what it can "
        "hold.",
        observe=_throttled,
    ),
    Rule(
        name="unbelievable_ceilings",
        weight=Weight.DOUBT,
        title="a ceiling above the datasheet",
        advice="Measure again; if it stays, the timer or the device is not what it says.",
        observe=_unbelievable_ceilings,
    ),
    Rule(
        name="above_the_roof",
        weight=Weight.DOUBT,
        title="faster than the ceiling of its own run",
        advice="Measure again while nothing else runs; if it stays, look at flop_count and memory_bytes of the case.",
        observe=_above_the_roof,
    ),
    Rule(
        name="varying_kernels",
        weight=Weight.DOUBT,
        title="calls ran different kernels",
        advice="Look for a choice at run time: autotuning, a cache of plans, a shape that changes.",
        observe=_varying_kernels,
    ),
)


# --- launches, and the program that makes them


def _host_bound(evidence: Evidence) -> Iterator[Observation]:
    timing = evidence.timing
    if timing is None or timing.host_ns is None or not is_host_bound(timing.median_ns, timing.host_ns):
        return
    busy_ns, host_ns = timing.median_ns, timing.host_ns
    consequence = (
        f"in a loop of such calls it is idle for {1 - busy_ns / host_ns:.0%}"
        if host_ns > busy_ns
        else f"a kernel that takes less than {host_ns / busy_ns:.0%} of its time would wait for the program"
    )
    yield Observation(
        f"Issuing one call takes {format_ns(host_ns)} of the program's time, the device needs {format_ns(busy_ns)} "
        f"for it: {consequence}.",
        most_speedup=host_ns / busy_ns,
        weight=Weight.BINDING if evidence.limit is Limit.HOST else None,
    )


def _gaps(evidence: Evidence) -> Iterator[Observation]:
    timing = evidence.timing
    if timing is None or evidence.gap_share < GAP_SHARE:
        return
    kernels = f"its {timing.kernel_count} kernels" if timing.kernel_count else "its kernels"
    yield Observation(
        f"A call takes {format_ns(timing.span_ns)} from first to last, {kernels} run for "
        f"{format_ns(timing.median_ns)} of them: nothing runs for {1 - timing.median_ns / timing.span_ns:.0%}.",
        most_speedup=timing.span_ns / timing.median_ns,
        weight=Weight.BINDING if evidence.limit is Limit.LAUNCH else None,
    )


def _small_launches(evidence: Evidence) -> Iterator[Observation]:
    timing = evidence.timing
    if timing is None or evidence.limit is not Limit.LAUNCH or evidence.gap_share >= GAP_SHARE:
        return
    took = f"A call takes {format_ns(timing.median_ns)}"
    known = "as measured in the same run" if evidence.floor_ns else "by rule of thumb"
    times = timing.median_ns / evidence.one_launch_ns
    if evidence.fixed_share >= FIXED_SHARE:
        kernels = f"{timing.kernel_count} kernels" if (timing.kernel_count or 1) > 1 else "a kernel"
        text = (
            f"{took}; {kernels} that did nothing would take about {format_ns(evidence.fixed_ns)} ({known}), "
            f"{evidence.fixed_share:.0%} of it."
        )
    else:
        text = (
            f"{took}, though its work needs only {format_ns(evidence.roof.least_ns or 0.0)} at the ceilings of this "
            f"device; calling one operator that does nothing takes {format_ns(evidence.one_launch_ns)} ({known}), so "
            f"nearly all of the time is calls, as many as {times:.0f}."
        )
    yield Observation(text, most_speedup=times)


def _many_kernels(evidence: Evidence) -> Iterator[Observation]:
    timing = evidence.timing
    if timing is None or (timing.kernel_count or 0) < MANY_KERNELS:
        return
    each_ns = timing.median_ns / (timing.kernel_count or 1)
    if each_ns < SMALL_KERNEL_NS:
        least_ns = evidence.reachable_ns
        yield Observation(
            f"A call launches {timing.kernel_count} kernels of {format_ns(each_ns)} on average.",
            most_speedup=None if least_ns is None else timing.median_ns / least_ns,
        )


LAUNCH_RULES = (
    Rule(
        name="host_bound",
        limit=Limit.HOST,
        title="the program is slower than the device",
        advice="Issue less: a CUDA graph of several calls (torch.compile with mode='reduce-overhead' makes one), "
        "larger batches, or fewer and larger kernels. Making the kernel itself faster changes nothing here.",
        observe=_host_bound,
    ),
    Rule(
        name="gaps",
        limit=Limit.LAUNCH,
        title="the device pauses between kernels",
        advice="Join the kernels into one (by hand in Triton, or torch.compile), or launch them as one CUDA graph.",
        observe=_gaps,
    ),
    Rule(
        name="small_launches",
        limit=Limit.LAUNCH,
        weight=Weight.BINDING,
        title="too little work for a launch",
        advice="Do more for each launch: larger batches, or join it with its neighbours. Its body is not worth tuning "
        "at this size.",
        observe=_small_launches,
    ),
    Rule(
        name="many_kernels",
        limit=Limit.LAUNCH,
        title="many small kernels",
        advice="Join them: what one writes and the next reads then stays in registers (torch.compile, or one Triton "
        "kernel).",
        observe=_many_kernels,
    ),
)


# --- hardware counters, other implementations, autotuning


def _excess_traffic(evidence: Evidence) -> Iterator[Observation]:
    counted, needed = evidence.counted.get("dram_bytes"), evidence.case.memory_bytes
    if counted is not None and needed and counted > EXCESS_TRAFFIC * needed:
        utilisation = evidence.utilisation
        binds = evidence.limit is Limit.MEMORY and utilisation is not None
        yield Observation(
            f"The hardware counted {format_bytes(counted)} to and from memory; by its model the work needs "
            f"{format_bytes(needed)}, so {counted / needed:.1f} times as much was moved.",
            most_speedup=min(counted / needed, 1 / (utilisation or 1.0)) if binds else None,
        )


def _waves(evidence: Evidence) -> Iterator[Observation]:
    counts = [entry.values.get("waves_per_multiprocessor", 0.0) for entry in evidence.counters]
    known = [count for count in counts if count > 0]
    if len(known) != 1 or evidence.timing is None:
        return  # of several kernels none is the call
    (count,) = known
    rounds = math.ceil(count)
    if count < 1:
        yield Observation(f"Its blocks fill {count:.0%} of what the multiprocessors can hold at once.")
    elif rounds / count >= TAIL:
        yield Observation(
            f"Its blocks fill the device {count:.3g} times, so they take {rounds} rounds, of which the last leaves "
            "multiprocessors idle.",
            most_speedup=rounds / count,
            title="the last round of blocks is half empty",
            advice="Choose tiles that make a whole number of rounds, or let as many blocks as fit take tiles from a "
            "list until none is left (a persistent kernel).",
        )


def _faster_implementation(evidence: Evidence) -> Iterator[Observation]:
    if evidence.timing is None or not evidence.others:
        return
    name, median_ns = min(evidence.others.items(), key=lambda item: item[1])
    speedup = evidence.timing.median_ns / median_ns
    if speedup >= FASTER_BY:
        yield Observation(
            f"{{}} takes {format_ns(median_ns)} for the same case in the same run, against "
            f"{format_ns(evidence.timing.median_ns)}: {speedup:.2f} times as fast.",
            (name,),
            most_speedup=speedup,
            is_measured=True,
            limit=None if evidence.limit is Limit.UNDETERMINED else evidence.limit,
        )


def _profiler_says(evidence: Evidence) -> Iterator[Observation]:
    found = [
        (min(finding.estimated_speedup, 0.99), entry.function, finding.message)
        for entry in evidence.counters
        for finding in entry.findings
        if finding.estimated_speedup and not finding.is_estimate_of_a_part
    ]
    found.sort(key=lambda item: -item[0])
    for saved, function, message in found[:_MAX_PROFILER_FINDINGS]:
        yield Observation(
            f"Of {{}} it says, with {saved:.0%} of the time to be saved: {{}}",
            (function, message),
            # of several kernels, how much of the call this one takes is not known
            most_speedup=1 / (1 - saved) if len(evidence.counters) == 1 else None,
        )


def _autotuning(evidence: Evidence) -> Iterator[Observation]:
    for tuning in () if evidence.measurement is None else evidence.measurement.autotuning:
        times = {str(each.configuration): each.time_ns for each in tuning.timings if each.time_ns}
        chosen = times.pop(str(tuning.chosen), None)
        if chosen is None or not times:
            continue
        second = min(times.values())
        if chosen > second * CLOSE_SECOND:
            yield Observation(
                f"For {{}} it chose a configuration that it had timed {chosen / second - 1:.1%} slower than another.",
                (tuning.function,),
                most_speedup=chosen / second,
                is_measured=True,
            )
        elif second <= chosen * CLOSE_SECOND:
            yield Observation(
                f"For {{}} its second choice is within {abs(second / chosen - 1):.1%} of its first: another run may "
                "choose otherwise, and move the time with it.",
                (tuning.function,),
                weight=Weight.HINT,
                title="a close second in the autotuner",
                advice="Fix the configuration where runs must compare.",
            )


CAUSE_RULES = (
    Rule(
        name="excess_traffic",
        limit=Limit.MEMORY,
        title="more memory traffic than the work needs",
        advice="Either data is read again after the cache has dropped it (reorder the blocks so that neighbours use "
        "the same data, enlarge the tile), or neighbouring threads read addresses that are apart, and most of each "
        "line of memory is thrown away (let neighbours read neighbours).",
        observe=_excess_traffic,
    ),
    Rule(
        name="waves",
        limit=Limit.LATENCY,
        title="too few blocks for the device",
        advice="Make more blocks: smaller tiles, or split the dimension that is summed over (split K).",
        observe=_waves,
    ),
    Rule(
        name="faster_implementation",
        title="another implementation is faster",
        advice="Use it, or find out what it does otherwise.",
        observe=_faster_implementation,
    ),
    Rule(
        name="profiler_says",
        title="a rule of Nsight Compute",
        advice="Follow it in the report, which `roofwatch ncu --output` keeps; how much it saves is its own estimate.",
        observe=_profiler_says,
    ),
    Rule(
        name="autotuning",
        title="the autotuner did not choose the fastest",
        advice="Clear its cache and tune again while nothing else uses the device.",
        observe=_autotuning,
    ),
)
