"""What Nsight Compute counted, as tables: the facts, what warps waited for, and what its rules advise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from roofwatch.collector.profiling.ncu.counters import stalls_of
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.results import Counters
from roofwatch.terminal import printable

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
