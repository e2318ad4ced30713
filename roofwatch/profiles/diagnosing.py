"""What `roofwatch diagnose` is asked, and how it tells what ci/ found."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from roofwatch.ci.diagnosis.diagnose import diagnose, is_empty, is_wrong
from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Diagnosis, Finding
from roofwatch.ci.diagnosis.record_evidence import RecordEvidence, subjects_of
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run_plan import RunPlan
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG

_SHOWN = 5
_WORTH_TELLING = 1.05
"""A speedup below it is no promise."""


@dataclass(frozen=True)
class Diagnosed:
    """What is known of one case and implementation, and what it amounts to."""

    evidence: Evidence
    diagnosis: Diagnosis


def plan_for(plan: RunPlan, case_pattern: str) -> RunPlan:
    """The plan that measures the cases of a pattern: a kernel's name alone stands for its usual cases."""
    kernel, slash, _ = case_pattern.partition("/")
    return replace(plan, kernels=(kernel,), cases=(case_pattern,) if slash else None)


def diagnose_record(
    record: RunRecord, case_pattern: str, implementations: Sequence[str] | None, *, name: str
) -> list[Diagnosed]:
    """Diagnose what a record holds of some cases.

    Args:
        record: With whatever layers it has.
        case_pattern: A case's id, a shell pattern of ids, or the name of a kernel.
        implementations: Shell patterns of names; None takes all.
        name: Of the record, for the error.

    Raises:
        RecordError: it holds nothing of such a case.
    """
    every = subjects_of(record)
    found = [subject for subject in every if _is_meant(subject, case_pattern, implementations)]
    if not found:
        known = list(dict.fromkeys(case_id for case_id, _ in every))
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise RecordError(
            f"{name}: holds nothing of {case_pattern}"
            + (f" by {' '.join(implementations)}" if implementations else "")
            + (f"; it has {', '.join(known[:_SHOWN])}{more}" if known else "")
        )
    evidence = RecordEvidence(record)
    gathered = [evidence.of(*subject) for subject in found]
    return [Diagnosed(each, diagnose(each)) for each in gathered]


def _is_meant(subject: tuple[str, str], case_pattern: str, implementations: Sequence[str] | None) -> bool:
    case_id, implementation = subject
    return (fnmatch.fnmatchcase(case_id, case_pattern) or case_id.partition("/")[0] == case_pattern) and (
        not implementations or any(fnmatch.fnmatchcase(implementation, pattern) for pattern in implementations)
    )


def exit_status(diagnosed: Sequence[Diagnosed]) -> int:
    """0 if something is known of each, 1 if one of them fails, 2 if nothing is known of any."""
    if any(is_wrong(each.diagnosis) for each in diagnosed):
        return EXIT_WRONG
    return EXIT_CANNOT if all(is_empty(each.diagnosis) for each in diagnosed) else 0


# --- for people


def told(diagnosed: Diagnosed) -> Iterator[str]:
    """A diagnosis line by line."""
    diagnosis = diagnosed.diagnosis
    yield f"{diagnosis.case_id} {diagnosis.implementation}"
    yield f"  {diagnosis.limit}: {diagnosis.headline}"
    yield from _ceilings_in_words(diagnosed.evidence)
    for number, finding in enumerate(diagnosis.findings, start=1):
        yield from _finding_in_words(number, finding)
    for missing in diagnosis.missing:
        yield f"  not known: {missing.what}; how to know it: {missing.how}"


def _finding_in_words(number: int, finding: Finding) -> Iterator[str]:
    worth_telling = finding.most_speedup is not None and finding.most_speedup >= _WORTH_TELLING
    most = ""
    if worth_telling:
        times = f"{finding.most_speedup:.3g} times as fast"
        most = f" ({times}, as measured)" if finding.is_measured else f" (at most {times})"
    yield f"  {number}. {finding.title}{most}"
    yield f"     {finding.evidence}"
    yield f"     Try: {finding.advice}"


def _ceilings_in_words(evidence: Evidence) -> Iterator[str]:
    """The ceilings that bind the case beside the datasheet's, where the device has one that is known."""
    binding = {ceiling.method for ceiling in (evidence.roof.memory, evidence.roof.compute) if ceiling is not None}
    parts = []
    for each in evidence.published:
        if each.measured.method in binding:
            write = metric("memory_bytes_per_s" if each.measured.resource == "memory" else "flop_per_s").format
            what = each.measured.dtype or "memory"
            parts.append(
                f"{what} {write(each.measured.per_s)}, {each.share:.0%} of the datasheet's {write(each.at_clock_per_s)}"
            )
    if parts:
        yield f"  ceilings as measured: {'; '.join(parts)}"


# --- for machines


def to_json(diagnosed: Sequence[Diagnosed], record: str) -> dict[str, Any]:
    """The document that `--json` prints; docs/how-to/diagnose.md describes it."""
    return {
        "record": record,
        "exit_status": exit_status(diagnosed),
        "diagnoses": [_one_to_json(each) for each in diagnosed],
    }


def _one_to_json(diagnosed: Diagnosed) -> dict[str, Any]:
    evidence, diagnosis = diagnosed.evidence, diagnosed.diagnosis
    timing, roof = evidence.timing, evidence.roof
    return {
        "case_id": diagnosis.case_id,
        "implementation": diagnosis.implementation,
        "limit": str(diagnosis.limit),
        "headline": str(diagnosis.headline),
        "timing": None if timing is None else asdict(timing),
        "roof": {
            "bound": roof.bound,
            "least_ns": roof.least_ns,
            "memory_share": evidence.memory_share,
            "compute_share": evidence.compute_share,
            "intensity_flop_per_byte": evidence.intensity,
            "ridge_flop_per_byte": roof.ridge,
            "levels": [asdict(level) for level in evidence.levels],
        },
        "ceilings": [
            {
                "resource": each.measured.resource,
                "dtype": each.measured.dtype,
                "measured_per_s": each.measured.per_s,
                "datasheet_per_s": each.published_per_s,
                "datasheet_at_clock_per_s": each.at_clock_per_s,
                "sm_clock_mhz": each.sm_clock_mhz,
            }
            for each in evidence.published
        ],
        "findings": [_finding_to_json(finding) for finding in diagnosis.findings],
        "missing": [{"what": missing.what, "how": str(missing.how)} for missing in diagnosis.missing],
    }


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "limit": None if finding.limit is None else str(finding.limit),
        "weight": finding.weight.name.lower(),
        "title": finding.title,
        "evidence": str(finding.evidence),
        "advice": finding.advice,
        "most_speedup": finding.most_speedup,
        "is_measured": finding.is_measured,
    }
