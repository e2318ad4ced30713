"""What the checks of a suite prove, at the sizes that they ran."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.model.check_report import CheckReport
from roofwatch.model.machine import Outcome
from roofwatch.model.memory_fault import MemoryFault


class Proved(StrEnum):
    PROVEN = "proven"
    REFUTED = "refuted"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Proof:
    """One claim about all checked kernels."""

    claim: str
    result: Proved
    detail: str

    @property
    def text(self) -> str:
        return f"{self.claim:<8} {self.result:<12} {self.detail}"


def proofs_of(reports: Sequence[CheckReport]) -> tuple[Proof, ...]:
    """Results at the declared values, in other layouts and at other values; bounds and races."""
    declared = [one for one in reports if one.layout is None and one.regime is None]
    return (
        _agreement("results", declared, "agree with the float64 reference"),
        _agreement("layouts", [one for one in reports if one.layout is not None], "right"),
        _agreement("values", [one for one in reports if one.regime is not None], "right"),
        _memory("bounds", reports, is_race=False),
        _memory("races", reports, is_race=True),
    )


def _agreement(claim: str, reports: Sequence[CheckReport], words: str) -> Proof:
    failures = [report for report in reports if report.outcome.is_failure]
    ok_count = sum(report.outcome is Outcome.OK for report in reports)
    other_count = len(reports) - ok_count - len(failures)
    others = f"; {other_count} refused or not tried" if other_count else ""
    if failures:
        kernels = sorted({report.case_id.partition("/")[0] for report in failures})
        detail = f"{len(failures)} of {len(reports)} fail: {', '.join(kernels[:3])}"
        return Proof(claim, Proved.REFUTED, detail + (", …" if len(kernels) > 3 else ""))
    if not ok_count:
        reason = f"none of {len(reports)} could be tried" if reports else "nothing was tried"
        return Proof(claim, Proved.CANNOT_TELL, reason)
    return Proof(claim, Proved.PROVEN, f"{ok_count} of {len(reports)} {words}{others}")


def _memory(claim: str, reports: Sequence[CheckReport], *, is_race: bool) -> Proof:
    interpreted = [report for report in reports if report.executor == "interpreter"]
    faults: list[MemoryFault] = []
    for report in interpreted:
        faults += [fault for fault in report.faults if fault.is_race is is_race]
    if faults:
        place = f"{faults[0].file}:{faults[0].line}"
        return Proof(claim, Proved.REFUTED, f"`{faults[0].operand}` of {faults[0].kernel}, {place}")
    complete = [report for report in interpreted if report.outcome is Outcome.OK]
    if not complete:
        return Proof(claim, Proved.CANNOT_TELL, "no Triton kernel ran in the interpreter")
    unknown_count = sum(report.unknown_pointer_count for report in interpreted)
    if unknown_count:
        detail = f"{unknown_count} accesses through pointers that the kernel made of integers"
        return Proof(claim, Proved.CANNOT_TELL, detail)
    return Proof(claim, Proved.PROVEN, f"every access of {len(complete)} interpreted checks")
