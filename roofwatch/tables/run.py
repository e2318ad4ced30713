"""Results of a run as tables. Everything in them is in the JSON output too."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from rich.table import Table
from rich.text import Text

from roofwatch.console.terminal import make_table
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement, measured_values
from roofwatch.model.metrics import format_bytes, format_ns, metric
from roofwatch.model.optional import map_optional
from roofwatch.model.record import RunRecord
from roofwatch.model.results import TensorError
from roofwatch.tables.cells import (
    PeakShares,
    outcome_text,
    set_caption,
    shares_of_peak,
    shorten_message,
)
from roofwatch.tables.code import analyses, compiled_ranges
from roofwatch.tables.record_sentences import device_summary, time_spent

_PROFILE_ROWS = 3
_NOISY_SHARE = 0.3
"""Interquartile range relative to the median."""


def of_run(path: Path, record: RunRecord) -> Iterator[Table | str]:
    """All tables of a run and what to know of it: measurements, launches, memory, profiles and
    compiled code.
    """
    yield measurements(record)
    yield from filter(None, (launches(record), memory_use(record)))
    if record.profiles:
        yield profiles(record)
    if record.static_facts:
        yield compiled_ranges(record.static_facts)
    if record.overflow_proofs:
        yield analyses(record.overflow_proofs, record.operator_costs)
    yield from device_summary(record)
    yield time_spent(record)
    yield f"record: {path}   next: roofwatch ingest {path}"
    if record.commit.is_dirty:
        reason = "there is no commit here"
        if record.commit.first_parent_count > 0:
            reason = "the work tree is dirty"
        yield f"{reason}: this run is stored and shown, but is not part of the history"


def measurements(record: RunRecord) -> Table:
    """One row per case and implementation: outcome, accuracy, time and utilisation.

    The case that is furthest from its roof comes first, and of each case the fastest
    implementation. The bandwidth is that of memory, or of the bus for collectives. The caption
    lists why cases are unsupported.
    """
    peak_shares = shares_of_peak(record)
    accuracies = {a.case_key: a for a in record.accuracies}
    rows: list[Sequence[object]] = []
    noisy_count = 0
    for measurement in furthest_from_roof_first(record.measurements):
        is_noisy = _is_noisy(measurement)
        noisy_count += is_noisy
        accuracy = accuracies.get(measurement.case_key)
        worst = None
        if accuracy is not None:
            worst = accuracy.worst
        values = measured_values(measurement, record.case(measurement.case_id))

        rows.append(
            (
                measurement.case_id,
                measurement.implementation,
                Text("noisy", style="yellow") if is_noisy else outcome_text(measurement.outcome),
                _formatted("median_ns", values),
                map_optional("{:.2f}".format, measurement.ratio_to_reference),
                _utilisation(measurement, values, peak_shares),
                map_optional(_interquartile_range, measurement.quartiles_ns),
                map_optional(_error_text, worst),
                _formatted("flop_per_s", values),
                _bandwidth(values),
                len(measurement.samples_ns) or None,
            )
        )
        # Reasons of unsupported cases repeat, so the caption counts them.
        if measurement.message and measurement.outcome is not Outcome.UNSUPPORTED:
            rows.append([Text(shorten_message(f"  {measurement.message}"), style="dim")])
    columns = (
        "case",
        "implementation",
        "outcome",
        "median",
        "/ reference",
        "utilisation",
        "IQR",
        "error",
        "rate",
        "bandwidth",
        "samples",
    )
    title = f"{record.project} {record.commit.sha[:8]} on {record.environment.runner_class}"
    table = make_table(columns, rows, title=title, left_column_count=3)
    unsupported = Counter(
        measurement.message
        for measurement in record.measurements
        if measurement.outcome is Outcome.UNSUPPORTED and measurement.message
    )
    lines = [f"{count} unsupported: {message}" for message, count in unsupported.most_common()]
    if peak_shares:
        lines.append("utilisation: of what is achievable (measured), and of the peak (datasheet)")
    if noisy_count:
        lines.append(
            f"{noisy_count} noisy: half of the samples differ by more than "
            f"{_NOISY_SHARE:.0%} of the median; other work shares this machine"
        )
    set_caption(table, lines)
    return table


def fastest_lines(record: RunRecord) -> list[str]:
    """One line per timed case: its fastest implementation, and how far that is from the roof."""
    lines: dict[str, str] = {}
    for measurement in furthest_from_roof_first(record.measurements):
        # The first of a case is its fastest; later ones are not asked for.
        if measurement.case_id in lines or measurement.median_ns is None:
            continue
        line = f"{measurement.case_id}: fastest is {measurement.implementation}"
        line += f", {format_ns(measurement.median_ns)}"
        if measurement.ratio_to_reference is not None:
            line += f", {measurement.ratio_to_reference:.2f} of the library's time"
        if measurement.utilisation is not None:
            line += f", {measurement.utilisation:.0%} of the {measurement.bound} limit"
        lines[measurement.case_id] = line
    return list(lines.values())


def furthest_from_roof_first(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Sort by case, that with the lowest utilisation of its fastest implementation first, and by
    time within a case; what was not timed comes last.
    """
    by_case: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_case.setdefault(measurement.case_id, []).append(measurement)
    fastest_first = [sorted(case, key=_time_ns) for case in by_case.values()]
    fastest_first.sort(key=lambda case: _share_of_roof(case[0]))
    return list(chain.from_iterable(fastest_first))


def _time_ns(measurement: Measurement) -> float:
    # Untimed ones are last.
    if measurement.median_ns is None:
        return math.inf
    return measurement.median_ns


def _share_of_roof(measurement: Measurement) -> float:
    if measurement.utilisation is None:
        return math.inf
    return measurement.utilisation


def _is_noisy(measurement: Measurement) -> bool:
    """Whether the samples spread so far that the median says little."""
    quartiles_ns = measurement.quartiles_ns
    if quartiles_ns is None or measurement.median_ns is None:
        return False
    q1_ns, q3_ns = quartiles_ns
    return q3_ns - q1_ns > _NOISY_SHARE * measurement.median_ns


def _error_text(error: TensorError) -> str:
    return metric("rmse_ratio").format(error.rmse_ratio)


def _interquartile_range(quartiles_ns: tuple[float, float]) -> str:
    q1_ns, q3_ns = quartiles_ns
    return format_ns(q3_ns - q1_ns)


def _bandwidth(values: dict[str, float]) -> str:
    bus = _formatted("bus_bytes_per_s", values)
    if bus:
        return f"{bus} bus"
    return _formatted("memory_bytes_per_s", values)


def _utilisation(
    measurement: Measurement,
    values: dict[str, float],
    peak_shares: PeakShares,
) -> str | None:
    if measurement.bound is None:
        return None
    peak_share = peak_shares.get(measurement.case_key)
    in_brackets = "" if peak_share is None else f" ({peak_share:.0%})"
    return f"{_formatted('utilisation', values)}{in_brackets} {measurement.bound}"


def launches(record: RunRecord) -> Table | None:
    """Launch overhead per case and implementation; None without a GPU timer."""
    rows: list[list[object]] = []
    for measured in record.measurements:
        if measured.host_ns is None:
            continue
        busy_ns = measured.median_ns
        span_ns = measured.span_ns
        gaps_ns = None
        if busy_ns is not None and span_ns is not None:
            gaps_ns = max(0.0, span_ns - busy_ns)
        times_ns = (busy_ns, gaps_ns, measured.launch_delay_ns, measured.host_ns)
        rows.append(
            [
                measured.case_id,
                measured.implementation,
                measured.timer,
                measured.cache,
                _kernel_count(measured),
                *(map_optional(format_ns, time_ns) for time_ns in times_ns),
                "host-bound" if measured.is_host_bound else None,
            ]
        )
    columns = (
        "case",
        "implementation",
        "timer",
        "cache",
        "kernels",
        "busy",
        "gaps",
        "delay",
        "host",
        "",
    )
    title = (
        "launches: device time, gaps between kernels, delay of the first kernel, host time to "
        "issue the launch"
    )
    if rows:
        return make_table(columns, rows, title=title, left_column_count=4)
    return None


def memory_use(record: RunRecord) -> Table | None:
    """Memory per case and implementation; None if it was not counted."""
    rows = [
        (
            measured.case_id,
            measured.implementation,
            measured.cache,
            format_bytes(memory.peak_allocated_bytes),
            format_bytes(memory.peak_reserved_bytes),
            f"{memory.allocation_count:,}",
            map_optional("{:.1%}".format, memory.fragmentation),
        )
        for measured in record.measurements
        if (memory := measured.memory) is not None
    ]
    columns = (
        "case",
        "implementation",
        "cache",
        "allocated",
        "reserved",
        "allocations",
        "fragmentation",
    )
    title = "memory of a launch: peak allocated and reserved, allocations, fragmentation"
    if rows:
        return make_table(columns, rows, title=title, left_column_count=3)
    return None


def profiles(record: RunRecord) -> Table:
    """The three longest kernels or operators of each case and implementation."""
    rows: list[tuple[object, ...]] = []
    for profile in record.profiles:

        def share(total_ns: float, busy_ns: float = profile.busy_ns) -> str:
            # A profile without kernels has no busy time.
            if busy_ns == 0:
                return ""
            return f"{total_ns / busy_ns:.1%}"

        rows += [
            (
                profile.case_id,
                profile.implementation,
                row.kind,
                row.name,
                f"{row.count / profile.call_count:.3g}",
                format_ns(row.total_ns),
                format_ns(row.mean_ns),
                share(row.total_ns),
            )
            for row in profile.rows[:_PROFILE_ROWS]
        ]
        hidden = profile.rows[_PROFILE_ROWS:]
        hidden_count = len(hidden) + profile.left_out_count
        if hidden_count:
            rest_ns = sum(row.total_ns for row in hidden) + profile.left_out_ns
            remark = f"and {hidden_count} more"
            rows.append(("", "", "", remark, "", format_ns(rest_ns), "", share(rest_ns)))
    columns = (
        "case",
        "implementation",
        "kind",
        "name",
        "per call",
        "total",
        "mean",
        "share of busy",
    )
    title = (
        "launched kernels and operators, under a profiler: times are not comparable with "
        "measurements"
    )
    return make_table(columns, rows, title=title, left_column_count=4)


def _kernel_count(measurement: Measurement) -> str | None:
    counts = [block.kernel_count for block in measurement.blocks if block.kernel_count is not None]
    if not counts:
        return None
    # An autotuner or a data-dependent launch changes which kernels run.
    is_varying = any(block.is_kernel_set_varying for block in measurement.blocks)
    if is_varying or len(set(counts)) > 1:
        return f"up to {max(counts)}"
    return str(counts[0])


def _formatted(key: str, values: dict[str, float]) -> str:
    if key not in values:
        return ""
    return metric(key).format(values[key])
