"""Count one case with Nsight Compute, and print the counters."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from roofwatch.collector.errors import RecordError, SuiteError
from roofwatch.collector.profiling.ncu_count import CountedCall
from roofwatch.collector.profiling.ncu_metrics import stalls_of
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import ArtefactKind, Commit, RunRecord
from roofwatch.collector.record.results import Counters
from roofwatch.collector.redaction import EVERYTHING, Redaction
from roofwatch.collector.workers.protocol import ImplementationInfo, KernelInfo, SuiteInfo
from roofwatch.store.artefacts import name_artefacts
from roofwatch.terminal import printable

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


_MAX_KERNELS = 8
_MAX_STALLS = 6
_MAX_NAME = 60
_BAR_WIDTH = 30


def _share(value: float) -> str:
    return f"{value:.1%}"


_FACTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "duration_ns": ("duration under the profiler", format_ns),
    "sm_clock_hz": ("clock of the multiprocessors", lambda value: f"{value / 1e6:.0f} MHz"),
    "dram_read_bytes": ("read from device memory", format_bytes),
    "dram_write_bytes": ("written to device memory", format_bytes),
    "l2_bytes": ("through L2", format_bytes),
    "l1_bytes": ("through L1", format_bytes),
    "dram_throughput_share": ("device memory, of its peak", _share),
    "l2_throughput_share": ("L2, of its peak", _share),
    "l1_throughput_share": ("L1, of its peak", _share),
    "l2_hit_rate_share": ("found in L2", _share),
    "l1_hit_rate_share": ("found in L1", _share),
    "sm_throughput_share": ("multiprocessors, of their peak", _share),
    "tensor_pipe_share": ("tensor cores busy", _share),
    "achieved_occupancy_share": ("occupancy, achieved", _share),
    "theoretical_occupancy_share": ("occupancy, at most", _share),
    "waves_per_multiprocessor": ("waves of blocks", lambda value: f"{value:.2f}"),
    "registers_per_thread": ("registers per thread", lambda value: f"{value:.0f}"),
}

_STALLS = {
    "long_scoreboard": "data from device memory, L2 or L1",
    "short_scoreboard": "data from shared memory, or a special function",
    "lg_throttle": "room in the queue for loads and stores",
    "mio_throttle": "room in the queue for shared memory and special functions",
    "tex_throttle": "room in the queue for textures",
    "math_pipe_throttle": "a free arithmetic unit",
    "barrier": "the other warps of the block, at a barrier",
    "membar": "its writes to be seen by others, at a fence",
    "wait": "the fixed latency of an instruction before",
    "not_selected": "its turn: ready, and another warp was chosen",
    "no_instruction": "instructions to be fetched",
    "no_instructions": "instructions to be fetched",
    "imc_miss": "constants that were not in their cache",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher",
    "drain": "its last stores, at the end",
    "sleeping": "the end of a sleep that it asked for",
    "gmma": "tensor-core work that runs asynchronously",
    "misc": "something else",
}
"""What a warp waits for, by Nsight Compute's name of the reason. Source: its documentation, warp stall reasons."""


def tables(counters: Sequence[Counters]) -> Iterator[Table]:
    """Of each kernel of a call: facts, then stall reasons; then all that the rules advise."""
    shown = counters[:_MAX_KERNELS]
    if any(fact in each.values for each in shown for fact in _FACTS):
        yield _facts(shown, len(counters))
    for each in shown:
        if stalls := stalls_of(each.values):
            yield _stalls(each, stalls)
    if any(each.findings for each in counters):
        yield _findings(counters)


def _facts(shown: Sequence[Counters], count: int) -> Table:
    title = f"{count} kernels, the first {len(shown)}" if count > len(shown) else None
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for each in shown:
        table.add_column(_name(each), justify="right", overflow="fold")
    for fact, (words, write) in _FACTS.items():
        if any(fact in each.values for each in shown):
            table.add_row(words, *(write(each.values[fact]) if fact in each.values else "" for each in shown))
    return table


def _stalls(counters: Counters, stalls: dict[str, float]) -> Table:
    table = Table(title=Text("warps of ") + _name(counters) + " wait for", title_justify="left", show_header=False)
    largest = max(stalls.values())
    for reason, share in list(stalls.items())[:_MAX_STALLS]:
        bar = "█" * max(1, round(_BAR_WIDTH * share / largest))
        table.add_row(printable(_STALLS.get(reason, reason)), f"{share:.1%}", bar)
    return table


def _findings(counters: Sequence[Counters]) -> Table:
    """The largest estimate first; of what has none, as the kernels come."""
    found = [(each, finding) for each in counters for finding in each.findings]
    found.sort(
        key=lambda pair: (
            pair[1].estimated_speedup is None,
            pair[1].is_estimate_of_a_part,
            -(pair[1].estimated_speedup or 0.0),
        )
    )
    table = Table(title="what the rules of Nsight Compute advise", title_justify="left", show_lines=True)
    table.add_column("may save", justify="right")
    table.add_column("kernel", overflow="fold")
    table.add_column("finding", overflow="fold")
    for each, finding in found:
        saving = "" if finding.estimated_speedup is None else f"{finding.estimated_speedup:.0%}"
        of_what = " of a part" if finding.is_estimate_of_a_part and saving else ""
        table.add_row(saving + of_what, _name(each), printable(finding.message))
    return table


def _name(counters: Counters) -> Text:
    name = counters.function
    return printable(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…")
