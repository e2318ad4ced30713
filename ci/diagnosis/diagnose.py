"""Which limit binds a kernel, why, and what to try: evidence in, a ranked diagnosis out. Pure.

docs/how-to/diagnose.md argues the limits and lists the rules with their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roofwatch.ci.diagnosis import code_rules, counter_rules, doubt_rules, launch_rules, limit_rules
from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Diagnosis, Finding, Limit, Missing, ranked, share_in_words
from roofwatch.ci.diagnosis.limits import GAP_SHARE, binding_limit, gap_share, misses_cache
from roofwatch.ci.message import Remark
from roofwatch.collector.record.metrics import format_ns

Rule = Callable[[Evidence, Limit], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    doubt_rules.failed,
    doubt_rules.throttled,
    doubt_rules.unbelievable_ceilings,
    doubt_rules.above_the_roof,
    doubt_rules.varying_kernels,
    limit_rules.near_roof,
    limit_rules.latency,
    limit_rules.undetermined,
    limit_rules.links,
    launch_rules.host_bound,
    launch_rules.gaps,
    launch_rules.small_launches,
    launch_rules.many_kernels,
    counter_rules.excess_traffic,
    counter_rules.waves,
    limit_rules.faster_implementation,
    counter_rules.profiler_says,
    code_rules.no_room,
    code_rules.failed_to_compile,
    code_rules.no_tensor_cores,
    code_rules.spills,
    code_rules.low_occupancy,
    code_rules.narrow_loads,
    code_rules.autotuning,
)
"""In the order of telling where nothing else decides."""

_MEANINGS = {
    Limit.MEMORY: "it waits for bytes from memory",
    Limit.CACHE: "it waits for bytes from the cache",
    Limit.COMPUTE: "the arithmetic units are busy",
    Limit.LATENCY: "neither memory nor arithmetic is busy, so it mostly waits",
    Limit.LAUNCH: "the time goes into starting kernels more than into what they do",
    Limit.HOST: "the program issues work more slowly than the device does it",
    Limit.LINKS: "it waits for the links between devices",
}


def diagnose(evidence: Evidence) -> Diagnosis:
    """Name the limit that binds, and rank what was found by what there is to gain."""
    limit = binding_limit(evidence)
    findings = [finding for rule in RULES for finding in rule(evidence, limit)]
    return Diagnosis(
        case_id=evidence.case.case_id,
        implementation=evidence.implementation,
        limit=limit,
        headline=_headline(evidence, limit),
        findings=ranked(findings),
        missing=tuple(_missing(evidence)),
    )


def _headline(evidence: Evidence, limit: Limit) -> Remark:
    timing = evidence.timing
    if timing is None:
        code = code_rules.code_in_words(evidence)
        if code is not None:
            return Remark(f"not timed, so no limit is named; {code.template}", code.words)
        return Remark("neither timed nor compiled, so nothing is known of its speed")
    roof = _under_the_roof(evidence)
    meaning = _MEANINGS.get(limit, "no ceiling explains the time" if roof else "no ceiling applies to it")
    if misses_cache(evidence) and limit in {Limit.MEMORY, Limit.CACHE}:
        meaning = f"most likely {meaning}"  # by its speed alone
    took = format_ns(timing.median_ns)
    if gap_share(timing) >= GAP_SHARE:
        took = f"{took} busy, {format_ns(timing.span_ns)} from first to last"
    return Remark(f"{took}: {meaning}{roof}")


def _under_the_roof(evidence: Evidence) -> str:
    share, least_ns = evidence.utilisation, evidence.roof.least_ns
    if share is None or least_ns is None or evidence.roof.bound is None:
        return ""
    by = "arithmetic" if evidence.roof.bound == "compute" else "memory"
    told = f"; the roof of this device ({by}) allows {format_ns(least_ns)}, {share_in_words(share)} of which is reached"
    if evidence.roof.ridge is not None and evidence.intensity:
        told += (
            f" (it does {_plain(evidence.intensity)} FLOP for each byte; from {_plain(evidence.roof.ridge)} on "
            "arithmetic "
            "binds)"
        )
    return told


def _plain(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _missing(evidence: Evidence) -> Iterator[Missing]:
    """What would make the diagnosis more certain, where it can be had on this kind of device."""
    case = (evidence.case.case_id,)
    timing = evidence.timing
    if timing is None:
        where = "" if evidence.is_gpu else ", on a machine with a GPU where its code is for one"
        yield Missing("no times", Remark(f"`roofwatch diagnose {{}}`{where}", case))
    elif evidence.roof.least_ns is None:
        yield Missing("no roof", Remark("a flop_count and memory_bytes of the kernel, and ceilings of the device"))
    if evidence.is_gpu and timing is not None:
        if not evidence.counters:
            yield Missing(
                "no counters: what really went through memory, how many warps ran, what they waited for",
                Remark("`roofwatch ncu {}`", case),
            )
        if timing.host_ns is None:
            yield Missing("no time of the program's own", Remark("a timer that takes it, see `roofwatch run --help`"))
        if timing.sm_clock_mhz is None:
            yield Missing("no clock of the device", Remark("NVML, which the driver brings"))
    if evidence.is_gpu and not evidence.has_own_facts:
        yield Missing(
            "no machine code of the device's own target",
            Remark("`roofwatch run` with `--targets {}`", (evidence.target or "",))
            if evidence.target
            else Remark("a target that this version can compile for"),
        )


def is_wrong(diagnosis: Diagnosis) -> bool:
    """The case failed, or cannot be compiled or launched: there is something to mend before speed counts."""
    return any(finding.rule in {"failed", "no_room", "failed_to_compile"} for finding in diagnosis.findings)


def is_empty(diagnosis: Diagnosis) -> bool:
    """Nothing at all is known of it."""
    return diagnosis.limit is Limit.UNDETERMINED and not diagnosis.findings
