"""Tables of `roofwatch read`."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from roofwatch.ci.messages import short_name
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.profiles.report import percent
from roofwatch.terminal import make_table

_MAX_MESSAGE = 400
_FACT_COLUMNS = {
    "duration_ns": ("duration", format_ns),
    "dram_throughput_pct": ("DRAM", "{:.1f} %".format),
    "memory_throughput_pct": ("memory", "{:.1f} %".format),
    "sm_throughput_pct": ("SM", "{:.1f} %".format),
    "achieved_occupancy_pct": ("occupancy", "{:.1f} %".format),
    "theoretical_occupancy_pct": ("theoretical", "{:.1f} %".format),
    "registers_per_thread": ("registers", "{:.0f}".format),
}


def tables(profile: dict[str, Any], *, top: int | None) -> Iterator[Table]:
    """Make the tables of one file, with `top` kernels and findings of a report of Nsight Compute."""
    if profile["format"].startswith("ncu"):
        yield _ncu_kernels(profile, top)
        if any(kernel.get("findings") for kernel in profile["kernels"]):
            yield _ncu_findings(profile, top)
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
            overlap = f"{percent(collectives['overlapped_fraction_of_collectives'])} overlap with compute"
            rows.append(("  collectives", collectives["kernels"], "", _us(collectives["union_us"]), "", overlap))
    return make_table(
        ("device", "activities", "span", "busy", "idle", "busy share"), rows, title=profile["format"], left=1
    )


def _kernels(kernels: dict[str, Any]) -> Table:
    columns = (
        *("kernel", "launches", "total", "share", "mean", "largest", "grid", "block", "registers", "shared"),
        "occupancy",
    )
    rows = []
    for row in kernels["top_by_total_time"]:
        first, occupancy_pct = row["first_launch"], row.get("occupancy_pct")
        share = row["sum_us"] / kernels["sum_us"] if kernels["sum_us"] else None
        cells = (
            *(short_name(row["name"]), row["count"], _us(row["sum_us"]), percent(share)),
            *(_us(row["mean_us"]), _us(row["max_us"]), _dimensions(first.get("grid")), _dimensions(first.get("block"))),
            *(first.get("registers_per_thread"), _shared_memory(first, "memory_bytes")),
            None if occupancy_pct is None else f"{occupancy_pct:.0f} %",
        )
        rows.append(cells)
    title = f"{kernels['count']} kernels of {kernels['distinct_names']} names, {_us(kernels['sum_us'])} in total"
    title += _left_out(len(rows), kernels["distinct_names"])
    return make_table(columns, rows, title=title, left=1, omit_empty=True)


def _transfers(profile: dict[str, Any]) -> Table:
    rows = []
    for totals in (profile["memcpy"], profile["memset"]):
        by_name = totals.get("by_name") or [{"name": kind, **sums} for kind, sums in totals.get("by_kind", {}).items()]
        rows += [
            (short_name(row["name"]), row["count"], _us(row["sum_us"]), format_bytes(row["bytes"])) for row in by_name
        ]
    return make_table(("copies and fills", "count", "total", "bytes"), rows, left=1)


def _launches(launches: dict[str, Any]) -> Table:
    by_name = launches.get("kernel_launch_calls_by_name", launches.get("kernel_launches_by_name", {}))
    rows = [(short_name(name), count) for name, count in by_name.items()]
    if "kernels_without_a_launch_call" in launches:
        rows.append(("kernels without a launch call", launches["kernels_without_a_launch_call"]))
    delay = launches.get("delay_call_start_to_kernel_start")
    if delay is not None:
        rows.append(("median delay from call to kernel", _us(delay["median_us"])))
        rows.append(("largest delay from call to kernel", _us(delay["max_us"])))
    return make_table(("launch", "value"), rows, left=1)


def _ncu_kernels(profile: dict[str, Any], top: int | None) -> Table:
    rows = [
        (
            *(short_name(kernel["name"]), _dimensions(kernel["grid"]), _dimensions(kernel["block"])),
            *(write(kernel[fact]) if fact in kernel else None for fact, (_, write) in _FACT_COLUMNS.items()),
            _shared_memory(kernel, "memory_per_block_bytes"),
        )
        for kernel in profile["kernels"][:top]
    ]
    columns = ("kernel", "grid", "block", *(title for title, _ in _FACT_COLUMNS.values()), "shared")
    title = profile["format"] + _left_out(len(rows), len(profile["kernels"]))
    return make_table(columns, rows, title=title, left=1)


def _ncu_findings(profile: dict[str, Any], top: int | None) -> Table:
    found = [(kernel["name"], rule) for kernel in profile["kernels"] for rule in kernel.get("findings", ())]
    found.sort(key=lambda pair: -(pair[1]["estimated_speedup_pct"] or 0))
    rows = [
        (
            *(short_name(name), short_name(rule["rule"])),
            None if rule["estimated_speedup_pct"] is None else f"{rule['estimated_speedup_pct']:.1f} %",
            rule["message"][:_MAX_MESSAGE],
        )
        for name, rule in found[:top]
    ]
    title = f"{len(found)} findings{_left_out(len(rows), len(found))}"
    return make_table(("kernel", "rule", "estimated speedup", "finding"), rows, title=title, left=4)


def _shared_memory(facts: dict[str, Any], what: str) -> str:
    """Shared memory of a block, as a whole or as static and dynamic parts."""
    parts = [facts.get(f"{part}shared_{what}") for part in ("", "static_", "dynamic_")]
    known = [part for part in parts if part is not None]
    return format_bytes(sum(known)) if known else ""


def _left_out(shown: int, count: int) -> str:
    return "" if shown >= count else f"; the first {shown}, --top 0 shows all"


def _dimensions(lengths: Any) -> str:
    return "x".join(map(str, lengths)) if isinstance(lengths, list) else str(lengths or "").strip("()")


def _us(microseconds: float) -> str:
    return format_ns(microseconds * 1e3)
