"""Select what `roofwatch ncu` counts, add it to a record, and print it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.table import Table

from roofwatch.ci.messages import listed, short_name
from roofwatch.collector.errors import RecordError, SuiteError
from roofwatch.collector.profiling.ncu_count import CountedCall
from roofwatch.collector.profiling.ncu_metrics import STALL_REASONS, finding_rank, stalls_of
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import ArtefactKind, Commit, RunRecord
from roofwatch.collector.record.results import Counters
from roofwatch.collector.redaction import EVERYTHING, Redaction
from roofwatch.collector.run_plan import matches
from roofwatch.collector.workers.protocol import SuiteInfo
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG
from roofwatch.profiles.report import percent
from roofwatch.store.transfer import name_artefacts
from roofwatch.terminal import make_table

_MAX_KERNELS = 8
_MAX_STALLS = 6
_BAR_WIDTH = 30
_FACTS = {
    "duration_ns": ("duration under the profiler", format_ns),
    "sm_clock_hz": ("SM clock", lambda hz: f"{hz / 1e6:.0f} MHz"),
    "dram_read_bytes": ("read from device memory", format_bytes),
    "dram_write_bytes": ("written to device memory", format_bytes),
    "l2_bytes": ("L2 traffic", format_bytes),
    "l1_bytes": ("L1 traffic", format_bytes),
    "dram_throughput_share": ("device memory throughput", percent),
    "l2_throughput_share": ("L2 throughput", percent),
    "l1_throughput_share": ("L1 throughput", percent),
    "l2_hit_rate_share": ("L2 hit rate", percent),
    "l1_hit_rate_share": ("L1 hit rate", percent),
    "sm_throughput_share": ("SM throughput", percent),
    "tensor_pipe_share": ("tensor cores busy", percent),
    "achieved_occupancy_share": ("achieved occupancy", percent),
    "theoretical_occupancy_share": ("theoretical occupancy", percent),
    "waves_per_multiprocessor": ("waves of blocks", "{:.2f}".format),
    "registers_per_thread": ("registers per thread", "{:.0f}".format),
}


def select_calls(
    info: SuiteInfo, case_pattern: str, implementations: Sequence[str] | None
) -> tuple[CaseRecord, tuple[str, ...]]:
    """Select one case, by ID, shell pattern or the name of a kernel with one case, and implementations by pattern.

    Without patterns these are Triton and CUDA C++, or else all but torch.compile.

    Raises:
        SuiteError: not exactly one case matches, no implementation does, or several ranks make the call.
    """
    every = [(kernel, case) for kernel in info.kernels for case in kernel.cases]
    found = [
        (kernel, case) for kernel, case in every if case_pattern == kernel.name or matches(case.case_id, [case_pattern])
    ]
    if not found:
        example = every[0][1].case_id
        raise SuiteError(f"no case matches {case_pattern}; a case ID is for example {example} (see roofwatch list)")
    if len(found) > 1:
        names = listed(case.case_id for _, case in found)
        raise SuiteError(f"{case_pattern} matches {len(found)} cases; name one: {names}")
    kernel, case = found[0]
    if kernel.rank_count(case) > 1:
        raise SuiteError(
            f"{case.case_id}: {kernel.rank_count(case)} ranks make the call, but Nsight Compute profiles one at a time"
        )
    able = [each for each in kernel.implementations if case.direction in each.directions]
    if implementations:
        wanted = [each for each in able if matches(each.name, implementations)]
    else:
        wanted = [each for each in able if each.language != "torch"] or [each for each in able if not each.is_compiled]
    if not wanted:
        raise SuiteError(
            f"{case.case_id}: no implementation matches {' '.join(implementations or ())}; there are "
            f"{', '.join(each.name for each in able)}"
        )
    return case, tuple(each.name for each in wanted)


def with_counters(record: RunRecord, commit: Commit, calls: Sequence[CountedCall], *, name: str) -> RunRecord:
    """Add counters of a commit to a record; they replace those of the same case and implementation.

    Raises:
        RecordError: the record has another commit or device, or lacks the case.
    """
    counted = [call for call in calls if call.outcome is Outcome.OK]
    if record.commit.sha != commit.sha:
        raise RecordError(
            f"{name}: the record is of commit {record.commit.sha[:12]}, the counters are of {commit.sha[:12]}; check "
            "out that commit, or measure this one first"
        )
    known = {case.case_id for case in record.cases}
    for call in counted:
        if call.case_id not in known:
            raise RecordError(f"{name}: has no case {call.case_id}; measure it first")
        if call.device_name is not None and not record.environment.device_name.startswith(call.device_name):
            raise RecordError(
                f"{name}: the record is of {record.environment.device_name}, the counters are of {call.device_name}"
            )
    replaced = {(call.case_id, call.implementation) for call in counted}
    kept = tuple(each for each in record.counters if (each.case_id, each.implementation) not in replaced)
    new = tuple(counters for call in counted for counters in call.counters)
    return record.model_copy(update={"counters": (*kept, *new)})


def name_report(record: RunRecord, path: Path, report: Path | None) -> RunRecord:
    """Name a report in the record, and keep a redacted copy in the same folder.

    A `.ncu-rep` file cannot be redacted, so it is named only if everything is kept (ROOFWATCH_KEEP=all).
    """
    if report is None or not report.exists():
        return record
    redaction = Redaction.of_this_machine()
    if report.suffix != ".csv" and not redaction.kept >= EVERYTHING:
        return record
    return name_artefacts(record, path, [report], kind=ArtefactKind.NCU_REPORT, redaction=redaction)


def exit_status(calls: Sequence[CountedCall]) -> int:
    """0 if all was counted, 1 if a call failed, 2 if this machine cannot run one."""
    outcomes = {call.outcome for call in calls} - {Outcome.OK}
    if outcomes - {Outcome.UNSUPPORTED}:
        return EXIT_WRONG
    return EXIT_CANNOT if outcomes else 0


def describe(calls: Iterable[CountedCall]) -> Iterator[Table | str]:
    for call in calls:
        yield f"{call.case_id} {call.implementation}" + (f" on {call.device_name}" if call.device_name else "")
        yield from tables(call.counters)


def tables(counters: Sequence[Counters]) -> Iterator[Table]:
    """Facts and stall reasons of the kernels of a call, and the advice of Nsight Compute."""
    shown = counters[:_MAX_KERNELS]
    facts = [
        (title, *(write(each.values[fact]) if fact in each.values else None for each in shown))
        for fact, (title, write) in _FACTS.items()
        if any(fact in each.values for each in shown)
    ]
    if facts:
        title = f"{len(counters)} kernels, the first {len(shown)}" if len(counters) > len(shown) else None
        yield make_table(["", *(short_name(each.function) for each in shown)], facts, title=title, left=1)
    for each in shown:
        stalls = list(stalls_of(each.values).items())[:_MAX_STALLS]
        if stalls:
            rows = [
                (
                    STALL_REASONS.get(reason, reason),
                    percent(share),
                    "█" * max(1, round(_BAR_WIDTH * share / stalls[0][1])),
                )
                for reason, share in stalls
            ]
            title = f"warps of {short_name(each.function)} wait for"
            yield make_table(("reason", "share", ""), rows, title=title, left=3)
    found = [(finding, each.function) for each in counters for finding in each.findings]
    if found:
        found.sort(key=lambda pair: finding_rank(pair[0]))
        advice = []
        for finding, function in found:
            scope = " of a part" if finding.is_estimate_of_a_part else ""
            saving = None if finding.estimated_speedup is None else f"{finding.estimated_speedup:.0%}{scope}"
            advice.append((saving, short_name(function), finding.message))
        yield make_table(("may save", "kernel", "finding"), advice, title="advice of Nsight Compute", left=3)
