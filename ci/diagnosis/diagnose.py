"""Which limit binds a kernel, why, and what to try: evidence in, a ranked diagnosis out.

docs/how-to/diagnose.md argues the limits and lists the rules with their sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from roofwatch.ci.diagnosis.code_rules import CODE_RULES, code_in_words
from roofwatch.ci.diagnosis.evidence import GAP_SHARE, Evidence, Limit
from roofwatch.ci.diagnosis.finding import Diagnosis, Finding, Missing, Weight, share_in_words
from roofwatch.ci.diagnosis.record_evidence import RecordEvidence
from roofwatch.ci.diagnosis.record_rules import CAUSE_RULES, DOUBT_RULES, LAUNCH_RULES
from roofwatch.ci.diagnosis.roof_rules import ROOF_RULES
from roofwatch.ci.message import Remark
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord

RULES = (*DOUBT_RULES, *ROOF_RULES, *LAUNCH_RULES, *CAUSE_RULES, *CODE_RULES)
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
_MAX_NEW_FINDINGS = 3


def diagnose(evidence: Evidence) -> Diagnosis:
    """Name the limit that binds, and rank what was found: by weight, then by what there is to gain."""
    findings = [finding for rule in RULES for finding in rule.findings(evidence)]
    return Diagnosis(
        case_id=evidence.case.case_id,
        implementation=evidence.implementation,
        limit=evidence.limit,
        headline=_headline(evidence),
        findings=tuple(sorted(findings, key=lambda finding: (finding.weight, -(finding.most_speedup or 0.0)))),
        missing=tuple(_missing(evidence)),
    )


def is_wrong(diagnosis: Diagnosis) -> bool:
    """Whether the case failed, or cannot be compiled or launched."""
    return any(finding.rule in {"failed", "no_room", "failed_to_compile"} for finding in diagnosis.findings)


def is_empty(diagnosis: Diagnosis) -> bool:
    """Whether nothing at all is known."""
    return diagnosis.limit is Limit.UNDETERMINED and not diagnosis.findings


# --- two ends of a change


@dataclass(frozen=True)
class BottleneckChange:
    """What binds one case and implementation at the two ends of a change."""

    case_id: str
    implementation: str
    base: Limit
    head: Limit
    headline: Remark
    """Why it is the head's."""
    news: tuple[Remark, ...]
    """What the head shows and the base does not, the most telling first."""


def bottleneck_changes(
    base: RunRecord, head: RunRecord, subjects: Iterable[tuple[str, str]]
) -> tuple[BottleneckChange, ...]:
    """Diagnose cases at both ends; left out where the head's limit is not known and nothing is new.

    Args:
        base: Record that has each of them.
        head: The same.
        subjects: Case and implementation.
    """
    before, after = RecordEvidence(base), RecordEvidence(head)
    changes = (_bottleneck_change(before, after, *subject) for subject in subjects)
    return tuple(change for change in changes if change.head is not Limit.UNDETERMINED or change.news)


def _bottleneck_change(
    base: RecordEvidence, head: RecordEvidence, case_id: str, implementation: str
) -> BottleneckChange:
    before, after = (diagnose(each.of(case_id, implementation)) for each in (base, head))
    known = {finding.rule for finding in before.findings}
    news = [
        finding
        for finding in after.findings
        if finding.rule not in known and finding.weight in {Weight.BINDING, Weight.CAUSE}
    ]
    told = tuple(map(_titled, news[:_MAX_NEW_FINDINGS]))
    return BottleneckChange(case_id, implementation, before.limit, after.limit, after.headline, told)


def _titled(finding: Finding) -> Remark:
    return Remark(f"{finding.title}: {finding.evidence.template}", finding.evidence.words)


# --- words


def _headline(evidence: Evidence) -> Remark:
    timing, limit = evidence.timing, evidence.limit
    if timing is None:
        code = code_in_words(evidence)
        if code is not None:
            return Remark(f"not timed, so no limit is named; {code.template}", code.words)
        return Remark("neither timed nor compiled, so nothing is known of its speed")
    roof = _under_the_roof(evidence)
    meaning = _MEANINGS.get(limit, "no ceiling explains the time" if roof else "no ceiling applies to it")
    if evidence.misses_cache and limit in {Limit.MEMORY, Limit.CACHE}:
        meaning = f"most likely {meaning}"  # by its speed alone
    took = format_ns(timing.median_ns)
    if evidence.gap_share >= GAP_SHARE:
        took = f"{took} busy, {format_ns(timing.span_ns)} from first to last"
    return Remark(f"{took}: {meaning}{roof}")


def _under_the_roof(evidence: Evidence) -> str:
    share, roof = evidence.utilisation, evidence.roof
    if share is None or roof.least_ns is None or roof.bound is None:
        return ""
    by = "arithmetic" if roof.bound == "compute" else "memory"
    told = (
        f"; the roof of this device ({by}) allows {format_ns(roof.least_ns)}, {share_in_words(share)} of which is "
        "reached"
    )
    if roof.ridge is not None and evidence.intensity:
        told += (
            f" (it does {_plain(evidence.intensity)} FLOP for each byte; from {_plain(roof.ridge)} on arithmetic binds)"
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
            Remark("`roofwatch run` with `--targets {}`", (evidence.target,))
            if evidence.target
            else Remark("a target that this version can compile for"),
        )
