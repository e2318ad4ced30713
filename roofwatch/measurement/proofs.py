"""What the check of a suite proves: by running small sizes, and by analysing declared ones."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from roofwatch.ci.messages import count_of
from roofwatch.model.case_key import kernel_of
from roofwatch.model.check_report import CheckedSuite, CheckReport
from roofwatch.model.machine import Outcome
from roofwatch.model.memory_fault import MemoryFault
from roofwatch.model.metrics import format_bytes
from roofwatch.model.proofs import OperatorCost, OverflowProof, Proof, SizeLimit

_MAX_NAMED = 3
"""Kernels that a line names; the reports have all."""
_LENGTH = re.compile(r"=(\d+)(?=,|$)")
"""In the shape of a case id, such as `n_rows=4,n_cols=4096`."""


class Proved(StrEnum):
    PROVEN = "proven"
    REFUTED = "refuted"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class SuiteClaim:
    """One claim about all checked kernels."""

    claim: str
    result: Proved
    detail: str

    @property
    def text(self) -> str:
        return f"{self.claim:<8} {self.result:<12} {self.detail}"


def proofs_of(suite: CheckedSuite) -> tuple[SuiteClaim, ...]:
    """Results at the declared values, in other layouts and at other values; bounds and races;
    32-bit offsets and the cost of a call.
    """
    reports = suite.reports
    declared = [report for report in reports if report.layout is None and report.regime is None]
    in_layouts = [report for report in reports if report.layout is not None]
    with_values = [report for report in reports if report.regime is not None]
    # a Triton kernel that was not tried as declared was not tried in any other way
    defects = (report.interpreter_defect for report in reports)
    agreement = partial(_agreement, defect=next(filter(None, defects), None))
    return (
        _results(agreement("results", declared, "agree with the float64 reference"), declared),
        agreement("layouts", in_layouts, "right"),
        agreement("values", with_values, "right"),
        _memory("bounds", reports, is_race=False),
        _memory("races", reports, is_race=True),
        _offsets(suite.overflow_proofs),
        _cost(suite),
    )


def kernels_at_powers_of_two(reports: Sequence[CheckReport]) -> list[str]:
    """Kernels that were right at sizes whose lengths are powers of two, and tried at no other: a
    wrong mask shows at other lengths only.
    """
    lengths_by_kernel: dict[str, set[int]] = {}
    for report in reports:
        if report.outcome is Outcome.OK and report.layout is None and report.regime is None:
            shape = report.case_id.split("/")[1]
            lengths = {int(length) for length in _LENGTH.findall(shape)}
            lengths_by_kernel.setdefault(kernel_of(report.case_id), set()).update(lengths)
    kernels: list[str] = []
    for kernel, lengths in lengths_by_kernel.items():
        longer = [length for length in lengths if length > 1]
        if longer and all(length.bit_count() == 1 for length in longer):
            kernels.append(kernel)
    return kernels


def _results(claim: SuiteClaim, reports: Sequence[CheckReport]) -> SuiteClaim:
    """The claim about results, which sizes that are powers of two do not prove."""
    kernels = kernels_at_powers_of_two(reports)
    if claim.result is not Proved.PROVEN or not kernels:
        return claim
    named = ", ".join(kernels[:_MAX_NAMED]) + (", …" if len(kernels) > _MAX_NAMED else "")
    detail = f"{claim.detail}, at sizes that are powers of two only: {named}"
    return replace(claim, result=Proved.CANNOT_TELL, detail=detail)


def _agreement(
    claim: str,
    reports: Sequence[CheckReport],
    words: str,
    *,
    defect: str | None,
) -> SuiteClaim:
    without_reference = [report for report in reports if report.has_failed_reference]
    failures = [
        report
        for report in reports
        if report.outcome.is_failure and not report.has_failed_reference
    ]
    ok_count = sum(report.outcome is Outcome.OK for report in reports)
    # One failure refutes the claim, whatever the others say.
    if failures:
        kernels = sorted({kernel_of(report.case_id) for report in failures})
        detail = f"{len(failures)} of {len(reports)} fail: {', '.join(kernels[:_MAX_NAMED])}"
        if len(kernels) > _MAX_NAMED:
            detail += ", …"
        return SuiteClaim(claim, Proved.REFUTED, detail)
    if without_reference:
        detail = f"{len(without_reference)} of {len(reports)}: the reference failed"
        return SuiteClaim(claim, Proved.CANNOT_TELL, detail)
    if defect is not None:
        return SuiteClaim(claim, Proved.CANNOT_TELL, defect)
    if not reports:
        return SuiteClaim(claim, Proved.CANNOT_TELL, "nothing was tried")
    if not ok_count:
        reason = f"none of {len(reports)} could be tried"
        return SuiteClaim(claim, Proved.CANNOT_TELL, reason)
    detail = f"{ok_count} of {len(reports)} {words}"
    other_count = len(reports) - ok_count
    if other_count:
        detail += f"; {other_count} refused or not tried"
    return SuiteClaim(claim, Proved.PROVEN, detail)


def _memory(claim: str, reports: Sequence[CheckReport], *, is_race: bool) -> SuiteClaim:
    # Only the interpreter sees each access.
    interpreted = [report for report in reports if report.executor == "interpreter"]
    faults: list[MemoryFault] = []
    for report in interpreted:
        faults += [fault for fault in report.faults if fault.is_race is is_race]
    if faults:
        fault = faults[0]
        detail = f"`{fault.operand}` of {fault.kernel}, {fault.file}:{fault.line}"
        return SuiteClaim(claim, Proved.REFUTED, detail)
    # A kernel that failed half-way has accesses that nobody saw; one with a wrong result ended, and
    # so did one without a reference.
    ended = [report for report in interpreted if _has_ended(report)]
    # An implementation that launched nothing shows no access.
    complete = [report for report in ended if report.launch_count]
    if not complete:
        reason = "no Triton kernel ran in the interpreter"
        if len(ended) < len(interpreted):
            reason = "no Triton kernel ran to its end in the interpreter"
        return SuiteClaim(claim, Proved.CANNOT_TELL, reason)
    unknown_count = sum(report.unknown_pointer_count for report in interpreted)
    # Of a pointer made of integers, the operand and its bounds are unknown.
    if unknown_count:
        detail = f"{unknown_count} accesses through pointers that the kernel made of integers"
        return SuiteClaim(claim, Proved.CANNOT_TELL, detail)
    checks = count_of(len(complete), "interpreted check")
    return SuiteClaim(claim, Proved.PROVEN, f"every access of {checks}")


def _has_ended(report: CheckReport) -> bool:
    is_without_reference = report.outcome is Outcome.UNSUPPORTED and report.launch_count > 0
    return is_without_reference or report.outcome in {Outcome.OK, Outcome.INCORRECT}


def _offsets(proofs: Sequence[OverflowProof]) -> SuiteClaim:
    unsafe = [proof for proof in proofs if proof.proof is Proof.UNSAFE]
    unknown = [proof for proof in proofs if proof.proof is Proof.UNKNOWN]
    # One case that overflows refutes the claim, whatever the others say.
    if unsafe:
        detail = f"{len(unsafe)} of {len(proofs)} cases overflow: {unsafe[0].case_id}"
        return SuiteClaim("offsets", Proved.REFUTED, detail)
    if not proofs:
        return SuiteClaim("offsets", Proved.CANNOT_TELL, "no kernel was analysed")
    limits = _limits_in_words(proofs)
    if unknown:
        unproven = [access.reason for access in unknown[0].unproven]
        reason = unknown[0].message or next(iter(unproven), "no access")
        detail = f"{len(unknown)} of {len(proofs)} cases, for example: {reason}"
        return SuiteClaim("offsets", Proved.CANNOT_TELL, f"{detail}{limits}")
    access_count = sum(proof.access_count for proof in proofs)
    if len(proofs) == 1:
        cases = "1 case"
    else:
        cases = f"{len(proofs)} cases"
    detail = f"all {access_count} accesses of {cases} fit into 32 bits{limits}"
    return SuiteClaim("offsets", Proved.PROVEN, detail)


def _limits_in_words(proofs: Sequence[OverflowProof]) -> str:
    """The smallest limit of each dimension, as ` up to n_rows = 149,797`."""
    smallest: dict[str, SizeLimit] = {}
    for proof in proofs:
        for limit in proof.limits:
            previous = smallest.get(limit.dimension, limit)
            smallest[limit.dimension] = min(limit, previous, key=lambda limit: limit.largest)
    sizes = [f"{name} = {limit.largest:,}" for name, limit in smallest.items()]
    if not sizes:
        return ""
    return f", up to {', or '.join(sizes)}"


def _cost(suite: CheckedSuite) -> SuiteClaim:
    costs = suite.operator_costs
    call_count = len(suite.overflow_proofs)
    if not costs:
        return SuiteClaim("cost", Proved.CANNOT_TELL, "no call was counted")
    most = max(costs, key=lambda cost: cost.moved_bytes)
    detail = f"{len(costs)} of {call_count} calls counted; the largest: {', '.join(_counts(most))}"
    # A call that could not be counted may cost anything.
    is_complete = len(costs) == call_count
    return SuiteClaim("cost", Proved.PROVEN if is_complete else Proved.CANNOT_TELL, detail)


def _counts(cost: OperatorCost) -> Iterator[str]:
    yield f"{format_bytes(cost.moved_bytes)} moved"
    yield f"{format_bytes(cost.peak_bytes)} of temporaries and results"
    yield f"launches: {cost.launch_count}"
    yield f"torch operators: {sum(cost.calls.values())}"
    yield f"waits for the device: {cost.wait_count}"
