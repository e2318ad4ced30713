"""Results as rich tables. Everything in them is in the JSON output too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import measured_values
from roofwatch.collector.record.metrics import METRICS, format_bytes, format_ns, metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import StaticFacts
from roofwatch.measurement.run_tables import compiled_targets
from roofwatch.terminal import printable

if TYPE_CHECKING:
    from roofwatch.ci.changepoint.detect import NoiseFloor as SeriesNoise
    from roofwatch.collector.accuracy.check_report import CheckReport, TensorReport
    from roofwatch.collector.workers.protocol import KernelInfo
    from roofwatch.db.auth.values import Triage
    from roofwatch.db.engine.migrate import StoreStatus
    from roofwatch.db.queries.results import RunSummary, StoredArtefact
    from roofwatch.db.values import Regression, Series

_OUTCOME_STYLE = {Outcome.OK: "green", Outcome.UNSUPPORTED: "dim"}
_ACCESSES = (("load", "global_load"), ("async", "async_copy"), ("store", "global_store"))
_VERDICT_STYLE = {"regressed": "bold red", "improved": "green", "inconclusive": "yellow"}


def kernels(infos: Iterable[KernelInfo]) -> Table:
    table = make_table("kernel", "family", "implementations", "directions", "dtypes", "targets", "cases", "edges")
    for info in infos:
        compiled = compiled_targets(info)
        table.add_row(
            printable(info.name),
            printable(info.family),
            printable(" ".join(implementation.name for implementation in info.implementations)),
            joined(case.direction for case in info.cases),
            joined(case.dtype for case in info.cases),
            printable("all" if compiled == list(DEFAULT_TARGETS) else " ".join(compiled) or "none"),
            str(len(info.cases)),
            str(len(info.edge_ids)),
        )
    return table


def measurements(record: RunRecord) -> Table:
    """One row per case and implementation: outcome, accuracy, time and utilisation.

    The bandwidth is that of memory, or of the bus for collectives. The caption lists why cases are unsupported.
    """
    table = make_table(
        "case", "implementation", "outcome", "error", "median", "IQR", "rate", "bandwidth", "utilisation", "samples",
        title=f"{record.project} {record.commit.sha[:8]} on {record.environment.runner_class}",
        right=("error", "median", "IQR", "rate", "bandwidth", "utilisation", "samples"),
    )  # fmt: skip
    accuracies = {(a.case_id, a.implementation): a for a in record.accuracies}
    for measurement in record.measurements:
        accuracy = accuracies.get((measurement.case_id, measurement.implementation))
        worst = None if accuracy is None else accuracy.worst
        values = measured_values(measurement, record.case(measurement.case_id))
        quartiles = measurement.quartiles_ns
        table.add_row(
            printable(measurement.case_id),
            printable(measurement.implementation),
            _outcome(measurement.outcome),
            "" if worst is None else metric("rmse_ratio").format(worst.rmse_ratio),
            _formatted("median_ns", values),
            "" if quartiles is None else format_ns(quartiles[1] - quartiles[0]),
            _formatted("flop_per_s", values),
            f"{_formatted('bus_bytes_per_s', values)} bus"
            if "bus_bytes_per_s" in values
            else _formatted("memory_bytes_per_s", values),
            "" if measurement.bound is None else f"{_formatted('utilisation', values)} {measurement.bound}",
            str(len(measurement.samples_ns) or ""),
        )
        if measurement.message and measurement.outcome is not Outcome.UNSUPPORTED:
            lines = ("  " + measurement.message[:300]).splitlines()
            table.add_row(Text("\n").join(printable(line, style="dim") for line in lines))
    unsupported = Counter(
        one.message for one in record.measurements if one.outcome is Outcome.UNSUPPORTED and one.message
    )
    _set_caption(table, [f"{count} unsupported: {message}" for message, count in unsupported.most_common()])
    return table


def checks(reports: Sequence[CheckReport]) -> Table:
    """One row per case and implementation: outcome, worst tensor, and outcomes in other memory layouts."""
    table = make_table(
        "case", "implementation", "executor", "outcome", "worst", "error", "limit", "eager", "layouts",
        right=("error", "limit", "eager"),
    )  # fmt: skip
    layouts: dict[tuple[str, str], list[CheckReport]] = {}
    for report in reports:
        if report.layout is not None:
            layouts.setdefault((report.case_id, report.implementation), []).append(report)
    for report in reports:
        if report.layout is None:
            table.add_row(
                printable(report.case_id),
                printable(report.implementation),
                report.executor,
                _outcome(report.outcome),
                *_worst(report.tensors),
                _layout_counts(layouts.get((report.case_id, report.implementation), [])),
            )
    unsupported = {report.message for report in reports if report.message and report.layout is None}
    unsupported -= {report.message for report in reports if report.has_failed}
    _set_caption(table, sorted(message for message in unsupported if message))
    return table


def static_facts(facts: Sequence[StaticFacts]) -> Table:
    """One row per compiled function and case: per target registers, occupancy, spills and the widest accesses."""
    targets = list(dict.fromkeys(fact.target for fact in facts))
    table = make_table(
        "function", "case", *targets,
        title="registers per thread, theoretical occupancy and its limit; spills; shared memory per block; "
        "tensor-core instructions; widest loads and stores",
    )  # fmt: skip
    rows: dict[tuple[str, str, str], dict[str, StaticFacts]] = {}
    for fact in facts:
        rows.setdefault((fact.case_id, fact.implementation, fact.function), {})[fact.target] = fact
    for (case_id, _, function), by_target in rows.items():
        table.add_row(
            printable(function),
            printable(case_id),
            *(_compiled(by_target[target]) if target in by_target else "" for target in targets),
        )
    _set_caption(table, list(dict.fromkeys(fact.message for fact in facts if fact.message)))
    return table


def regressions(found: Sequence[Regression], triage: Sequence[Triage] | None = None) -> Table:
    """One row per regression, with its triage if given."""
    columns = ("commit", "kernel", "verdict", "cause", "change", "state", *([] if triage is None else ["triage"]))
    table = make_table(*columns, title="regressions and improvements")
    for place, regression in enumerate(found):
        certainty = "confirmed" if regression.is_confirmed else "not confirmed"
        table.add_row(
            printable(f"{regression.commit.short_sha} {regression.commit.subject}"),
            printable(regression.kernel),
            verdict(str(regression.verdict)),
            str(regression.cause),
            printable(regression.summary),
            f"{regression.state}, {certainty}",
            *([] if triage is None else [printable(_triage(triage[place]))]),
        )
    return table


def runs(found: Sequence[RunSummary]) -> Table:
    table = make_table("run", "commit", "runner class", "started", "outcomes")
    for run in found:
        marks = [
            *(["dirty work tree"] if run.is_dirty else []),
            *(["side of a pair"] if run.is_pair_side else []),
            *(["commit no longer on its branch"] if run.is_unreachable else []),
        ]
        table.add_row(
            printable(run.run_id),
            printable(f"{run.commit.short_sha} {run.commit.subject}" + "".join(f" ({mark})" for mark in marks)),
            printable(run.runner_class),
            f"{run.started_at:%Y-%m-%d %H:%M}",
            printable(", ".join(f"{count} {outcome}" for outcome, count in run.outcome_counts.items())),
        )
    return table


def series(found: Sequence[Series], noise_floors: Sequence[SeriesNoise | None]) -> Table:
    """One row per series: its newest value, and for times the noise and the detectable step."""
    table = make_table(
        "series", "metric", "runner class", "points", "failed", "newest", "at commit", "noise", "detectable",
        right=("points", "failed", "newest", "noise", "detectable"),
    )  # fmt: skip
    for one, floor in zip(found, noise_floors, strict=True):
        values = [(point.commit, point.value) for point in one.points if point.value is not None]
        commit, newest = values[-1] if values else (None, None)
        table.add_row(
            printable(one.key.label),
            printable(one.key.metric),
            printable(one.key.runner_class),
            str(len(one.points)),
            str(len(one.points) - len(values) or ""),
            "" if newest is None else _value(one.key.metric, newest),
            "" if commit is None else printable(commit.short_sha),
            "" if floor is None else f"±{floor.deviation:.1%}",
            "" if floor is None else f"{floor.minimum_detectable_change:.1%}",
        )
    return table


def _value(key: str, value: float) -> str:
    """Format as the metric does; a newer server may have metrics that this version does not know."""
    return METRICS[key].format(value) if key in METRICS else f"{value:g}"


def status(store: StoreStatus) -> Table:
    table = make_table("property", "value")
    table.add_row("server", store.server)
    table.add_row("Postgres", store.server_version)
    table.add_row("schema revision", store.schema_revision or "none")
    table.add_row("size", format_bytes(store.size_bytes))
    for name, count in store.row_counts.items():
        table.add_row(f"rows of {name}", str(count))
    return table


def artefacts(offered: Iterable[StoredArtefact]) -> Table:
    """The files of a run."""
    table = make_table("name", "kind", "size", "sha256", "stored", right=("size",))
    for one in offered:
        stored = "yes" if one.is_stored else "no, never sent"
        table.add_row(
            printable(one.name), printable(one.kind), format_bytes(one.size_bytes), printable(one.sha256[:12]), stored
        )
    return table


def verdict(word: str) -> Text:
    return Text(word, style=_VERDICT_STYLE.get(word, ""))


def make_table(*columns: str, title: str | None = None, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=None if title is None else printable(title), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _set_caption(table: Table, messages: Sequence[str]) -> None:
    """Show the start of each message below the table."""
    lines = [printable(line).plain for message in messages for line in message[:300].splitlines()]
    if lines:
        table.caption = Text("\n".join(lines))
        table.caption_justify = "left"


def _triage(triage: Triage) -> str:
    state = "" if triage.state == "new" else triage.state.value
    return state if triage.person is None else f"{state} by {triage.person}"


def joined(values: Iterable[str]) -> Text:
    return printable(" ".join(dict.fromkeys(values)))


def _outcome(outcome: Outcome) -> Text:
    return Text(str(outcome), style=f"{_OUTCOME_STYLE.get(outcome, 'red')} link {outcome.url}")


def _worst(tensors: Sequence[TensorReport]) -> tuple[str, str, str, str]:
    """Find the tensor and kind of error closest to or furthest beyond its limit: name, error, limit, error of eager."""
    found = []
    for tensor in tensors:
        for kind, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
            error, limit = getattr(tensor.errors, quantity), getattr(tensor.limits, quantity)
            eager = None if tensor.baseline is None else getattr(tensor.baseline, quantity)
            found.append((error / limit if limit else error, f"{tensor.tensor} {kind}", error, limit, eager))
    if not found:
        return "", "", "", ""
    nonfinite = next((tensor for tensor in tensors if tensor.nonfinite_count), None)
    if nonfinite is not None:
        return nonfinite.tensor, "NaN or inf", "", ""
    _, name, error, limit, eager = max(found, key=lambda each: each[0])
    return name, f"{error:.1e}", f"{limit:.1e}", "" if eager is None else f"{eager:.1e}"


def _layout_counts(reports: Sequence[CheckReport]) -> Text:
    correct = sum(report.outcome is Outcome.OK for report in reports)
    unsupported = sum(report.outcome is Outcome.UNSUPPORTED for report in reports)
    failed = len(reports) - correct - unsupported
    parts = [(correct, "ok", ""), (unsupported, "unsupported", "dim"), (failed, "failed", "red")]
    return Text(" ").join(Text(f"{count} {word}", style=style) for count, word, style in parts if count)


def _formatted(key: str, values: dict[str, float]) -> str:
    return metric(key).format(values[key]) if key in values else ""


def _compiled(fact: StaticFacts) -> Text:
    if fact.outcome is not Outcome.OK:
        return _outcome(fact.outcome)
    lines = [Text(f"{fact.registers} regs")]
    if fact.theoretical_occupancy is not None:
        limits = ", ".join(fact.occupancy_limits)
        lines[0].append(f", {metric('theoretical_occupancy').format(fact.theoretical_occupancy)} by {limits}")
    if fact.local_bytes or fact.spill_store_count or fact.spill_load_count:
        spills = f"{format_bytes(fact.local_bytes or 0)} local"
        counts = f", {fact.spill_store_count or 0} stores, {fact.spill_load_count or 0} loads"
        lines.append(Text(spills + counts, style="bold red"))
    if fact.shared_bytes:
        lines.append(Text(f"{format_bytes(fact.shared_bytes)} shared", style="dim"))
    tensor = [kind.removeprefix("tensor.") for kind in fact.instructions if kind.startswith("tensor.")]
    widest = [f"{word} {width}" for word, kind in _ACCESSES if (width := _widest(fact, kind))]
    lines += [Text(", ".join(words), style="dim") for words in (tensor, widest) if words]
    return Text("\n").join(lines)


def _widest(fact: StaticFacts, kind: str) -> int:
    """Width of the widest access of a kind, in bits; 0 without any."""
    from roofwatch.collector.compile.instructions import widths  # imports torch

    return max((width for width, _ in widths(fact.instructions, kind)), default=0)
