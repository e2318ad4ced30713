"""Select, print and serialise what `roofwatch diagnose` finds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose, subjects_of
from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import Diagnosis, DiagnosisFinding
from roofwatch.ci.messages import listed
from roofwatch.collector.runs.run_plan import RunPlan, matches
from roofwatch.console.terminal import EXIT_CANNOT, EXIT_WRONG
from roofwatch.model.errors import RecordError
from roofwatch.model.metrics import metric
from roofwatch.model.record import RunRecord

_RATE_METRICS = {"memory": "memory_bytes_per_s", "compute": "flop_per_s"}
"""Metric that formats the rate of a ceiling, by its resource."""
_FAILURES = {"failed", "too_large_to_launch", "failed_to_compile"}
"""Rules that find a case that does not work."""
_MIN_SPEEDUP = 1.05
"""Smaller speedups are not printed."""


def plan_for(plan: RunPlan, case_pattern: str) -> RunPlan:
    """Narrow a plan to the cases of a pattern; the name of a kernel selects its usual cases.

    Calls are profiled, to know their operators.
    """
    kernel, slash, _ = case_pattern.partition("/")
    cases = (case_pattern,) if slash else None
    return replace(plan, kernels=(kernel,), cases=cases, has_profiles=True)


def diagnose_record(
    record: RunRecord,
    case_pattern: str,
    implementations: Sequence[str] | None,
    *,
    name: str,
) -> list[Diagnosis]:
    """Diagnose the cases of a record that a pattern matches, or those of a kernel.

    Raises:
        RecordError: no case matches.
    """
    subjects = subjects_of(record)
    selected: list[tuple[str, str]] = []
    for case_id, implementation in subjects:
        kernel, _, _ = case_id.partition("/")
        is_case = kernel == case_pattern or matches(case_id, [case_pattern])
        is_implementation = not implementations or matches(implementation, implementations)
        if is_case and is_implementation:
            selected.append((case_id, implementation))
    if not selected:
        request = case_pattern
        if implementations:
            request += f" by {' '.join(implementations)}"
        case_ids = listed(dict.fromkeys(case_id for case_id, _ in subjects))
        message = f"{name}: has no results of {request}"
        if case_ids:
            message += f"; it has {case_ids}"
        raise RecordError(message)
    return list(map(diagnose, collect_evidence(record, selected)))


def exit_status(diagnosed: Sequence[Diagnosis]) -> int:
    """1 if a case fails, 2 if nothing is known of any, else 0."""
    rules = {finding.rule for diagnosis in diagnosed for finding in diagnosis.findings}
    if rules & _FAILURES:
        return EXIT_WRONG
    if rules or any(diagnosis.limit is not Limit.UNDETERMINED for diagnosis in diagnosed):
        return 0
    return EXIT_CANNOT


def to_lines(diagnosed: Sequence[Diagnosis]) -> Iterator[str]:
    """The case with the most to gain first, then each case; advice is given once."""
    if len(diagnosed) > 1:
        yield _most_to_gain(diagnosed)
    given_advice: set[str] = set()
    for diagnosis in diagnosed:
        yield _name_of(diagnosis)
        yield f"  {diagnosis.limit}: {diagnosis.headline}"
        yield from _ceilings(diagnosis.evidence)
        for number, finding in enumerate(diagnosis.findings, start=1):
            yield f"  {number}. {finding.title}{_speedup(finding)}"
            yield f"     {finding.evidence}"
            # implementations of one kernel often need the same advice
            if finding.advice not in given_advice:
                yield f"     Try: {finding.advice}"
            given_advice.add(finding.advice)
        for missing in diagnosis.missing:
            yield f"  missing: {missing}"


def _most_to_gain(diagnosed: Sequence[Diagnosis]) -> str:
    first = max(diagnosed, key=_gain)
    counted = f"the most to gain of {len(diagnosed)}"
    if not first.findings:
        return f"{counted}: unknown; {first.headline}"
    finding = first.findings[0]
    return f"{counted}: {_name_of(first)}: {finding.title}{_speedup(finding)}"


def _gain(diagnosis: Diagnosis) -> float:
    """How urgent the first finding is: a failure is before any speedup."""
    if not diagnosis.findings:
        return 0.0
    finding = diagnosis.findings[0]
    if finding.rule in _FAILURES:
        return math.inf
    return finding.most_speedup or 1.0


def _name_of(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.evidence.case.case_id} {diagnosis.evidence.implementation}"


def _speedup(finding: DiagnosisFinding) -> str:
    if finding.most_speedup is None or finding.most_speedup < _MIN_SPEEDUP:
        return ""
    times = f"{finding.most_speedup:.3g} times as fast"
    if finding.is_measured:
        return f" ({times}, measured)"
    return f" (at most {times})"


def _ceilings(evidence: Evidence) -> Iterator[str]:
    """The measured ceilings of the case, compared with the datasheet if the device is known."""
    roof_ceilings = (evidence.roof.memory, evidence.roof.compute)
    binding_methods = {ceiling.method for ceiling in roof_ceilings if ceiling is not None}
    parts = []
    for comparison in evidence.published:
        measured = comparison.measured
        if measured.method not in binding_methods:
            continue
        write = metric(_RATE_METRICS[measured.resource]).format
        parts.append(
            f"{measured.dtype or 'memory'} {write(measured.per_s)}, {comparison.share:.0%} of the "
            f"datasheet's {write(comparison.at_clock_per_s)}"
        )
    if parts:
        yield f"  measured ceilings: {'; '.join(parts)}"


def to_json(diagnosed: Sequence[Diagnosis], record: str) -> dict[str, Any]:
    """Make the document that `--json` prints; docs/how-to/diagnose.md describes it."""
    return {
        "record": record,
        "exit_status": exit_status(diagnosed),
        "diagnoses": list(map(_diagnosis_to_json, diagnosed)),
    }


def _diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    evidence = diagnosis.evidence
    return {
        "case_id": evidence.case.case_id,
        "implementation": evidence.implementation,
        "limit": str(diagnosis.limit),
        "headline": str(diagnosis.headline),
        "timing": None if evidence.timing is None else asdict(evidence.timing),
        "roof": {
            "bound": evidence.roof.bound,
            "least_ns": evidence.roof.ideal_ns,
            "memory_share": evidence.memory_share,
            "compute_share": evidence.compute_share,
            "intensity_flop_per_byte": evidence.intensity,
            "ridge_flop_per_byte": evidence.roof.ridge,
            "levels": [asdict(level) for level in evidence.levels],
        },
        "ceilings": [
            {
                "resource": comparison.measured.resource,
                "dtype": comparison.measured.dtype,
                "measured_per_s": comparison.measured.per_s,
                "datasheet_per_s": comparison.published_per_s,
                "datasheet_at_clock_per_s": comparison.at_clock_per_s,
            }
            for comparison in evidence.published
        ],
        "findings": list(map(_finding_to_json, diagnosis.findings)),
        "missing": list(map(str, diagnosis.missing)),
    }


def _finding_to_json(finding: DiagnosisFinding) -> dict[str, Any]:
    document = asdict(finding)
    # text and words are one sentence to a reader: the evidence
    del document["text"], document["words"]
    document["weight"] = finding.weight.name.lower()
    document["evidence"] = str(finding.evidence)
    return document
