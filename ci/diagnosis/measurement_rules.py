"""Rules about the measurement, launches, hardware counters,
other implementations and autotuning.
"""

import math
import statistics
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import FIXED_SHARE, GAP_SHARE, Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.ci.messages import listed
from roofwatch.model.measurement import is_host_bound
from roofwatch.model.metrics import format_bytes, format_ns, metric

ABOVE_ROOF = 1.1
"""Share of the roof from which on it is reported; ceilings repeat to a few per cent."""
SMALL_KERNEL_NS = 10_000.0
"""Below it launching takes a fifth of the time or more."""
# two may be needed; from three on fusing pays
MANY_KERNELS = 3
EXCESS_TRAFFIC = 1.2
"""Counted / necessary bytes; masks and partial cache lines add a few per cent to any kernel."""
PARTIAL_WAVE = 1.15
"""Waves of blocks started / waves filled."""
# less may be the noise of two separate measurements
FASTER_BY = 1.05
CLOSE_SECOND = 1.02
"""Noise decides between two configurations that are closer."""
_FUSIBLE_RATIO = 1.5
"""Moved / necessary bytes of torch's operators; an operator more moves at least this."""
_OPERATORS = 5
"""Operators that are listed."""
_MAX_PROFILER_FINDINGS = 3
_MAX_MESSAGE = 300


def failed(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    measurement = evidence.measurement
    if measurement is not None and measurement.outcome.is_failure:
        yield DiagnosisFinding(
            title=f"not timed: {str(measurement.outcome).replace('_', ' ')}",
            text="The record reports: {}",
            words=((measurement.message or "no message")[:_MAX_MESSAGE],),
            advice="Fix that first: `roofwatch check` shows what is wrong with a result and where.",
            weight=Weight.DOUBT,
        )


def throttled(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    degraded_ns: list[float] = []
    clean_ns: list[float] = []
    reasons: set[str] = set()
    for block in evidence.blocks:
        state = block.device_state
        if state is not None and state.degraded_by:
            degraded_ns.append(block.median_ns)
            reasons.update(state.degraded_by)
        else:
            clean_ns.append(block.median_ns)
    if not degraded_ns:
        return
    slowdown_ratio = None
    slower = ""
    if clean_ns:
        slowdown_ratio = statistics.median(degraded_ns) / statistics.median(clean_ns)
        slower = f" They took {slowdown_ratio:.2f} times as long as the others."
    if slowdown_ratio is not None and slowdown_ratio <= 1:
        slowdown_ratio = None  # nothing to gain
    names = ", ".join(["{}"] * len(reasons))
    yield DiagnosisFinding(
        title="the device was throttled or shared",
        text=(
            f"{len(degraded_ns)} of {len(evidence.blocks)} blocks were affected by {names}.{slower}"
        ),
        words=tuple(sorted(reasons)),
        advice="Measure again on a cool and idle device; raise the power limit, or lock the "
        "clocks at a sustainable "
        "value.",
        weight=Weight.DOUBT,
        most_speedup=slowdown_ratio,
        is_measured=True,
    )


def implausible_ceilings(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    for published in evidence.published:
        if published.is_suspicious:
            measured = published.measured
            allowed_per_s = max(published.published_per_s, published.at_clock_per_s)
            write = metric("memory_bytes_per_s").format
            resource = "memory"
            words: tuple[str, ...] = ()
            if measured.resource == "compute":
                write = metric("flop_per_s").format
            if measured.dtype is not None:
                resource = "arithmetic in {}"
                words = (measured.dtype,)
            yield DiagnosisFinding(
                title="a measured ceiling above the datasheet",
                text=f"This run measured {write(measured.per_s)} for {resource}; the datasheet "
                f"allows {write(allowed_per_s)}."
                " Shares of that ceiling are too low.",
                words=words,
                advice="Measure again; if it persists, the timer or the reported device is wrong.",
                weight=Weight.DOUBT,
            )


def above_the_roof(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    share = evidence.utilisation
    if share is not None and share > ABOVE_ROOF:
        yield DiagnosisFinding(
            title="faster than the roof",
            text=f"{share:.0%} of the roofline: either the device was slower while its ceilings "
            f"were measured, "
            "or the cost model counts work that is not done.",
            advice="Measure again on an idle device; if it persists, check flop_count and "
            "memory_bytes of the case.",
            weight=Weight.DOUBT,
        )


def varying_kernels(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    blocks = evidence.blocks
    varying_count = sum(block.is_kernel_set_varying for block in blocks)
    if varying_count:
        yield DiagnosisFinding(
            title="launches ran different kernels",
            text=f"In {varying_count} of {len(blocks)} blocks launches ran different kernels.",
            advice="Look for a choice at run time: autotuning, a plan cache, a changing shape.",
            weight=Weight.DOUBT,
        )


# --- launches


def host_gaps(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    if any(block.has_host_gaps for block in evidence.blocks):
        yield DiagnosisFinding(
            title="times include host time",
            text="Launches could not be queued ahead: the call waits for the device or issues too "
            "slowly.",
            advice="Measure with --timer cupti, or remove the synchronisation (.item(), .cpu(), "
            "printing a tensor).",
            weight=Weight.DOUBT,
        )


def host_bound(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    timing = evidence.timing
    if timing is None or timing.host_ns is None:
        return
    busy_ns = timing.median_ns
    host_ns = timing.host_ns
    if not is_host_bound(busy_ns, host_ns):
        return
    # whichever takes longer sets the pace of a loop
    if host_ns > busy_ns:
        consequence = f"in a loop the device is idle for {1 - busy_ns / host_ns:.0%} of the time"
    else:
        consequence = (
            f"a kernel that takes less than {host_ns / busy_ns:.0%} of its time would "
            f"wait for the host"
        )
    yield DiagnosisFinding(
        title="the host is slower than the device",
        text=f"Issuing one call takes {format_ns(host_ns)}, running it {format_ns(busy_ns)}: "
        f"{consequence}.",
        advice="Issue less work from the host: a CUDA graph of several calls (torch.compile with "
        "mode='reduce-overhead'), larger batches, or fewer and larger kernels. A faster kernel "
        "changes nothing here.",
        weight=_weight_of_limit(evidence, Limit.HOST),
        most_speedup=host_ns / busy_ns,
    )


def _weight_of_limit(evidence: Evidence, limit: Limit) -> Weight:
    """A finding names the limit if that limit binds; otherwise it is one of several causes."""
    if evidence.limit is limit:
        return Weight.BINDING
    return Weight.CAUSE


def gaps(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    timing = evidence.timing
    if timing is None or evidence.gap_share < GAP_SHARE:
        return
    kernels = "its kernels"
    if timing.kernel_count:
        kernels = f"its {timing.kernel_count} kernels"
    yield DiagnosisFinding(
        title="gaps between kernels",
        text=f"A call takes {format_ns(timing.span_ns)}, but {kernels} run for only "
        f"{format_ns(timing.median_ns)}: "
        f"nothing runs for {1 - timing.median_ns / timing.span_ns:.0%} of the time.",
        advice="Fuse the kernels into one (in Triton, or with torch.compile), or launch them as "
        "one CUDA graph.",
        weight=_weight_of_limit(evidence, Limit.LAUNCH),
        most_speedup=timing.span_ns / timing.median_ns,
    )


def small_launches(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    timing = evidence.timing
    if timing is None or evidence.limit is not Limit.LAUNCH or evidence.gap_share >= GAP_SHARE:
        return
    time = f"A call takes {format_ns(timing.median_ns)}"
    source = "a typical value"
    if evidence.floor_ns:
        source = "measured in the same run"
    if evidence.fixed_share >= FIXED_SHARE:
        kernels = "an empty kernel"
        if (timing.kernel_count or 1) > 1:
            kernels = f"{timing.kernel_count} empty kernels"
        text = (
            f"{time}; {kernels} would take about {format_ns(evidence.fixed_ns)} ({source}), "
            f"{evidence.fixed_share:.0%} "
            "of it."
        )
    else:
        text = (
            f"{time}, but its work needs only {format_ns(evidence.roof.ideal_ns or 0.0)}; one "
            f"empty operator takes "
            f"{format_ns(evidence.one_launch_ns)} ({source}), so nearly all of the time is call "
            f"overhead."
        )
    yield DiagnosisFinding(
        title="too little work per launch",
        text=text,
        advice="Do more work per launch: use larger batches, or fuse it with its neighbours. "
        "Tuning the kernel does "
        "not help at this size.",
        weight=Weight.BINDING,
        most_speedup=timing.median_ns / evidence.one_launch_ns,
    )


def many_kernels(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    timing = evidence.timing
    if timing is None or timing.kernel_count is None or timing.kernel_count < MANY_KERNELS:
        return
    mean_ns = timing.median_ns / timing.kernel_count
    reachable_ns = evidence.reachable_ns
    # large kernels hide the cost of their launches
    if mean_ns < SMALL_KERNEL_NS:
        yield DiagnosisFinding(
            title="many small kernels",
            text=f"A call launches {timing.kernel_count} kernels of {format_ns(mean_ns)} on "
            f"average.",
            advice="Fuse them with torch.compile or in one Triton kernel, to keep intermediate "
            "values in registers.",
            most_speedup=None if reachable_ns is None else timing.median_ns / reachable_ns,
        )


def fusible_operators(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Several operators of torch pass intermediate values through memory."""
    profile = evidence.profile
    needed_bytes = evidence.case.memory_bytes
    if profile is None or len(profile.operator_bytes) < 2 or not needed_bytes:
        return
    moved_bytes = sum(profile.operator_bytes.values())
    # caches and padding make some extra traffic normal
    if moved_bytes < _FUSIBLE_RATIO * needed_bytes:
        return
    largest = sorted(profile.operator_bytes.items(), key=lambda entry: -entry[1])
    operators = [f"{name} {format_bytes(count)}" for name, count in largest]
    text = (
        f"{len(largest)} operators move {format_bytes(moved_bytes)} in a call, "
        f"{moved_bytes / needed_bytes:.1f} times what the case needs: "
        f"{listed(operators, _OPERATORS)}"
    )
    elementwise_names = [name for name, _ in largest if name in profile.elementwise_names]
    if elementwise_names:
        text += f". Element by element: {', '.join(elementwise_names)}"
    yield DiagnosisFinding(
        title="operators that could be one kernel",
        text=f"{text}.",
        advice="Fuse them with torch.compile or in one Triton kernel: element-wise operators into "
        "the operator before or after them, so that only inputs and results pass through memory.",
        most_speedup=moved_bytes / needed_bytes,
    )


# --- hardware counters, other implementations, autotuning


def excess_traffic(evidence: Evidence) -> Iterator[DiagnosisFinding]:
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


def faster_implementation(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    if evidence.timing is None or not evidence.others:
        return
    name, median_ns = min(evidence.others.items(), key=lambda item: item[1])
    speedup = evidence.timing.median_ns / median_ns
    # less may be noise between two implementations
    if speedup >= FASTER_BY:
        yield DiagnosisFinding(
            title="another implementation is faster",
            text=f"In the same run {{}} takes {format_ns(median_ns)}, this takes "
            f"{format_ns(evidence.timing.median_ns)}: {speedup:.2f} times as long.",
            words=(name,),
            advice="Use that implementation, or find out what it does differently.",
            most_speedup=speedup,
            is_measured=True,
        )


def profiler_advice(evidence: Evidence) -> Iterator[DiagnosisFinding]:
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
        yield DiagnosisFinding(
            title="a rule of Nsight Compute",
            text=f"{{}} could save {saved_share:.0%} of its time: {{}}",
            words=(function, message),
            advice="Open the report that `roofwatch ncu --output` keeps. The saving is an "
            "estimate of Nsight Compute.",
            most_speedup=1 / (1 - saved_share) if is_single_kernel else None,
        )


def autotuning(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    if evidence.measurement is None:
        return
    for tuning in evidence.measurement.autotuning:
        times_ns: dict[str, float] = {}
        for timing in tuning.timings:
            if timing.time_ns:
                times_ns[str(timing.configuration)] = timing.time_ns
        chosen_ns = times_ns.pop(str(tuning.chosen), None)
        # without a second configuration there was no choice
        if chosen_ns is None or not times_ns:
            continue
        other_ns = min(times_ns.values())
        if chosen_ns > other_ns * CLOSE_SECOND:
            slower = f"{chosen_ns / other_ns - 1:.1%} slower than another one"
            yield DiagnosisFinding(
                title="the autotuner did not choose the fastest configuration",
                text=f"For {{}} the chosen configuration is {slower}.",
                words=(tuning.function,),
                advice="Clear its cache and tune again on an idle device.",
                most_speedup=chosen_ns / other_ns,
                is_measured=True,
            )
        elif other_ns <= chosen_ns * CLOSE_SECOND:
            yield DiagnosisFinding(
                title="the autotuner has a close second",
                text=f"For {{}} the two fastest configurations differ by "
                f"{abs(other_ns / chosen_ns - 1):.1%}: another "
                "run may choose the other one.",
                words=(tuning.function,),
                advice="Fix the configuration if runs must be comparable.",
                weight=Weight.HINT,
            )


MEASUREMENT_RULES: tuple[Rule, ...] = (
    failed,
    throttled,
    implausible_ceilings,
    above_the_roof,
    varying_kernels,
    host_gaps,
    host_bound,
    gaps,
    small_launches,
    many_kernels,
    fusible_operators,
    excess_traffic,
    waves,
    faster_implementation,
    profiler_advice,
    autotuning,
)
