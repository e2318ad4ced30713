"""What is in a profiler's file, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.terminal import printable

_MAX_NAME = 80


def tables(profile: dict[str, Any], *, top: int | None) -> Iterator[Table]:
    """The tables of one file: which kernels took the time, what was moved, how busy each device was.

    Args:
        profile: As it was read, with so many kernels of a trace.
        top: Kernels, and findings, that are told of a report; None for all.
    """
    if profile["format"].startswith("ncu"):
        yield _measured_kernels(profile, top)
        findings = _findings(profile, top)
        if findings.row_count:
            yield findings
        return
    yield _devices(profile)
    yield _kernels(profile)
    if profile["memcpy"]["count"] or profile["memset"]["count"]:
        yield _transfers(profile)
    yield _launches(profile)


def _devices(profile: dict[str, Any]) -> Table:
    table = _table("device", "activities", "span", "busy", "idle", "busy share", title=profile["format"], left=1)
    for device, summary in profile["devices"].items():
        busy = summary.get("all_gpu_activity", summary)
        table.add_row(
            device,
            str(busy["activities"]),
            _us(busy["span_us"]),
            _us(busy["busy_us"]),
            _us(busy["idle_us"]),
            _share(busy["busy_fraction"]),
        )
        collectives = summary.get("collectives")
        if collectives:
            overlap = _share(collectives["overlapped_fraction_of_collectives"])
            table.add_row(
                "  collectives",
                str(collectives["kernels"]),
                "",
                _us(collectives["union_us"]),
                "",
                f"{overlap} of it beside compute",
            )
    return table


def _kernels(profile: dict[str, Any]) -> Table:
    kernels = profile["kernels"]
    rows = kernels["top_by_total_time"]
    # an export of Nsight Systems has none
    has_occupancy = any(row.get("occupancy_pct") is not None for row in rows)
    table = _table(
        "kernel", "launches", "total", "share", "mean", "largest", "grid", "block", "registers", "shared",
        *(("occupancy",) if has_occupancy else ()),
        title=f"{kernels['count']} kernels of {kernels['distinct_names']} names, {_us(kernels['sum_us'])} in all"
        + _left_out(len(rows), kernels["distinct_names"]),
        left=1,
    )  # fmt: skip
    for row in rows:
        first = row["first_launch"]
        table.add_row(
            _name(row["name"]),
            str(row["count"]),
            _us(row["sum_us"]),
            _share(row["sum_us"] / kernels["sum_us"] if kernels["sum_us"] else None),
            _us(row["mean_us"]),
            _us(row["max_us"]),
            _dims(first.get("grid")),
            _dims(first.get("block")),
            str(first.get("registers_per_thread", "")),
            _shared(first, "memory_bytes"),
            *((_percent(row["occupancy_pct"]),) if has_occupancy else ()),
        )
    return table


def _transfers(profile: dict[str, Any]) -> Table:
    table = _table("copies and fills", "count", "total", "bytes", left=1)
    for what in ("memcpy", "memset"):
        rows = profile[what].get("by_name") or [
            {"name": kind, **sums} for kind, sums in profile[what].get("by_kind", {}).items()
        ]
        for row in rows:
            table.add_row(_name(row["name"]), str(row["count"]), _us(row["sum_us"]), format_bytes(row["bytes"]))
    return table


def _launches(profile: dict[str, Any]) -> Table:
    launches = profile["launches"]
    table = _table("launch", "value")
    for name, count in launches.get("kernel_launch_calls_by_name", launches.get("kernel_launches_by_name", {})).items():
        table.add_row(_name(name), str(count))
    if "kernels_without_a_launch_call" in launches:  # statistics do not say which call belongs to which kernel
        table.add_row("kernels without a launch call", str(launches["kernels_without_a_launch_call"]))
    delay = launches.get("delay_call_start_to_kernel_start")
    if delay is not None:
        table.add_row("from call to kernel, median", _us(delay["median_us"]))
        table.add_row("from call to kernel, largest", _us(delay["max_us"]))
    return table


_FACT_COLUMNS = {
    "duration_ns": ("duration", format_ns),
    "dram_throughput_pct": ("DRAM", lambda value: f"{value:.1f} %"),
    "memory_throughput_pct": ("memory", lambda value: f"{value:.1f} %"),
    "sm_throughput_pct": ("SM", lambda value: f"{value:.1f} %"),
    "achieved_occupancy_pct": ("occupancy", lambda value: f"{value:.1f} %"),
    "theoretical_occupancy_pct": ("at most", lambda value: f"{value:.1f} %"),
    "registers_per_thread": ("registers", lambda value: f"{value:.0f}"),
}


def _measured_kernels(profile: dict[str, Any], top: int | None) -> Table:
    kernels = profile["kernels"][:top]
    table = _table(
        "kernel",
        "grid",
        "block",
        *(title for title, _ in _FACT_COLUMNS.values()),
        "shared",
        title=profile["format"] + _left_out(len(kernels), len(profile["kernels"])),
        left=1,
    )
    for kernel in kernels:
        table.add_row(
            _name(kernel["name"]),
            _dims(kernel["grid"]),
            _dims(kernel["block"]),
            *(write(kernel[fact]) if fact in kernel else "" for fact, (_, write) in _FACT_COLUMNS.items()),
            _shared(kernel, "memory_per_block_bytes"),
        )
    return table


def _findings(profile: dict[str, Any], top: int | None) -> Table:
    found = [(kernel, rule) for kernel in profile["kernels"] for rule in kernel.get("findings", ())]
    title = f"{len(found)} findings{_left_out(len(found[:top]), len(found))}"
    table = _table("kernel", "rule", "estimated speed-up", "finding", title=title, left=4)
    found.sort(key=lambda pair: -(pair[1]["estimated_speedup_pct"] or 0))
    for kernel, rule in found[:top]:
        speedup = rule["estimated_speedup_pct"]
        table.add_row(
            _name(kernel["name"]),
            _name(rule["rule"]),
            "" if speedup is None else f"{speedup:.1f} %",
            printable(rule["message"][:400]),
        )
    return table


def _shared(facts: dict[str, Any], what: str) -> str:
    """Shared memory of a block, whole or in the two parts that a launch has."""
    parts = [facts.get(f"{part}_shared_{what}") for part in ("static", "dynamic")]
    known = [part for part in (facts.get(f"shared_{what}"), *parts) if part is not None]
    return format_bytes(sum(known)) if known else ""


def _left_out(shown: int, count: int) -> str:
    return "" if shown >= count else f"; the first {shown}, --top 0 tells all"


def _percent(percent: float | None) -> str:
    return "" if percent is None else f"{percent:.0f} %"


def _table(*columns: str, title: str | None = None, left: int = 0) -> Table:
    table = Table(title=title, title_justify="left", show_lines=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < max(left, 1) else "right", overflow="fold")
    return table


def _name(name: str) -> Text:
    return printable(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…")


def _dims(dims: Any) -> str:
    return "x".join(str(length) for length in dims) if isinstance(dims, list) else str(dims or "").strip("()")


def _us(microseconds: float) -> str:
    return format_ns(microseconds * 1e3)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
