"""Values as rich tables. Nothing is computed here that a machine would not find in the JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from roofwatch.collector.compile.instructions import widths
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import measured_values
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict
from roofwatch.measuring.listing import targets
from roofwatch.terminal import printable

if TYPE_CHECKING:
    from roofwatch.ci.ab.comparable import SideResult
    from roofwatch.ci.ab.compare import Comparison
    from roofwatch.ci.ab.noise_floor import FloorUsed, NoiseFloor
    from roofwatch.ci.report.pull_request import PullRequestJudgement
    from roofwatch.ci.static.comparison import StaticJudgement
    from roofwatch.collector.accuracy.check_report import CheckReport, TensorReport
    from roofwatch.collector.workers.protocol import KernelInfo
    from roofwatch.db.engine.migrate import StoreStatus
    from roofwatch.db.values import Regression
    from roofwatch.store.downloading import OfferedArtefact

_OUTCOME_STYLE = {Outcome.OK: "green", Outcome.UNSUPPORTED: "dim"}
_ACCESSES = (("load", "global_load"), ("async", "async_copy"), ("store", "global_store"))
_VERDICT_STYLE = {"regressed": "bold red", "improved": "green", "inconclusive": "yellow"}


def kernels(infos: Iterable[KernelInfo]) -> Table:
    table = _table("kernel", "family", "implementations", "directions", "dtypes", "targets", "cases", "edges")
    for info in infos:
        compiled = targets(info)
        table.add_row(
            printable(info.name),
            printable(info.family),
            printable(" ".join(implementation.name for implementation in info.implementations)),
            _joined(case.direction for case in info.cases),
            _joined(case.dtype for case in info.cases),
            printable("all" if compiled == list(DEFAULT_TARGETS) else " ".join(compiled) or "none"),
            str(len(info.cases)),
            str(len(info.edge_ids)),
        )
    return table


def measurements(record: RunRecord) -> Table:
    """One row per case and implementation: how it ended, how accurate, how fast, how near the roof. The bandwidth is
    that of memory; of a collective, where it says so, that of the bus. Below stands each reason for which something was
    not timed, and how many had it.
    """
    table = _table(
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
            said = ("  " + measurement.message[:300]).splitlines()
            table.add_row(Text("\n").join(printable(line, style="dim") for line in said))
    refused = Counter(one.message for one in record.measurements if one.outcome is Outcome.UNSUPPORTED and one.message)
    _set_caption(table, [f"{count} unsupported: {message}" for message, count in refused.most_common()])
    return table


def checks(reports: Sequence[CheckReport]) -> Table:
    """One row per case and implementation: how it ended, its worst tensor, and how it went in other layouts."""
    table = _table(
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
                _laid_out(layouts.get((report.case_id, report.implementation), [])),
            )
    unsupported = {report.message for report in reports if report.message and report.layout is None}
    unsupported -= {report.message for report in reports if report.has_failed}
    _set_caption(table, sorted(message for message in unsupported if message))
    return table


def static_facts(facts: Sequence[StaticFacts]) -> Table:
    """One row per compiled function and case; under each target what decides how many warps can be resident, what does
    not fit into registers, and the widest accesses to global memory.
    """
    targets = list(dict.fromkeys(fact.target for fact in facts))
    table = _table(
        "function", "case", *targets,
        title="registers per thread, theoretical occupancy and what limits it; spills; shared memory per block; "
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


def regressions(found: Sequence[Regression], decided: Sequence[str] | None = None) -> Table:
    """A row for each; with what people decided about them, if that is known."""
    columns = ("commit", "kernel", "verdict", "cause", "what", "state", *([] if decided is None else ["decided"]))
    table = _table(*columns, title="changes found")
    for place, regression in enumerate(found):
        certainty = "confirmed" if regression.is_confirmed else "not confirmed"
        table.add_row(
            printable(f"{regression.commit.short_sha} {regression.commit.subject}"),
            printable(regression.kernel),
            verdict(str(regression.verdict)),
            str(regression.cause),
            printable(regression.summary),
            f"{regression.state}, {certainty}",
            *([] if decided is None else [printable(decided[place])]),
        )
    return table


def judgement(judged: PullRequestJudgement) -> list[Table]:
    """What is not simply unchanged: cases first, then errors of right results, memory and host, and machine code."""
    cases = _table("case", "implementation", "base", "head", "change", "95 % interval", "verdict", "reason")
    for case in judged.cases:
        if case.verdict is Verdict.UNCHANGED:
            continue
        comparison = case.comparison
        cases.add_row(
            printable(case.case_id),
            printable(case.implementation),
            _side(case.base),
            _side(case.head),
            "" if comparison is None else f"{comparison.relative_change:+.1%}",
            _interval(comparison),
            verdict(str(case.verdict)),
            str(case.reason) + more_blocks(comparison),
        )
    errors = _table("case", "implementation", "result", "error at base", "error at head", "what", title="accuracy")
    for move in judged.accuracy_changes:
        sides = (metric("rmse_ratio").format(side) for side in (move.base, move.head))
        errors.add_row(
            printable(move.case_id), printable(move.implementation), printable(move.part), *sides, str(move.reason)
        )
    beside = _table("case", "implementation", "what", "verdict", "reason", title="memory and host of a launch")
    for launch in judged.secondary_changes:
        words = printable(launch.case_id), printable(launch.implementation), launch.in_words
        beside.add_row(*words, verdict(str(launch.verdict)), str(launch.reason))
    return [table for table in (cases, errors, beside, static_changes(judged.static)) if table.row_count]


def noise_floor(noise: NoiseFloor) -> Table:
    """How far blocks of the same code lie apart, and which changes so many of them find."""
    blocks = sorted({count for case in noise.cases for count in case.detectable_change})
    table = _table(
        "case",
        "implementation",
        "blocks",
        "noise floor",
        *(f"found with {count}" for count in blocks),
        "alarm",
        right=("blocks", "noise floor", *(f"found with {count}" for count in blocks)),
    )
    for case in sorted(noise.cases, key=lambda case: -case.noise_floor):
        table.add_row(
            printable(case.case_id),
            printable(case.implementation),
            str(case.block_count),
            f"{case.noise_floor:.2%}",
            *(f"{case.detectable_change[count]:+.1%}" for count in blocks),
            "false alarm" if case.is_false_alarm else "interval" if case.is_significant else "",
        )
    return table


def more_blocks(comparison: Comparison | None) -> str:
    """How many more a verdict would take, where some number may do."""
    return "" if comparison is None or comparison.more_blocks is None else f", {comparison.more_blocks} more blocks"


def static_changes(judged: Iterable[StaticJudgement]) -> Table:
    """What moved in machine code and why that matters; once for all targets of which the same is said."""
    table = _table("verdict", "reason", "function", "case", "targets", "what moved", title="machine code")
    targets: dict[tuple[str, str, str, str, str], list[str]] = {}
    for item in judged:
        if not item.is_told:
            continue
        failed = None if item.head is None or item.head.outcome is Outcome.OK else item.head
        what = str(item.detail or "") if failed is None else f"{failed.outcome}: {item.detail or ''}"
        key = (item.word, str(item.reason), item.function, item.case_id, what)
        targets.setdefault(key, []).append(item.target)
    for (word, reason, function, case_id, what), found in targets.items():
        table.add_row(verdict(word), reason, printable(function), printable(case_id), _joined(found), printable(what))
    return table


def verdict_line(judged: PullRequestJudgement) -> str:
    """The verdict over everything, and how many of each."""
    counts = ", ".join(f"{count} {name}" for name, count in judged.counts.items() if count)
    least = judged.detectable_change
    found = "" if least is None else f"; a slowdown of {least:.1%} is typically found four times in five"
    return f"{judged.verdict}: {counts or 'nothing to compare'}{found}{_floor_used(judged.noise_floor)}"


def _floor_used(floor: FloorUsed | None) -> str:
    if floor is None:
        return ""
    asked = "" if floor.most is None else f", by up to {floor.most:.1%}"
    return (
        f"; the noise floor of {floor.measured_at:%Y-%m-%d} (commit {floor.commit_sha[:8]}) asks more of a change in "
        f"{floor.case_count} case(s){asked}"
    )


def status(store: StoreStatus) -> Table:
    table = _table("what", "value")
    table.add_row("server", store.server)
    table.add_row("Postgres", store.server_version)
    table.add_row("schema revision", store.schema_revision or "none")
    table.add_row("size", format_bytes(store.size_bytes))
    for name, count in store.row_counts.items():
        table.add_row(f"rows of {name}", str(count))
    return table


def artefacts(offered: Iterable[OfferedArtefact]) -> Table:
    """The files that a run's record names."""
    table = _table("name", "kind", "size", "sha256", "stored", right=("size",))
    for one in offered:
        stored = "yes" if one.is_stored else "no: nobody has sent it"
        table.add_row(
            printable(one.name), printable(one.kind), format_bytes(one.size_bytes), printable(one.sha256[:12]), stored
        )
    return table


def verdict(word: str) -> Text:
    return Text(word, style=_VERDICT_STYLE.get(word, ""))


def _table(*columns: str, title: str | None = None, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=None if title is None else printable(title), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _set_caption(table: Table, messages: Sequence[str]) -> None:
    """What is said below the table, the beginning of each message; nothing for none."""
    lines = [printable(line).plain for message in messages for line in message[:300].splitlines()]
    if lines:
        table.caption = Text("\n".join(lines))
        table.caption_justify = "left"


def _side(side: SideResult | None) -> str:
    if side is None:
        return "absent"
    if side.median_ns is not None:
        return format_ns(side.median_ns)
    return str(side.measured or side.accuracy)


def _interval(comparison: Comparison | None) -> str:
    if comparison is None or not all(map(math.isfinite, comparison.relative_interval)):
        return ""
    low, high = comparison.relative_interval
    return f"{low:+.1%} to {high:+.1%}"


def _joined(values: Iterable[str]) -> Text:
    return printable(" ".join(dict.fromkeys(values)))


def _outcome(outcome: Outcome) -> Text:
    return Text(str(outcome), style=_OUTCOME_STYLE.get(outcome, "red"))


def _worst(tensors: Sequence[TensorReport]) -> tuple[str, str, str, str]:
    """Of the tensor and the kind of error that come nearest to their limit, or go furthest beyond it: which it is, the
    error, its limit, and eager's.
    """
    found = [
        (error / limit if limit else error, f"{tensor.tensor} {kind}", error, limit, eager)
        for tensor in tensors
        for kind, error, limit, eager in (
            ("overall", tensor.rmse_ratio, tensor.rmse_limit, tensor.baseline_rmse_ratio),
            ("largest", tensor.elementwise, tensor.elementwise_limit, tensor.baseline_elementwise),
        )
    ]
    if not found:
        return "", "", "", ""
    unlike = next((tensor for tensor in tensors if tensor.unlike_count), None)
    if unlike is not None:
        return unlike.tensor, "NaN or inf", "", ""
    _, name, error, limit, eager = max(found, key=lambda each: each[0])
    return name, f"{error:.1e}", f"{limit:.1e}", "" if eager is None else f"{eager:.1e}"


def _laid_out(reports: Sequence[CheckReport]) -> Text:
    right = sum(report.outcome is Outcome.OK for report in reports)
    refused = sum(report.outcome is Outcome.UNSUPPORTED for report in reports)
    wrong = len(reports) - right - refused
    parts = [(right, "right", ""), (refused, "refused", "dim"), (wrong, "wrong", "red")]
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
    """Of the accesses of a kind, in bits; 0 where there are none."""
    return max((width for width, _ in widths(fact.instructions, kind)), default=0)
