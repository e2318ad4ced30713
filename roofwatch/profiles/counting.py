"""What `roofwatch ncu` is asked, what it puts into a record, and how it ends."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roofwatch.collector.errors import RecordError, SuiteError
from roofwatch.collector.profiling.ncu.counting import CountedCall
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.record import ArtefactKind, Commit, RunRecord
from roofwatch.collector.redaction import EVERYTHING, Redaction
from roofwatch.collector.workers.protocol import ImplementationInfo, KernelInfo, SuiteInfo
from roofwatch.store.artefacts import name_artefacts

_SHOWN = 5


def select_calls(
    info: SuiteInfo, case_pattern: str, implementations: Sequence[str] | None
) -> tuple[CaseRecord, tuple[str, ...]]:
    """The one case that is meant, and the implementations of it.

    Args:
        info: The suite.
        case_pattern: A case's id, a shell pattern of ids, or the name of a kernel that has one case.
        implementations: Shell patterns of names; None takes those in Triton and CUDA C++, or all that torch.compile
            does not make where there are none.

    Raises:
        SuiteError: no case or more than one, no implementation, or several processes make the call.
    """
    kernel, case = _one_case(info, case_pattern)
    if kernel.rank_count(case) > 1:
        raise SuiteError(
            f"{case.case_id}: {kernel.rank_count(case)} ranks make the call, and Nsight Compute runs one at a time"
        )
    able = [each for each in kernel.implementations if case.direction in each.directions]
    names = tuple(each.name for each in _wanted(able, implementations))
    if not names:
        raise SuiteError(
            f"{case.case_id}: no implementation matches {' '.join(implementations or ())}; there are "
            f"{', '.join(each.name for each in able)}"
        )
    return case, names


def _one_case(info: SuiteInfo, pattern: str) -> tuple[KernelInfo, CaseRecord]:
    every = [(kernel, case) for kernel in info.kernels for case in kernel.cases]
    found = [
        (kernel, case) for kernel, case in every if pattern == kernel.name or fnmatch.fnmatchcase(case.case_id, pattern)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        names = ", ".join(case.case_id for _, case in found[:_SHOWN])
        raise SuiteError(f"{pattern} stands for {len(found)} cases; name one: {names}{more}")
    raise SuiteError(f"no case matches {pattern}; a case is for example {every[0][1].case_id} (see roofwatch list)")


def _wanted(able: list[ImplementationInfo], patterns: Sequence[str] | None) -> list[ImplementationInfo]:
    if patterns:
        return [each for each in able if any(fnmatch.fnmatchcase(each.name, pattern) for pattern in patterns)]
    own = [each for each in able if each.language != "torch"]
    return own or [each for each in able if not each.is_compiled]


def with_counters(record: RunRecord, commit: Commit, calls: Sequence[CountedCall], *, name: str) -> RunRecord:
    """The record with what was counted, in the place of what it had of the same implementations of the case.

    Args:
        record: Of a run.
        commit: What was counted is this commit's code.
        calls: What was counted; those that failed add nothing.
        name: Of the record's file, for the error.

    Raises:
        RecordError: the record is of other code or of another device, or has not the case.
    """
    counted = [call for call in calls if call.failure is None]
    if record.commit.sha != commit.sha:
        raise RecordError(
            f"{name}: a record of {record.commit.sha[:12]}, and what was counted is the code of {commit.sha[:12]}; "
            "check that commit out, or measure this one first"
        )
    known = {case.case_id for case in record.cases}
    for call in counted:
        if call.case_id not in known:
            raise RecordError(f"{name}: holds no case {call.case_id}; measure it first")
        if call.device_name is not None and not record.environment.device_name.startswith(call.device_name):
            raise RecordError(
                f"{name}: a record of {record.environment.device_name}, and what was counted ran on {call.device_name}"
            )
    replaced = {(call.case_id, call.implementation) for call in counted}
    kept = tuple(each for each in record.counters if (each.case_id, each.implementation) not in replaced)
    new = tuple(counters for call in counted for counters in call.counters)
    return record.model_copy(update={"counters": (*kept, *new)})


def name_report(record: RunRecord, path: Path, report: Path | None) -> RunRecord:
    """The record with the report's name, and a copy beside it without what must not leave the machine.

    Nothing can be taken out of a report in Nsight Compute's own format: it is named only where everything is kept
    (ROOFWATCH_KEEP=all), its raw page as `.csv` always.
    """
    if report is None or not report.exists():
        return record
    redaction = Redaction.of_this_machine()
    if report.suffix != ".csv" and not redaction.kept >= EVERYTHING:
        return record
    return name_artefacts(record, path, [report], kind=ArtefactKind.NCU_REPORT, redaction=redaction)


def exit_status(calls: Sequence[CountedCall]) -> int:
    """0 if all was counted, 1 if a call failed, 2 if this machine cannot run one."""
    outcomes = {call.failure.outcome for call in calls if call.failure is not None}
    if outcomes - {Outcome.UNSUPPORTED}:
        return 1
    return 2 if outcomes else 0


def to_json(calls: Sequence[CountedCall], record: Path | None) -> dict[str, Any]:
    """The document that `--json` prints; docs/how-to/profile.md describes it."""
    return {
        "exit_status": exit_status(calls),
        "record": None if record is None else str(record),
        "calls": [
            {
                "case_id": call.case_id,
                "implementation": call.implementation,
                "outcome": str(Outcome.OK if call.failure is None else call.failure.outcome),
                "message": None if call.failure is None else call.failure.message,
                "device_name": call.device_name,
                "command": list(call.command),
                "counters": [counters.model_dump(mode="json") for counters in call.counters],
            }
            for call in calls
        ],
    }
