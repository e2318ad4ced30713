"""What `roofwatch read` and `roofwatch ncu` show of files of profilers, and what `ncu` counts and
adds to a record.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from roofwatch.ci.messages import listed, short_name
from roofwatch.collector.profiling.ncu_count import CountedCall
from roofwatch.collector.profiling.ncu_metrics import counters_of, finding_rank, stalls_of
from roofwatch.collector.profiling.ncu_names import STALL_REASONS
from roofwatch.collector.runs.run_plan import matches
from roofwatch.console.terminal import EXIT_CANNOT, EXIT_WRONG, make_table
from roofwatch.model.errors import RecordError, SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.metrics import format_bytes, format_counter, format_counter_name, format_ns
from roofwatch.model.record import Commit, RunRecord
from roofwatch.model.results import Counters
from roofwatch.model.worker_protocol import ImplementationInfo, SuiteInfo
from roofwatch.profiles.report import percent, text_or_none

_KERNELS_OF_A_TABLE = 8
_MAX_STALLS = 6
_UNIT = re.compile(r"_(share|ns|hz)$")
"""End of a counter's name that its formatted value says again."""


def tables(profile: dict[str, Any], *, top: int | None) -> Iterator[Table]:
    """Make the tables of one file, with `top` kernels of a file of Nsight Compute."""
    if profile["format"].startswith("ncu"):
        kernels = profile["kernels"]
        grids = [_dimensions(kernel["grid"]) for kernel in kernels]
        blocks = [_dimensions(kernel["block"]) for kernel in kernels]
        sizes = {"grid": grids, "block": blocks}
        counters = counters_of(kernels, profile["format"], "ncu")
        yield from _counter_tables(counters, sizes, top)
        return
    if profile["devices"]:
        yield _devices(profile)
        yield _kernels(profile["kernels"])
    if profile["memcpy"]["count"] or profile["memset"]["count"]:
        yield _transfers(profile)
    if profile["devices"]:
        yield _launches(profile["launches"])
    # files of Nsight Systems have no operators
    if "host_operators" in profile:
        yield _host_operators(profile["host_operators"], profile["steps"])


def _devices(profile: dict[str, Any]) -> Table:
    rows = []
    for device, summary in profile["devices"].items():
        # Traces tell all activity and kernels alone apart; Nsight Systems does not.
        busy = summary.get("all_gpu_activity", summary)
        times = [_us(busy[name]) for name in ("span_us", "busy_us", "idle_us")]
        rows.append(
            (
                device,
                busy["activities"],
                *times,
                percent(busy["busy_fraction"]),
            )
        )
        collectives = summary.get("collectives")
        if collectives:
            overlap = percent(collectives["overlapped_fraction_of_collectives"])
            collective_cells = (
                "  collectives",
                collectives["kernels"],
                "",
                _us(collectives["union_us"]),
                "",
                f"{overlap} overlap with compute",
            )
            rows.append(collective_cells)
    return make_table(
        ("device", "activities", "span", "busy", "idle", "busy share"),
        rows,
        title=profile["format"],
        left_column_count=1,
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
        first = row["first_launch"]
        share = None
        if kernels["sum_us"]:
            share = row["sum_us"] / kernels["sum_us"]
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
            text_or_none("{:.0f} %".format, row.get("occupancy_pct")),
        )
        rows.append(cells)
    title = (
        f"{kernels['count']} kernels of {kernels['distinct_names']} names, "
        f"{_us(kernels['sum_us'])} in total"
    )
    if len(rows) < kernels["distinct_names"]:
        title += f"; the first {len(rows)}, --top 0 shows all"
    return make_table(
        columns,
        rows,
        title=title,
        left_column_count=1,
        omit_empty=True,
    )


def _host_operators(operators: dict[str, Any], steps: dict[str, Any]) -> Table:
    rows = []
    for row in operators["top_by_self_time"]:
        share = None
        if operators["window_us"]:
            share = row["self_us"] / operators["window_us"]
        rows.append((short_name(row["name"]), row["count"], _us(row["self_us"]), percent(share)))
    title = "no steps were found: the whole trace"
    if "median_us" in steps:
        title = (
            f"{steps['count']} steps of {_us(steps['median_us'])} ({_us(steps['min_us'])} to "
            f"{_us(steps['max_us'])}), seen as {steps['steps_are']}"
        )
    if len(rows) < operators["distinct_names"]:
        title += (
            f"; the first {len(rows)} of {operators['distinct_names']} names, --top 0 shows all"
        )
    return make_table(
        ("on the host", "calls", "total", "share of time"),
        rows,
        title=title,
        left_column_count=1,
    )


def _transfers(profile: dict[str, Any]) -> Table:
    rows = []
    for totals in (profile["memcpy"], profile["memset"]):
        # traces have rows by name, Nsight Systems has totals by kind
        by_name = {row["name"]: row for row in totals.get("by_name", ())}
        by_name |= totals.get("by_kind", {})
        for name, row in by_name.items():
            cells = (
                short_name(name),
                row["count"],
                _us(row["sum_us"]),
                format_bytes(row["bytes"]),
            )
            rows.append(cells)
    return make_table(("copies and fills", "count", "total", "bytes"), rows, left_column_count=1)


def _launches(launches: dict[str, Any]) -> Table:
    by_name = launches.get("kernel_launch_calls_by_name")
    if not by_name:  # the name in files of Nsight Systems
        by_name = launches.get("kernel_launches_by_name", {})
    rows = [(short_name(name), count) for name, count in by_name.items()]
    if "kernels_without_a_launch_call" in launches:
        rows.append(("kernels without a launch call", launches["kernels_without_a_launch_call"]))
    delay = launches.get("delay_call_start_to_kernel_start")
    if delay is not None:
        rows.append(("median delay from call to kernel", _us(delay["median_us"])))
        rows.append(("largest delay from call to kernel", _us(delay["max_us"])))
    return make_table(("launch", "value"), rows, left_column_count=1)


def _shared_memory(launch: dict[str, Any]) -> str:
    """Shared memory of a block, as a whole or as static and dynamic parts."""
    sizes = [launch.get(f"{part}shared_memory_bytes") for part in ("", "static_", "dynamic_")]
    reported_bytes = [size for size in sizes if size is not None]
    if not reported_bytes:
        return ""
    return format_bytes(sum(reported_bytes))


def _dimensions(lengths: Any) -> str:
    if isinstance(lengths, list):
        return "x".join(map(str, lengths))
    return str(lengths or "").strip("()")  # text of Nsight Compute's CSV


def _us(microseconds: float) -> str:
    return format_ns(microseconds * 1e3)


def _counter_tables(
    counters: Sequence[Counters],
    sizes: Mapping[str, Sequence[str]],
    top: int | None,
) -> Iterator[Table]:
    """Sizes, facts and stall reasons of the first `top` kernels, and the advice of Nsight Compute
    about them.
    """
    kernels = counters[:top]
    titles = _counter_titles(kernels)
    note = None
    if len(counters) > len(kernels):
        note = f"{len(counters)} kernels, the first {len(kernels)}"
    # a terminal has room for a few columns
    for start in range(0, len(kernels), _KERNELS_OF_A_TABLE):
        part = kernels[start : start + _KERNELS_OF_A_TABLE]
        rows: list[list[str | None]] = []
        for title, cells in sizes.items():
            rows.append([title, *cells[start : start + len(part)]])
        for name, title in titles.items():
            rows.append([title, *(_counter_cell(kernel, name) for kernel in part)])
        functions = [short_name(kernel.function) for kernel in part]
        yield make_table(["", *functions], rows, title=note, left_column_count=1)
    advice = _advice_rows(kernels)
    if advice:
        columns = ("may save", "kernel", "finding")
        yield make_table(columns, advice, title="advice of Nsight Compute", left_column_count=3)


def _counter_titles(kernels: Sequence[Counters]) -> dict[str, str]:
    """Titles of the counters to show, of stall reasons only the largest."""
    names = dict.fromkeys(name for kernel in kernels for name in kernel.values)
    titles: dict[str, str] = {}
    largest: dict[str, float] = {}
    for name in names:
        largest[name] = max(kernel.values.get(name, 0.0) for kernel in kernels)
        if not name.startswith("stall_"):
            titles[name] = format_counter_name(_UNIT.sub("", name))
    # Of twenty reasons, a few take nearly all of the time.
    for reason in list(stalls_of(largest))[:_MAX_STALLS]:
        titles[f"stall_{reason}_share"] = f"waits for {STALL_REASONS.get(reason, reason)}"
    return titles


def _counter_cell(kernel: Counters, name: str) -> str | None:
    if name not in kernel.values:
        return None
    return format_counter(name, kernel.values[name])


def _advice_rows(kernels: Sequence[Counters]) -> list[tuple[str | None, str, str]]:
    findings = [(finding, kernel.function) for kernel in kernels for finding in kernel.findings]
    findings.sort(key=lambda pair: finding_rank(pair[0]))
    rows = []
    for finding, function in findings:
        saving = None
        if finding.estimated_speedup is not None:
            scope = " of a part" if finding.is_estimate_of_a_part else ""
            saving = f"{finding.estimated_speedup:.0%}{scope}"
        rows.append((saving, short_name(function), finding.message))
    return rows


# --- `roofwatch ncu`


def select_calls(
    info: SuiteInfo,
    case_pattern: str,
    implementations: Sequence[str] | None,
) -> tuple[CaseRecord, tuple[str, ...]]:
    """Select one case, by ID, shell pattern or the name of a kernel with one case, and
    implementations by pattern.

    Without patterns these are Triton and CUDA C++, or else all but torch.compile.

    Raises:
        SuiteError: not exactly one case matches, no implementation does, or several ranks make the
        call.
    """
    all_cases = [(kernel, case) for kernel in info.kernels for case in kernel.cases]
    # The name of a kernel is enough if it has one case.
    matching = [
        (kernel, case)
        for kernel, case in all_cases
        if case_pattern == kernel.name or matches(case.case_id, [case_pattern])
    ]
    if not matching:
        _, first_case = all_cases[0]
        example = first_case.case_id
        raise SuiteError(
            f"no case matches {case_pattern}; a case ID is for example {example} (see roofwatch "
            f"list)"
        )
    if len(matching) > 1:
        names = listed(case.case_id for _, case in matching)
        raise SuiteError(f"{case_pattern} matches {len(matching)} cases; name one: {names}")
    kernel, case = matching[0]
    if kernel.rank_count(case) > 1:
        raise SuiteError(
            f"{case.case_id}: {kernel.rank_count(case)} ranks make the call, but Nsight Compute "
            f"profiles one at a time"
        )
    able = [
        implementation
        for implementation in kernel.implementations
        if case.direction in implementation.directions
    ]
    selected = _selected_names(able, implementations)
    if not selected:
        able_names = ", ".join(implementation.name for implementation in able)
        raise SuiteError(
            f"{case.case_id}: no implementation matches {' '.join(implementations or ())}; there "
            f"are {able_names}"
        )
    return case, selected


def _selected_names(
    able: Sequence[ImplementationInfo],
    patterns: Sequence[str] | None,
) -> tuple[str, ...]:
    if patterns:
        return tuple(info.name for info in able if matches(info.name, patterns))
    # The user's own code is of interest; of torch's, compiling would take part of the time.
    own_names = tuple(info.name for info in able if info.language != "torch")
    return own_names or tuple(info.name for info in able if not info.is_compiled)


def with_counters(
    record: RunRecord,
    commit: Commit,
    calls: Sequence[CountedCall],
    *,
    name: str,
) -> RunRecord:
    """Add counters of a commit to a record; they replace those of the same case and implementation.

    Raises:
        RecordError: the record has another commit or device, or lacks the case.
    """
    counted = [call for call in calls if call.outcome is Outcome.OK]
    # Counters of other code would explain the wrong times.
    if record.commit.sha != commit.sha:
        raise RecordError(
            f"{name}: the record is of commit {record.commit.sha[:12]}, the counters are of "
            f"{commit.sha[:12]}; check out that commit, or measure this one first"
        )
    case_ids = {case.case_id for case in record.cases}
    device_name = record.environment.device_name
    for call in counted:
        if call.case_id not in case_ids:
            raise RecordError(f"{name}: has no case {call.case_id}; measure it first")
        # Nsight Compute may leave out the end of a name, such as the memory size.
        if call.device_name is not None and not device_name.startswith(call.device_name):
            raise RecordError(
                f"{name}: the record is of {device_name}, the counters are of {call.device_name}"
            )
    replaced = {(call.case_id, call.implementation) for call in counted}
    counters = [entry for entry in record.counters if entry.case_key not in replaced]
    for call in counted:
        counters.extend(call.counters)
    return record.model_copy(update={"counters": tuple(counters)})


def exit_status(calls: Sequence[CountedCall]) -> int:
    """0 if all was counted, 1 if a call failed, 2 if this machine cannot run one."""
    outcomes = {call.outcome for call in calls} - {Outcome.OK}
    # A failed call outweighs one that this machine cannot make.
    if outcomes - {Outcome.UNSUPPORTED}:
        return EXIT_WRONG
    if outcomes:
        return EXIT_CANNOT
    return 0


def describe(calls: Iterable[CountedCall]) -> Iterator[Table | str]:
    for call in calls:
        title = f"{call.case_id} {call.implementation}"
        if call.device_name:
            title += f" on {call.device_name}"
        yield title
        yield from _counter_tables(call.counters, {}, _KERNELS_OF_A_TABLE)
