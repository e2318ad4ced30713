"""Kernels and results of a run as tables. Everything in them is in the JSON output too."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from rich.table import Table
from rich.text import Text

from roofwatch.ci.messages import visible
from roofwatch.code_tables import analyses, static_facts
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.model.check_report import CheckReport, TensorReport
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement, measured_values
from roofwatch.model.metrics import format_bytes, format_ns, metric
from roofwatch.model.optional import map_optional
from roofwatch.model.record import RunRecord
from roofwatch.model.results import TensorError
from roofwatch.model.worker_protocol import KernelInfo
from roofwatch.records import device_summary, time_spent
from roofwatch.table_cells import outcome_text, set_caption, shorten_message
from roofwatch.terminal import make_table

_VERDICT_STYLE = {"regressed": "bold red", "improved": "green", "inconclusive": "yellow"}
_PROFILE_ROWS = 3
_NOISY_SHARE = 0.3
"""Interquartile range relative to the median."""


def kernels(infos: Iterable[KernelInfo]) -> Table:
    """One row per kernel of a suite."""
    rows = []
    for info in infos:
        compiled = compiled_targets(info)
        rows.append(
            (
                info.name,
                info.family,
                " ".join(implementation.name for implementation in info.implementations),
                joined(case.direction for case in info.cases),
                joined(case.dtype for case in info.cases),
                "all" if compiled == list(DEFAULT_TARGETS) else " ".join(compiled) or "none",
                len(info.cases),
                info.edge_count,
            )
        )
    columns = (
        "kernel",
        "family",
        "implementations",
        "directions",
        "dtypes",
        "targets",
        "cases",
        "edges",
    )
    return make_table(columns, rows)


def compiled_targets(kernel: KernelInfo) -> list[str]:
    """Default targets for which at least one implementation of the kernel is compiled."""
    targets: set[str] = set()
    for implementation in kernel.implementations:
        if implementation.language != "torch":
            targets.update(set(DEFAULT_TARGETS).difference(implementation.unsupported_targets))
    return [target for target in DEFAULT_TARGETS if target in targets]


def kernel_summary(kernel: KernelInfo) -> dict[str, object]:
    """What the cases of a kernel have, for JSON."""
    cases = kernel.cases
    return {
        **kernel.model_dump(mode="json", exclude={"checkable", "rank_dimension"}),
        "directions": sorted({case.direction for case in cases}, reverse=True),
        "dtypes": sorted({case.dtype for case in cases}),
        "targets": compiled_targets(kernel),
        "rank_counts": sorted({kernel.rank_count(case) for case in cases}),
        "tags": sorted(set().union(*(case.tags for case in cases))),
        "edge_count": kernel.edge_count,
    }


def of_run(path: Path, record: RunRecord) -> Iterator[Table | str]:
    """All tables of a run and what to know of it: measurements, launches, memory, profiles and
    compiled code.
    """
    yield measurements(record)
    yield from filter(None, (launches(record), memory_use(record)))
    if record.profiles:
        yield profiles(record)
    if record.static_facts:
        yield static_facts(record.static_facts)
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
    accuracies = {(a.case_id, a.implementation): a for a in record.accuracies}
    rows: list[Sequence[object]] = []
    noisy_count = 0
    for measurement in furthest_from_roof_first(record.measurements):
        is_noisy = _is_noisy(measurement)
        noisy_count += is_noisy
        accuracy = accuracies.get((measurement.case_id, measurement.implementation))
        worst = None
        if accuracy is not None:
            worst = accuracy.worst
        values = measured_values(measurement, record.case(measurement.case_id))

        rows.append(
            (
                measurement.case_id,
                measurement.implementation,
                Text("noisy", style="yellow") if is_noisy else outcome_text(measurement.outcome),
                map_optional(_error_text, worst),
                _formatted("median_ns", values),
                map_optional(_interquartile_range, measurement.quartiles_ns),
                map_optional("{:.2f}".format, measurement.ratio_to_reference),
                _formatted("flop_per_s", values),
                _bandwidth(values),
                _utilisation(measurement, values),
                len(measurement.samples_ns) or None,
            )
        )
        if measurement.message and measurement.outcome is not Outcome.UNSUPPORTED:
            rows.append([Text(shorten_message(f"  {measurement.message}"), style="dim")])
    columns = (
        "case",
        "implementation",
        "outcome",
        "error",
        "median",
        "IQR",
        "/ reference",
        "rate",
        "bandwidth",
        "utilisation",
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


def _utilisation(measurement: Measurement, values: dict[str, float]) -> str | None:
    if measurement.bound is None:
        return None
    return f"{_formatted('utilisation', values)} {measurement.bound}"


def launches(record: RunRecord) -> Table | None:
    """Launch overhead per case and implementation; None without a GPU timer."""
    rows: list[list[object]] = []
    for measured in record.measurements:
        if measured.host_ns is None:
            continue
        busy_ns, span_ns = measured.median_ns, measured.span_ns
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
    return make_table(columns, rows, title=title, left_column_count=4) if rows else None


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
    return make_table(columns, rows, title=title, left_column_count=3) if rows else None


def profiles(record: RunRecord) -> Table:
    """The three longest kernels or operators of each case and implementation."""
    rows: list[tuple[object, ...]] = []
    for profile in record.profiles:

        def share(total_ns: float, busy_ns: float = profile.busy_ns) -> str:
            return f"{total_ns / busy_ns:.1%}" if busy_ns else ""

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
            rows.append(
                ("", "", "", f"and {hidden_count} more", "", format_ns(rest_ns), "", share(rest_ns))
            )
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


def checks(reports: Sequence[CheckReport]) -> Table:
    """One row per case and implementation: outcome, worst tensor, and outcomes in other memory
    layouts and at other values.
    """
    layouts: dict[tuple[str, str], list[CheckReport]] = {}
    regimes: dict[tuple[str, str], list[CheckReport]] = {}
    declared: list[CheckReport] = []
    for report in reports:
        key = (report.case_id, report.implementation)
        if report.layout is not None:
            layouts.setdefault(key, []).append(report)
        elif report.regime is not None:
            regimes.setdefault(key, []).append(report)
        else:
            declared.append(report)
    rows = []
    for report in declared:
        key = (report.case_id, report.implementation)
        variations = [*layouts.get(key, []), *regimes.get(key, [])]
        row = (
            report.case_id,
            report.implementation,
            report.executor,
            _outcome_of_all(report, variations),
            *_worst(report.tensors),
            _layout_counts(layouts.get(key, [])),
            _layout_counts(regimes.get(key, [])),
        )
        rows.append(row)
    columns = (
        "case",
        "implementation",
        "executor",
        "outcome",
        "worst",
        "error",
        "limit",
        "torch",
        "layouts",
        "values",
    )
    table = make_table(columns, rows, left_column_count=5)
    unsupported = {report.message for report in declared if report.message}
    unsupported -= {report.message for report in reports if report.outcome.is_failure}
    set_caption(table, sorted(message for message in unsupported if message))
    return table


def _outcome_of_all(report: CheckReport, variations: Sequence[CheckReport]) -> Text:
    """The outcome of a case, or of the first variation that failed though the case passes."""
    failed = next((variation for variation in variations if variation.outcome.is_failure), None)
    if failed is None or report.outcome.is_failure:
        return outcome_text(report.outcome)
    kind = "layout" if failed.layout is not None else "values"
    return Text(f"{failed.outcome}: {kind}", style=f"red link {failed.outcome.url}")


def verdict(word: str) -> Text:
    return Text(visible(word), _VERDICT_STYLE.get(word, ""))


def joined(values: Iterable[str]) -> str:
    """Different values in their first order."""
    return " ".join(dict.fromkeys(values))


def _worst(tensors: Sequence[TensorReport]) -> tuple[str | None, ...]:
    """Find the tensor and kind of error closest to or furthest beyond its limit: name, error,
    limit, error of torch.
    """
    errors = []
    for tensor in tensors:
        if tensor.nonfinite_count:
            return tensor.tensor, "NaN or inf", None, None
        for kind, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
            error, limit = getattr(tensor.errors, quantity), getattr(tensor.limits, quantity)
            eager = None
            if tensor.baseline is not None:
                eager = f"{getattr(tensor.baseline, quantity):.1e}"
            share = error / limit if limit else error
            errors.append((share, f"{tensor.tensor} {kind}", error, limit, eager))
    if not errors:
        return (None,) * 4
    _, name, error, limit, eager = max(errors, key=lambda row: row[0])
    return name, f"{error:.1e}", f"{limit:.1e}", eager


def _layout_counts(reports: Sequence[CheckReport]) -> Text:
    correct = sum(report.outcome is Outcome.OK for report in reports)
    unsupported = sum(report.outcome is Outcome.UNSUPPORTED for report in reports)
    failed = len(reports) - correct - unsupported
    parts = [(correct, "ok", ""), (unsupported, "unsupported", "dim"), (failed, "failed", "red")]
    return Text(" ").join(
        Text(f"{count} {word}", style=style) for count, word, style in parts if count
    )


def _kernel_count(measurement: Measurement) -> str | None:
    counts = [block.kernel_count for block in measurement.blocks if block.kernel_count is not None]
    if not counts:
        return None
    is_varying = (
        any(block.is_kernel_set_varying for block in measurement.blocks) or len(set(counts)) > 1
    )
    return f"up to {max(counts)}" if is_varying else str(counts[0])


def _formatted(key: str, values: dict[str, float]) -> str:
    return metric(key).format(values[key]) if key in values else ""
