"""Diagnose which limit binds a kernel, why, and what to try.

docs/how-to/diagnose.md explains the limits and lists the rules with their sources.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from roofwatch.ci.diagnosis.code_rules import CODE_RULES, summarise_code
from roofwatch.ci.diagnosis.evidence import GAP_SHARE, Evidence, Limit, Timing
from roofwatch.ci.diagnosis.finding import Diagnosis, Weight, share_in_words
from roofwatch.ci.diagnosis.limit_rules import LIMIT_RULES
from roofwatch.ci.diagnosis.measurement_rules import MEASUREMENT_RULES
from roofwatch.ci.messages import Remark
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.model.machine import CaseResult, Environment
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord

Subject = tuple[str, str]
"""Case id and implementation."""

_Result = TypeVar("_Result", bound=CaseResult)
_EMPTY_KERNEL = "empty_launch"
_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}


def subjects_of(record: RunRecord) -> list[Subject]:
    """Every case and implementation with times, machine code or counters, in the order of the
    record.
    """
    return list(_by_subject([*record.measurements, *record.static_facts, *record.counters]))


def collect_evidence(record: RunRecord, subjects: Iterable[Subject]) -> list[Evidence]:
    """Collect the evidence for cases and implementations.

    Raises:
        KeyError: the record has no such case.
    """
    cases = {case.case_id: case for case in record.cases}
    measurements, facts = _by_subject(record.measurements), _by_subject(record.static_facts)
    counters, target = _by_subject(record.counters), _target_of(record.environment)
    # times compare only by the same timer and cache state
    medians_ns: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    floors_ns: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for each in record.measurements:
        timing = Timing.of(each)
        if timing is not None:
            medians_ns[each.case_id, each.timer, each.cache][each.implementation] = timing.median_ns
            if each.case_id in cases and cases[each.case_id].kernel == _EMPTY_KERNEL:
                floors_ns[each.timer, each.cache].append(
                    timing.median_ns / (timing.kernel_count or 1)
                )
    device_name, clock_mhz = record.environment.device_name, record.sm_clock_mhz
    published = compare_with_datasheet(record.ceilings, device_name, sm_clock_mhz=clock_mhz)

    def collect(case_id: str, implementation: str) -> Evidence:
        own = facts.get((case_id, implementation), ())
        measurement = next(iter(measurements.get((case_id, implementation), ())), None)
        timed_by = () if measurement is None else (measurement.timer, measurement.cache)
        others = medians_ns.get((case_id, *timed_by), {})
        return Evidence(
            case=cases[case_id],
            implementation=implementation,
            environment=record.environment,
            ceilings=record.ceilings,
            measurement=measurement,
            target=target,
            facts=tuple(fact for fact in own if fact.target == target) or tuple(own),
            counters=tuple(counters.get((case_id, implementation), ())),
            others={
                name: median_ns for name, median_ns in others.items() if name != implementation
            },
            floor_ns=min(floors_ns.get(timed_by, ()), default=None),
            published=published,
        )

    return [collect(*subject) for subject in subjects]


def _by_subject(results: Iterable[_Result]) -> dict[Subject, list[_Result]]:
    found: dict[Subject, list[_Result]] = {}
    for result in results:
        found.setdefault((result.case_id, result.implementation), []).append(result)
    return found


def _target_of(environment: Environment) -> str | None:
    capability = environment.compute_capability
    if capability is None or environment.device_kind == "cpu":
        return None
    if environment.device_kind == "hip":
        return _AMD_TARGETS.get(capability)
    return f"sm_{capability.replace('.', '')}"


RULES = (*LIMIT_RULES, *MEASUREMENT_RULES, *CODE_RULES)
"""Rules in the order of findings of equal weight and speedup."""

_MEANINGS = {
    Limit.MEMORY: "limited by memory bandwidth",
    Limit.CACHE: "limited by cache bandwidth",
    Limit.COMPUTE: "limited by arithmetic throughput",
    Limit.LATENCY: "neither memory nor compute is saturated",
    Limit.LAUNCH: "most of the time is launch overhead",
    Limit.HOST: "the host issues work more slowly than the device runs it",
    Limit.LINKS: "limited by the links between devices",
}
_MAX_NEW_FINDINGS = 3


def diagnose(evidence: Evidence) -> Diagnosis:
    """Name the limit that binds, and sort the findings of all rules by weight, then by possible
    speedup.
    """
    findings = [
        replace(
            finding,
            rule=rule.__name__,
            most_speedup=finding.most_speedup and max(finding.most_speedup, 1.0),
        )
        for rule in RULES
        for finding in rule(evidence)
    ]
    return Diagnosis(
        evidence=evidence,
        headline=_headline(evidence),
        findings=tuple(
            sorted(findings, key=lambda finding: (finding.weight, -(finding.most_speedup or 0.0)))
        ),
        missing=tuple(_missing(evidence)),
    )


@dataclass(frozen=True)
class BottleneckChange:
    """The limits of one case and implementation in base and head."""

    case_id: str
    implementation: str
    base: Limit
    head: Limit
    headline: Remark
    news: tuple[Remark, ...]
    """Findings of the head that the base does not have."""


def bottleneck_changes(
    base: RunRecord, head: RunRecord, subjects: Iterable[tuple[str, str]]
) -> tuple[BottleneckChange, ...]:
    """Diagnose cases and implementations in both records; nothing is returned for those without
    news or a limit.
    """
    wanted = list(subjects)
    sides = [map(diagnose, collect_evidence(record, wanted)) for record in (base, head)]
    changes = []
    for before, after in zip(*sides, strict=True):
        known = {finding.rule for finding in before.findings}
        new = [
            Remark(f"{finding.title}: {finding.text}", finding.words)
            for finding in after.findings
            if finding.rule not in known and finding.weight in {Weight.BINDING, Weight.CAUSE}
        ]
        if after.limit is not Limit.UNDETERMINED or new:
            news = tuple(new[:_MAX_NEW_FINDINGS])
            subject = after.evidence.case.case_id, after.evidence.implementation
            change = BottleneckChange(*subject, before.limit, after.limit, after.headline, news)
            changes.append(change)
    return tuple(changes)


def _headline(evidence: Evidence) -> Remark:
    timing, limit = evidence.timing, evidence.limit
    if timing is None:
        code = summarise_code(evidence)
        if code is None:
            return Remark("neither timed nor compiled, so its speed is unknown")
        return Remark(f"not timed, so the limit is unknown; {code.template}", code.words)
    roof = _roof_in_words(evidence)
    meaning = _MEANINGS.get(limit, "no limit reached" if roof else "no ceiling applies")
    time = format_ns(timing.median_ns)
    if evidence.gap_share >= GAP_SHARE:
        time = f"{time} busy of {format_ns(timing.span_ns)} from first to last kernel"
    return Remark(f"{time}: {meaning}{roof}")


def _roof_in_words(evidence: Evidence) -> str:
    share, roof = evidence.utilisation, evidence.roof
    if share is None or roof.ideal_ns is None or roof.bound is None:
        return ""
    peak = "arithmetic throughput" if roof.bound == "compute" else f"{roof.bound} bandwidth"
    text = f"; {share_in_words(share)} of peak {peak}, {format_ns(roof.ideal_ns)} possible"
    if roof.ridge is not None and evidence.intensity:
        text += f" ({_short(evidence.intensity)} FLOP/byte, ridge point {_short(roof.ridge)})"
    return text


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _missing(evidence: Evidence) -> Iterator[Remark]:
    """What would make the diagnosis more certain on this kind of device."""
    case, timing = (evidence.case.case_id,), evidence.timing
    if timing is None:
        where = "" if evidence.is_gpu else ", on a machine with a GPU if the code needs one"
        yield Remark(f"times; from: `roofwatch diagnose {{}}`{where}", case)
    elif evidence.roof.ideal_ns is None:
        yield Remark(
            "a roof; from: a flop_count and memory_bytes of the kernel, and ceilings of the device"
        )
    if evidence.is_gpu and timing is not None:
        if not evidence.counters:
            yield Remark(
                "counters of memory traffic, occupancy and stalls; from: `roofwatch ncu {}`", case
            )
        if timing.host_ns is None:
            yield Remark("host time; from: a timer that measures it, see `roofwatch run --help`")
        if timing.sm_clock_mhz is None:
            yield Remark("the SM clock; from: NVML, which comes with the driver")
    if evidence.is_gpu and not evidence.has_own_facts:
        what = "machine code for the target of the device; from:"
        if evidence.target:
            yield Remark(f"{what} `roofwatch run` with `--targets {{}}`", (evidence.target,))
        else:
            yield Remark(f"{what} a target that this version can compile for")
