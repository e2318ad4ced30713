"""What `roofwatch read` and `roofwatch ncu` show of files of profilers, and what `ncu` counts and
adds to a record.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from roofwatch.ci.messages import listed, short_name
from roofwatch.collector.profiling.ncu_count import CountedCall
from roofwatch.collector.profiling.ncu_metrics import (
    STALL_REASONS,
    counters_of,
    finding_rank,
    stalls_of,
)
from roofwatch.collector.runs.run_plan import matches
from roofwatch.model.errors import RecordError, SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.metrics import format_bytes, format_counter, format_ns
from roofwatch.model.record import Commit, RunRecord
from roofwatch.model.results import Counters
from roofwatch.model.worker_protocol import SuiteInfo
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG
from roofwatch.profiles.report import percent
from roofwatch.terminal import make_table

_KERNELS_OF_A_TABLE = 8
_MAX_STALLS = 6
_UNIT = re.compile(r"_(share|ns|hz)$")


def tables(profile: dict[str, Any], *, top: int | None) -> Iterator[Table]:
    """Make the tables of one file, with `top` kernels of a file of Nsight Compute."""
    if profile["format"].startswith("ncu"):
        kernels = profile["kernels"]
        sizes = {
            title: [_dimensions(kernel[title]) for kernel in kernels] for title in ("grid", "block")
        }
        yield from _counter_tables(counters_of(kernels, profile["format"], "ncu"), sizes, top)
        return
    yield _devices(profile)
    yield _kernels(profile["kernels"])
    if profile["memcpy"]["count"] or profile["memset"]["count"]:
        yield _transfers(profile)
    yield _launches(profile["launches"])


def _devices(profile: dict[str, Any]) -> Table:
    rows = []
    for device, summary in profile["devices"].items():
        busy = summary.get("all_gpu_activity", summary)
        times = [_us(busy[name]) for name in ("span_us", "busy_us", "idle_us")]
        rows.append((device, busy["activities"], *times, percent(busy["busy_fraction"])))
        collectives = summary.get("collectives")
        if collectives:
            overlap = (
                f"{percent(collectives['overlapped_fraction_of_collectives'])} overlap with compute"
            )
            rows.append(
                (
                    "  collectives",
                    collectives["kernels"],
                    "",
                    _us(collectives["union_us"]),
                    "",
                    overlap,
                )
            )
    return make_table(
        ("device", "activities", "span", "busy", "idle", "busy share"),
        rows,
        title=profile["format"],
        left=1,
    )


def _kernels(kernels: dict[str, Any]) -> Table:
    columns = (
        "kernel",
        "launches",
        "total",
        "share",
        "mean",
        "largest",
        "grid",
        "block",
        "registers",
        "shared",
        "occupancy",
    )
    rows = []
    for row in kernels["top_by_total_time"]:
        first, occupancy_pct = row["first_launch"], row.get("occupancy_pct")
        share = row["sum_us"] / kernels["sum_us"] if kernels["sum_us"] else None
        cells = (
            short_name(row["name"]),
            row["count"],
            _us(row["sum_us"]),
            percent(share),
            _us(row["mean_us"]),
            _us(row["max_us"]),
            _dimensions(first.get("grid")),
            _dimensions(first.get("block")),
            first.get("registers_per_thread"),
            _shared_memory(first),
            None if occupancy_pct is None else f"{occupancy_pct:.0f} %",
        )
        rows.append(cells)
    title = (
        f"{kernels['count']} kernels of {kernels['distinct_names']} names, "
        f"{_us(kernels['sum_us'])} in total"
    )
    if len(rows) < kernels["distinct_names"]:
        title += f"; the first {len(rows)}, --top 0 shows all"
    return make_table(columns, rows, title=title, left=1, omit_empty=True)


def _transfers(profile: dict[str, Any]) -> Table:
    rows = []
    for totals in (profile["memcpy"], profile["memset"]):
        by_name = {row["name"]: row for row in totals.get("by_name", ())} | totals.get(
            "by_kind", {}
        )
        rows += [
            (short_name(name), row["count"], _us(row["sum_us"]), format_bytes(row["bytes"]))
            for name, row in by_name.items()
        ]
    return make_table(("copies and fills", "count", "total", "bytes"), rows, left=1)


def _launches(launches: dict[str, Any]) -> Table:
    by_name = launches.get("kernel_launch_calls_by_name") or launches.get(
        "kernel_launches_by_name", {}
    )
    rows = [(short_name(name), count) for name, count in by_name.items()]
    if "kernels_without_a_launch_call" in launches:
        rows.append(("kernels without a launch call", launches["kernels_without_a_launch_call"]))
    delay = launches.get("delay_call_start_to_kernel_start")
    if delay is not None:
        rows.append(("median delay from call to kernel", _us(delay["median_us"])))
        rows.append(("largest delay from call to kernel", _us(delay["max_us"])))
    return make_table(("launch", "value"), rows, left=1)


def _shared_memory(launch: dict[str, Any]) -> str:
    """Shared memory of a block, as a whole or as static and dynamic parts."""
    parts = [launch.get(f"{part}shared_memory_bytes") for part in ("", "static_", "dynamic_")]
    known = [part for part in parts if part is not None]
    return format_bytes(sum(known)) if known else ""


def _dimensions(lengths: Any) -> str:
    return (
        "x".join(map(str, lengths)) if isinstance(lengths, list) else str(lengths or "").strip("()")
    )


def _us(microseconds: float) -> str:
    return format_ns(microseconds * 1e3)


def _counter_tables(
    counters: Sequence[Counters], sizes: Mapping[str, Sequence[str]], top: int | None
) -> Iterator[Table]:
    """Sizes, facts and stall reasons of the first `top` kernels, and the advice of Nsight Compute
    about them.
    """
    shown = counters[:top]
    names = dict.fromkeys(name for each in shown for name in each.values)
    stalls = stalls_of({name: max(each.values.get(name, 0.0) for each in shown) for name in names})
    titles = {
        name: _UNIT.sub("", name).replace("_", " ")
        for name in names
        if not name.startswith("stall_")
    }
    for reason in list(stalls)[:_MAX_STALLS]:
        titles[f"stall_{reason}_share"] = f"waits for {STALL_REASONS.get(reason, reason)}"
    note = (
        f"{len(counters)} kernels, the first {len(shown)}" if len(counters) > len(shown) else None
    )
    for start in range(0, len(shown), _KERNELS_OF_A_TABLE):
        part = shown[start : start + _KERNELS_OF_A_TABLE]
        rows: list[tuple[str | None, ...]] = [
            (title, *cells[start : start + len(part)]) for title, cells in sizes.items()
        ]
        rows += [
            (
                title,
                *(
                    format_counter(name, each.values[name]) if name in each.values else None
                    for each in part
                ),
            )
            for name, title in titles.items()
        ]
        yield make_table(
            ["", *(short_name(each.function) for each in part)], rows, title=note, left=1
        )
    found = [(finding, each.function) for each in shown for finding in each.findings]
    advice = []
    for finding, function in sorted(found, key=lambda pair: finding_rank(pair[0])):
        scope = " of a part" if finding.is_estimate_of_a_part else ""
        saving = (
            None if finding.estimated_speedup is None else f"{finding.estimated_speedup:.0%}{scope}"
        )
        advice.append((saving, short_name(function), finding.message))
    if advice:
        yield make_table(
            ("may save", "kernel", "finding"), advice, title="advice of Nsight Compute", left=3
        )


# --- `roofwatch ncu`


def select_calls(
    info: SuiteInfo, case_pattern: str, implementations: Sequence[str] | None
) -> tuple[CaseRecord, tuple[str, ...]]:
    """Select one case, by ID, shell pattern or the name of a kernel with one case, and
    implementations by pattern.

    Without patterns these are Triton and CUDA C++, or else all but torch.compile.

    Raises:
        SuiteError: not exactly one case matches, no implementation does, or several ranks make the
        call.
    """
    every = [(kernel, case) for kernel in info.kernels for case in kernel.cases]
    found = [
        (kernel, case)
        for kernel, case in every
        if case_pattern == kernel.name or matches(case.case_id, [case_pattern])
    ]
    if not found:
        example = every[0][1].case_id
        raise SuiteError(
            f"no case matches {case_pattern}; a case ID is for example {example} (see roofwatch "
            f"list)"
        )
    if len(found) > 1:
        names = listed(case.case_id for _, case in found)
        raise SuiteError(f"{case_pattern} matches {len(found)} cases; name one: {names}")
    kernel, case = found[0]
    if kernel.rank_count(case) > 1:
        raise SuiteError(
            f"{case.case_id}: {kernel.rank_count(case)} ranks make the call, but Nsight Compute "
            f"profiles one at a time"
        )
    able = [each for each in kernel.implementations if case.direction in each.directions]
    if implementations:
        wanted = [each for each in able if matches(each.name, implementations)]
    else:
        wanted = [each for each in able if each.language != "torch"] or [
            each for each in able if not each.is_compiled
        ]
    if not wanted:
        raise SuiteError(
            f"{case.case_id}: no implementation matches {' '.join(implementations or ())}; there "
            f"are "
            f"{', '.join(each.name for each in able)}"
        )
    return case, tuple(each.name for each in wanted)


def with_counters(
    record: RunRecord, commit: Commit, calls: Sequence[CountedCall], *, name: str
) -> RunRecord:
    """Add counters of a commit to a record; they replace those of the same case and implementation.

    Raises:
        RecordError: the record has another commit or device, or lacks the case.
    """
    counted = [call for call in calls if call.outcome is Outcome.OK]
    if record.commit.sha != commit.sha:
        raise RecordError(
            f"{name}: the record is of commit {record.commit.sha[:12]}, the counters are of "
            f"{commit.sha[:12]}; check "
            "out that commit, or measure this one first"
        )
    known = {case.case_id for case in record.cases}
    for call in counted:
        if call.case_id not in known:
            raise RecordError(f"{name}: has no case {call.case_id}; measure it first")
        if call.device_name is not None and not record.environment.device_name.startswith(
            call.device_name
        ):
            raise RecordError(
                f"{name}: the record is of {record.environment.device_name}, the counters are of "
                f"{call.device_name}"
            )
    replaced = {(call.case_id, call.implementation) for call in counted}
    kept = tuple(
        each for each in record.counters if (each.case_id, each.implementation) not in replaced
    )
    new = tuple(counters for call in counted for counters in call.counters)
    return record.model_copy(update={"counters": (*kept, *new)})


def exit_status(calls: Sequence[CountedCall]) -> int:
    """0 if all was counted, 1 if a call failed, 2 if this machine cannot run one."""
    outcomes = {call.outcome for call in calls} - {Outcome.OK}
    if outcomes - {Outcome.UNSUPPORTED}:
        return EXIT_WRONG
    return EXIT_CANNOT if outcomes else 0


def describe(calls: Iterable[CountedCall]) -> Iterator[Table | str]:
    for call in calls:
        yield f"{call.case_id} {call.implementation}" + (
            f" on {call.device_name}" if call.device_name else ""
        )
        yield from _counter_tables(call.counters, {}, _KERNELS_OF_A_TABLE)
