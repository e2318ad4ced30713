"""Sum up the reports of `roofwatch check`, and explain the failures."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from roofwatch.ci.static.analyses import describe_proof
from roofwatch.measurement.proofs import proofs_of
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.check_report import REFERENCE_FAILED, CheckedSuite, CheckReport, TensorReport
from roofwatch.model.machine import Outcome
from roofwatch.model.proofs import KernelPackage, OverflowProof, Proof

_MAX_NAMED = 3


def exit_status(suite: CheckedSuite) -> int:
    """0 if every check passed, 1 if one failed, 2 if nothing could be checked, a reference failed,
    or no Triton kernel could be checked because of a defect of its interpreter.
    """
    judged = [report for report in suite.reports if not report.has_failed_reference]
    outcomes = {report.outcome for report in judged}
    proofs = {proof.proof for proof in suite.overflow_proofs}
    if Proof.UNSAFE in proofs or any(outcome.is_failure for outcome in outcomes):
        return 1
    if any(report.interpreter_defect is not None for report in suite.reports):
        return 2
    if len(judged) < len(suite.reports):
        return 2
    if Outcome.OK in outcomes or Proof.FITS in proofs:
        return 0
    return 2


def check_summary(reports: Sequence[CheckReport]) -> str:
    """Number of cases, layouts and other values per outcome.

    A case that fails in another layout or with other values does not count as ok.
    """
    failed_variation: dict[CaseKey, str] = {}
    for report in reports:
        if report.outcome.is_failure and report.layout is not None:
            failed_variation.setdefault(report.case_key, "wrong in other layouts")
        elif report.outcome.is_failure and report.regime is not None:
            failed_variation.setdefault(report.case_key, "wrong with other values")
    groups: dict[str, Counter[str]] = {}
    for report in reports:
        outcome = str(report.outcome)
        is_unsupported = report.outcome is Outcome.UNSUPPORTED
        name = "checked"
        if report.layout is not None:
            name = "in other layouts"
            # A kernel may refuse a layout with a clear error.
            if is_unsupported:
                outcome = "refused"
        elif report.regime is not None:
            name = "with other values"
            if is_unsupported:
                outcome = "not tried"
        elif report.outcome is Outcome.OK:
            outcome = failed_variation.get(report.case_key, outcome)
        groups.setdefault(name, Counter())[outcome] += 1
    texts: list[str] = []
    for name, counts in groups.items():
        listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        texts.append(f"{name}: {listed}")
    if all(report.outcome is Outcome.UNSUPPORTED for report in reports):
        reasons = [report.message for report in reports if report.message]
        texts += reasons[:1]
    return "; ".join(texts)


def repeat_command(target: str, report: CheckReport, device: str | None) -> str:
    """The command that checks one case of one implementation again."""
    words = [
        "roofwatch",
        "check",
        target,
        "--case",
        report.case_id,
        "--implementation",
        report.implementation,
    ]
    if device:
        words += ["--device", device]
    return shlex.join(words)


def has_no_reference(reports: Sequence[CheckReport]) -> bool:
    """Whether the reference failed at every case that was tried."""
    tried = [report for report in reports if report.outcome is not Outcome.UNSUPPORTED]
    return bool(tried) and all(report.has_failed_reference for report in tried)


def failures_of(reports: Sequence[CheckReport]) -> list[CheckReport]:
    """Failures of the cases as declared, then those in other layouts or with other values."""
    failures = [report for report in reports if report.outcome.is_failure]
    return sorted(failures, key=_is_varied)


def _is_varied(report: CheckReport) -> bool:
    return report.layout is not None or report.regime is not None


def to_json(target: str, suite: CheckedSuite, device: str | None) -> dict[str, Any]:
    """The document that `--json` prints; docs/explanation/accuracy.md describes it."""
    reports: list[dict[str, Any]] = []
    # a reader of the first few must see what is wrong
    failures = failures_of(suite.reports)
    others = [report for report in suite.reports if not report.outcome.is_failure]
    for report in (*failures, *others):
        document = report.model_dump(mode="json")
        document["failed"] = report.outcome.is_failure
        document["repeat"] = repeat_command(target, report, device)
        reports.append(document)
    return {
        "target": target,
        "exit_status": exit_status(suite),
        "proofs": [asdict(claim) for claim in proofs_of(suite)],
        "packages": suite.packages,
        "overflow_proofs": suite.overflow_proofs,
        "operator_costs": suite.operator_costs,
        "reports": reports,
    }


def explain_failures(
    target: str,
    reports: Sequence[CheckReport],
    device: str | None,
    *,
    with_traceback: bool = False,
) -> Iterator[str]:
    """List the causes of several failures, a line each; then describe the first failure of each
    cause, and name the others in one line.
    """
    # A broken kernel fails at every size: one explanation is enough.
    kinds: dict[tuple[object, ...], list[CheckReport]] = {}
    for report in failures_of(reports):
        kinds.setdefault(_cause(report), []).append(report)
    if len(kinds) > 1:
        yield "\n".join(_cause_line(first, len(others)) for first, *others in kinds.values())
    for first, *others in kinds.values():
        lines = ["", *explain_failure(first)]
        if with_traceback and first.traceback:
            lines.append(first.traceback.rstrip())
        if others:
            named = _each_kernel_first(first, others)[:_MAX_NAMED]
            names = [_name(report) for report in named]
            ellipsis = ", …" if len(others) > _MAX_NAMED else ""
            lines.append(f"  the same in {len(others)} more: {', '.join(names)}{ellipsis}")
        repeat = repeat_command(target, first, device)
        yield "\n".join([*lines, f"  repeat, in all layouts: {repeat}"])


def _cause_line(first: CheckReport, other_count: int) -> str:
    more = f" (the same in {other_count} more)" if other_count else ""
    wrong = [tensor for tensor in first.tensors if not tensor.passed]
    if first.faults or not wrong:
        symptom = (first.message or first.outcome).partition("\n")[0]
    else:
        tensor = wrong[0]
        count = math.prod(tensor.shape)
        where = f", {tensor.where}" if tensor.where else ""
        symptom = f"{tensor.wrong_count} of {count} elements of {tensor.tensor} are wrong{where}"
    return f"{_name(first)}: {symptom}{more}"


def name_packages(packages: Sequence[KernelPackage]) -> Iterator[str]:
    """Name the packages of the kernels: an installed release may hide the one that is meant."""
    for package in packages:
        version = package.version or "(unknown version)"
        yield f"kernels of {package.name} {version} in {package.folder}"
        if package.warning is not None:
            yield f"  {package.warning}"


def explain_overflows(proofs: Sequence[OverflowProof]) -> Iterator[str]:
    """Describe each overflow once, and count the other cases that have it."""
    cases: dict[str, list[str]] = {}
    for proof in proofs:
        if proof.proof is Proof.UNSAFE:
            cases.setdefault(str(describe_proof(proof)), []).append(proof.case_id)
    for description, (first, *others) in cases.items():
        more = f"; the same in {len(others)} more" if others else ""
        yield f"\n{first}: {description}{more}"


def _each_kernel_first(first: CheckReport, others: Sequence[CheckReport]) -> list[CheckReport]:
    """Order failures so that a list that is cut off names as many kernels as it can."""
    named_kernels = {kernel_of(first.case_id)}
    new: list[CheckReport] = []
    repeated: list[CheckReport] = []
    for report in others:
        if kernel_of(report.case_id) in named_kernels:
            repeated.append(report)
        else:
            named_kernels.add(kernel_of(report.case_id))
            new.append(report)
    return [*new, *repeated]


def _cause(report: CheckReport) -> tuple[object, ...]:
    """What failures with one cause have in common."""
    kernel = kernel_of(report.case_id)
    if report.has_failed_reference:
        return kernel, REFERENCE_FAILED, report.message
    # A fault has a place in the code, whatever the case.
    if report.faults:
        fault = report.faults[0]
        return (fault.kernel, fault.file, fault.line, fault.access, fault.operand, fault.is_race)
    variation = (report.layout is None, report.regime)
    if report.tensors:
        return (kernel, report.implementation, report.outcome, variation)
    # a message about one cause differs in sizes
    message = re.sub(r"\d+", "n", report.message or "")
    return (kernel, report.implementation, report.outcome, message)


def _name(report: CheckReport) -> str:
    layout = report.layout
    where = ""
    if report.regime is not None:
        where = f" with {report.regime} values"
    elif layout is not None:
        arrangement = layout.arrangement.replace("_", "-")
        where = f" with {layout.tensor} {arrangement} in memory"
    return f"{report.case_id} {report.implementation}{where}"


def explain_failure(report: CheckReport) -> Iterator[str]:
    yield f"{_name(report)}: {report.outcome}"
    wrong = [tensor for tensor in report.tensors if not tensor.passed]
    faults = report.faults
    # A message beside wrong tensors repeats what they show. It begins with the first fault.
    if report.message and not wrong:
        yield f"  {report.message}"
        faults = faults[1:]
    for fault in faults:
        yield f"  {fault.message}"
    for tensor in wrong:
        yield from _explain_tensor(tensor)
    if wrong and report.baseline_missing:
        yield f"  only the caps apply: {report.baseline_missing}"


def _explain_tensor(tensor: TensorReport) -> Iterator[str]:
    count = math.prod(tensor.shape)
    yield (
        f"  {tensor.tensor} ({tensor.dtype} {list(tensor.shape)}): {tensor.wrong_count} of "
        f"{count} elements are wrong"
    )
    if tensor.where:
        yield f"    where     {tensor.where}"
    if tensor.values:
        yield f"    values    {tensor.values}"
    if tensor.nonfinite_count:
        yield f"    NaN, inf  {tensor.nonfinite_count} elements, on one side only"
    # Where all wrong elements are NaN, there is no error to compare.
    if tensor.nonfinite_count < tensor.wrong_count:
        yield from _explain_errors(tensor)
    for element in tensor.worst:
        yield f"    {list(element.index)}  expected {element.expected:.6g}, got {element.got:.6g}"


def _explain_errors(tensor: TensorReport) -> Iterator[str]:
    for name, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
        error = getattr(tensor.errors, quantity)
        limit = getattr(tensor.limits, quantity)
        line = f"    {name}   {error:.1e}, limit {limit:.1e}"
        # What torch gets wrong in the same dtype is the scale of the limit.
        if tensor.baseline is not None:
            line += f", torch {getattr(tensor.baseline, quantity):.1e}"
        yield line
