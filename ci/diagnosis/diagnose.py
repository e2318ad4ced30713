"""Diagnose which limit binds a kernel, why, and what to try.

docs/how-to/diagnose.md explains the limits and lists the rules with their sources.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from roofwatch.ci.diagnosis.alternative_rules import ALTERNATIVE_RULES
from roofwatch.ci.diagnosis.code_rules import CODE_RULES, summarise_code
from roofwatch.ci.diagnosis.counter_rules import COUNTER_RULES
from roofwatch.ci.diagnosis.estimate_rules import ESTIMATE_RULES
from roofwatch.ci.diagnosis.evidence import GAP_SHARE, Evidence, Limit, Timing
from roofwatch.ci.diagnosis.finding import Diagnosis, DiagnosisFinding, Weight, share_in_words
from roofwatch.ci.diagnosis.launch_rules import LAUNCH_RULES
from roofwatch.ci.diagnosis.limit_rules import LIMIT_RULES
from roofwatch.ci.diagnosis.measurement_rules import MEASUREMENT_RULES
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.judge.pairing import CaseResults, Pairing, index_results
from roofwatch.ci.messages import Remark
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.model.case_key import CaseKey
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord
from roofwatch.model.verdict import Reason

_EMPTY_KERNEL = "empty_launch"
"""Its time is the fixed cost of a launch."""


def subjects_of(record: RunRecord) -> list[CaseKey]:
    """Every case and implementation with times, machine code or counters, in the order of the
    record.
    """
    return [
        key
        for key, results in index_results(record).items()
        if results.measurement is not None or results.code or results.counters
    ]


def collect_evidence(record: RunRecord, subjects: Iterable[CaseKey]) -> list[Evidence]:
    """Collect the evidence for cases and implementations.

    Raises:
        KeyError: the record has no such case.
    """
    cases = {case.case_id: case for case in record.cases}
    results_by_case = index_results(record)
    target = record.environment.compile_target
    times = _TimesOfRecord(record, cases)
    published = compare_with_datasheet(
        record.ceilings,
        record.environment.device_name,
        sm_clock_mhz=record.sm_clock_mhz,
    )

    evidence: list[Evidence] = []
    for key in subjects:
        case_id, implementation = key
        results = results_by_case.get(key, CaseResults())
        # code for the device itself; without it, what is known of other targets
        device_facts = [facts for facts in results.code if facts.target == target]
        evidence.append(
            Evidence(
                case=cases[case_id],
                implementation=implementation,
                environment=record.environment,
                ceilings=record.ceilings,
                measurement=results.measurement,
                target=target,
                facts=tuple(device_facts or results.code),
                counters=tuple(results.counters),
                profile=results.profile,
                others=times.of_others(results.measurement),
                floor_ns=times.floor_ns(results.measurement),
                published=published,
                suite=record.suite,
            )
        )
    return evidence


class _TimesOfRecord:
    """Medians of a record in ns. Times compare only by the same timer and cache state."""

    def __init__(self, record: RunRecord, cases: Mapping[str, CaseRecord]) -> None:
        self._medians_ns: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        self._floors_ns: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for measurement in record.measurements:
            timing = Timing.of(measurement)
            if timing is None:
                continue
            timed_by = measurement.timer, measurement.cache
            medians_ns = self._medians_ns[measurement.case_id, *timed_by]
            medians_ns[measurement.implementation] = timing.median_ns
            case = cases.get(measurement.case_id)
            # an empty kernel shows what a launch alone takes
            if case is not None and case.kernel == _EMPTY_KERNEL:
                kernel_count = timing.kernel_count or 1
                self._floors_ns[timed_by].append(timing.median_ns / kernel_count)

    def of_others(self, measurement: Measurement | None) -> dict[str, float]:
        """Medians of the other implementations of the same case."""
        if measurement is None:
            return {}
        key = measurement.case_id, measurement.timer, measurement.cache
        medians_ns = dict(self._medians_ns.get(key, {}))
        medians_ns.pop(measurement.implementation, None)
        return medians_ns

    def floor_ns(self, measurement: Measurement | None) -> float | None:
        """Time of an empty kernel; None if the record has none."""
        if measurement is None:
            return None
        timed_by = measurement.timer, measurement.cache
        floors_ns = self._floors_ns.get(timed_by, [])
        return min(floors_ns, default=None)


RULES = (
    *LIMIT_RULES,
    *MEASUREMENT_RULES,
    *LAUNCH_RULES,
    *COUNTER_RULES,
    *ALTERNATIVE_RULES,
    *ESTIMATE_RULES,
    *CODE_RULES,
)
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
    findings: list[DiagnosisFinding] = []
    for rule in RULES:
        for finding in rule(evidence):
            most_speedup = finding.most_speedup
            if most_speedup:
                most_speedup = max(most_speedup, 1.0)  # fixing it makes nothing slower
            findings.append(
                replace(
                    finding,
                    rule=rule.__name__,
                    most_speedup=most_speedup,
                )
            )
    # sorting is stable, so the order of the rules decides between equal findings
    findings.sort(key=lambda finding: (finding.weight, -(finding.most_speedup or 0.0)))
    return Diagnosis(
        evidence=evidence,
        headline=_headline(evidence),
        findings=tuple(findings),
        missing=tuple(_missing(evidence)),
    )


@dataclass(frozen=True)
class LimitEvidence:
    """The limits of one case and implementation in base and head."""

    base: Limit
    head: Limit
    news: tuple[Remark, ...]
    """Findings of the head that the base does not have."""


def judge_limits(pairing: Pairing, subjects: Iterable[CaseKey]) -> list[Change[LimitEvidence]]:
    """Diagnose cases and implementations in both records; nothing is returned for those without
    news or a limit.
    """
    keys = list(subjects)
    base_diagnoses = map(diagnose, collect_evidence(pairing.base, keys))
    head_diagnoses = map(diagnose, collect_evidence(pairing.head, keys))
    changes: list[Change[LimitEvidence]] = []
    for key, base, head in zip(keys, base_diagnoses, head_diagnoses, strict=True):
        news = _news(base, head)
        # an undetermined limit is no news
        if head.limit is Limit.UNDETERMINED and not news:
            continue
        change = Change(
            subject=ChangeSubject(*key),
            metric="utilisation",
            base=base.evidence.utilisation,
            head=head.evidence.utilisation,
            reason=Reason.LIMIT_CHANGED,
            detail=head.headline,
            evidence=LimitEvidence(
                base=base.limit,
                head=head.limit,
                news=tuple(news[:_MAX_NEW_FINDINGS]),
            ),
        )
        changes.append(change)
    return changes


def _news(base: Diagnosis, head: Diagnosis) -> list[Remark]:
    """Findings of the head by rules that found nothing in the base; doubts and hints change by
    chance.
    """
    base_rules = {finding.rule for finding in base.findings}
    news = []
    for finding in head.findings:
        is_reported = finding.weight in {Weight.BINDING, Weight.CAUSE}
        if is_reported and finding.rule not in base_rules:
            template = f"{finding.title}: {finding.text}"
            news.append(Remark(template, finding.words))
    return news


def _headline(evidence: Evidence) -> Remark:
    """Time, limit and share of the ceiling; without a time, what the machine code shows."""
    timing = evidence.timing
    if timing is None:
        code = summarise_code(evidence)
        if code is None:
            return Remark("neither timed nor compiled, so its speed is unknown")
        return Remark(f"not timed, so the limit is unknown; {code.template}", code.words)
    roof = _roof_in_words(evidence)
    meaning = _MEANINGS.get(evidence.limit)
    if meaning is None:
        meaning = "no limit reached" if roof else "no ceiling applies"
    time = format_ns(timing.median_ns)
    # the busy time alone would hide the gaps
    if evidence.gap_share >= GAP_SHARE:
        time = f"{time} busy of {format_ns(timing.span_ns)} from first to last kernel"
    return Remark(f"{time}: {meaning}{roof}")


def _roof_in_words(evidence: Evidence) -> str:
    """Share of the measured and the published peak, and the least time; empty without a ceiling."""
    share = evidence.utilisation
    roof = evidence.roof
    if share is None or roof.ideal_ns is None or roof.bound is None:
        return ""
    peak = f"{roof.bound} bandwidth"
    if roof.bound == "compute":
        peak = "arithmetic throughput"
    text = f"; {share_in_words(share)} of achievable {peak} (measured)"
    if evidence.datasheet_share is not None:
        text += f", {share_in_words(evidence.datasheet_share)} of peak (datasheet)"
    text += f", {format_ns(roof.ideal_ns)} possible"
    if roof.ridge is not None and evidence.intensity:
        intensity = _short(evidence.intensity)
        text += f" ({intensity} FLOP/byte, ridge point {_short(roof.ridge)})"
    return text


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _missing(evidence: Evidence) -> Iterator[Remark]:
    """What would make the diagnosis more certain on this kind of device."""
    arguments = (evidence.arguments,)
    timing = evidence.timing
    if timing is None:
        machine = ""
        if not evidence.is_gpu:
            machine = ", on a machine with a GPU if the code needs one"
        yield Remark(f"times; from: `roofwatch diagnose {{}}`{machine}", arguments)
    elif evidence.roof.ideal_ns is None:
        yield Remark(
            "a roof; from: a flop_count and memory_bytes of the kernel, and ceilings of the device"
        )
    if evidence.is_gpu and timing is not None:
        if not evidence.counters:
            yield Remark(
                "counters of memory traffic, occupancy and stalls; from: `roofwatch ncu {}`",
                arguments,
            )
        if timing.host_ns is None:
            yield Remark("host time; from: a timer that measures it, see `roofwatch run --help`")
        if timing.sm_clock_mhz is None:
            yield Remark("the SM clock; from: NVML, which comes with the driver")
    if evidence.is_gpu and not evidence.has_own_facts:
        machine_code = "machine code for the target of the device; from:"
        if evidence.target:
            yield Remark(
                f"{machine_code} `roofwatch run` with `--targets {{}}`",
                (evidence.target,),
            )
        else:
            yield Remark(f"{machine_code} a target that this version can compile for")
