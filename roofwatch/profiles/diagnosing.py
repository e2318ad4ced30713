"""Select, print and serialise what `roofwatch diagnose` finds."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose, subjects_of
from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import Diagnosis, Finding
from roofwatch.ci.messages import listed
from roofwatch.collector.runs.run_plan import RunPlan, matches
from roofwatch.model.errors import RecordError
from roofwatch.model.metrics import metric
from roofwatch.model.record import RunRecord
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG

_MIN_SPEEDUP = 1.05
"""Smaller speedups are not printed."""


def plan_for(plan: RunPlan, case_pattern: str) -> RunPlan:
    """Narrow a plan to the cases of a pattern; the name of a kernel selects its usual cases."""
    kernel, slash, _ = case_pattern.partition("/")
    return replace(plan, kernels=(kernel,), cases=(case_pattern,) if slash else None)


def diagnose_record(
    record: RunRecord, case_pattern: str, implementations: Sequence[str] | None, *, name: str
) -> list[Diagnosis]:
    """Diagnose the cases of a record that a pattern matches, or those of a kernel.

    Raises:
        RecordError: no case matches.
    """
    every = subjects_of(record)
    selected = [
        (case_id, implementation)
        for case_id, implementation in every
        if matches(case_id, [case_pattern]) or case_id.partition("/")[0] == case_pattern
        if not implementations or matches(implementation, implementations)
    ]
    if not selected:
        known = listed(dict.fromkeys(case_id for case_id, _ in every))
        wanted = (
            f"{case_pattern} by {' '.join(implementations)}" if implementations else case_pattern
        )
        raise RecordError(
            f"{name}: has no results of {wanted}{f'; it has {known}' if known else ''}"
        )
    return list(map(diagnose, collect_evidence(record, selected)))


def exit_status(diagnosed: Sequence[Diagnosis]) -> int:
    """1 if a case fails, 2 if nothing is known of any, else 0."""
    rules = {finding.rule for diagnosis in diagnosed for finding in diagnosis.findings}
    if rules & {"failed", "too_large_to_launch", "failed_to_compile"}:
        return EXIT_WRONG
    is_known = rules or any(diagnosis.limit is not Limit.UNDETERMINED for diagnosis in diagnosed)
    return 0 if is_known else EXIT_CANNOT


def to_lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"{diagnosis.evidence.case.case_id} {diagnosis.evidence.implementation}"
    yield f"  {diagnosis.limit}: {diagnosis.headline}"
    yield from _ceilings(diagnosis.evidence)
    for number, finding in enumerate(diagnosis.findings, start=1):
        yield f"  {number}. {finding.title}{_speedup(finding)}"
        yield f"     {finding.evidence}"
        yield f"     Try: {finding.advice}"
    for missing in diagnosis.missing:
        yield f"  missing: {missing}"


def _speedup(finding: Finding) -> str:
    if finding.most_speedup is None or finding.most_speedup < _MIN_SPEEDUP:
        return ""
    times = f"{finding.most_speedup:.3g} times as fast"
    return f" ({times}, measured)" if finding.is_measured else f" (at most {times})"


def _ceilings(evidence: Evidence) -> Iterator[str]:
    """The measured ceilings of the case, compared with the datasheet if the device is known."""
    binding = {
        ceiling.method
        for ceiling in (evidence.roof.memory, evidence.roof.compute)
        if ceiling is not None
    }
    parts = []
    for each in evidence.published:
        if each.measured.method in binding:
            write = metric(
                "memory_bytes_per_s" if each.measured.resource == "memory" else "flop_per_s"
            ).format
            parts.append(
                f"{each.measured.dtype or 'memory'} {write(each.measured.per_s)}, "
                f"{each.share:.0%} of the datasheet's "
                f"{write(each.at_clock_per_s)}"
            )
    if parts:
        yield f"  measured ceilings: {'; '.join(parts)}"


def to_json(diagnosed: Sequence[Diagnosis], record: str) -> dict[str, Any]:
    """Make the document that `--json` prints; docs/how-to/diagnose.md describes it."""
    return {
        "record": record,
        "exit_status": exit_status(diagnosed),
        "diagnoses": list(map(_one_to_json, diagnosed)),
    }


def _one_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
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
                "resource": each.measured.resource,
                "dtype": each.measured.dtype,
                "measured_per_s": each.measured.per_s,
                "datasheet_per_s": each.published_per_s,
                "datasheet_at_clock_per_s": each.at_clock_per_s,
            }
            for each in evidence.published
        ],
        "findings": [
            {
                **{
                    name: value
                    for name, value in asdict(finding).items()
                    if name not in {"text", "words"}
                },
                "weight": finding.weight.name.lower(),
                "evidence": str(finding.evidence),
            }
            for finding in diagnosis.findings
        ],
        "missing": list(map(str, diagnosis.missing)),
    }
