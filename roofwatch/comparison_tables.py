"""Comparisons as rich tables: a pair of records, the noise floor, machine code."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import format_ns, metric
from roofwatch.db.values import Verdict
from roofwatch.tables import joined, make_table, verdict
from roofwatch.terminal import print_note, print_table, printable

if TYPE_CHECKING:
    from roofwatch.ci.ab.comparable import SideResult
    from roofwatch.ci.ab.compare import Comparison
    from roofwatch.ci.ab.noise_floor import FloorUsed, NoiseFloor
    from roofwatch.ci.report.pull_request import PullRequestJudgement
    from roofwatch.ci.static.comparison import StaticJudgement
    from roofwatch.ci.verdicts import Reason


def print_judgement(judged: PullRequestJudgement) -> None:
    """Print the tables of a judgement and its verdict line."""
    for table in judgement_tables(judged):
        print_table(table)
    print_note(verdict_line(judged))


def judgement_tables(judged: PullRequestJudgement) -> list[Table]:
    """Everything that is not unchanged: cases, accuracy, memory and host time, machine code."""
    cases = make_table("case", "implementation", "base", "head", "change", "95 % interval", "verdict", "reason")
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
            _reason(case.reason).append(more_blocks(comparison)),
        )
    errors = make_table(
        "case", "implementation", "result", "error at base", "error at head", "change", title="accuracy"
    )
    for move in judged.accuracy_changes:
        sides = (metric("rmse_ratio").format(side) for side in (move.base, move.head))
        errors.add_row(
            printable(move.case_id), printable(move.implementation), printable(move.part), *sides, _reason(move.reason)
        )
    secondary = make_table("case", "implementation", "change", "verdict", "reason", title="memory and host time")
    for launch in judged.secondary_changes:
        words = printable(launch.case_id), printable(launch.implementation), launch.in_words
        secondary.add_row(*words, verdict(str(launch.verdict)), _reason(launch.reason))
    return [table for table in (cases, errors, secondary, static_changes_table(judged.static)) if table.row_count]


def noise_floor_table(noise: NoiseFloor) -> Table:
    """One row per case: how much blocks of the same code differ, and the change detectable with a number of blocks."""
    blocks = sorted({count for case in noise.cases for count in case.detectable_change})
    counts = [f"detectable with {count}" for count in blocks]
    columns = ("case", "implementation", "blocks", "noise floor", *counts, "alarm")
    table = make_table(*columns, right=("blocks", "noise floor", *counts))
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
    """How many more blocks would decide the verdict, if any number would."""
    return "" if comparison is None or comparison.more_blocks is None else f", {comparison.more_blocks} more blocks"


def static_changes_table(judged: Iterable[StaticJudgement]) -> Table:
    """Changes of machine code; targets with the same finding share a row."""
    table = make_table("verdict", "reason", "function", "case", "targets", "change", title="machine code")
    targets: dict[tuple[str, Reason, str, str, str], list[str]] = {}
    for item in judged:
        if not item.is_listed:
            continue
        failed = None if item.head is None or item.head.outcome is Outcome.OK else item.head
        change = str(item.detail or "") if failed is None else f"{failed.outcome}: {item.detail or ''}"
        key = (item.word, item.reason, item.function, item.case_id, change)
        targets.setdefault(key, []).append(item.target)
    for (word, reason, function, case_id, change), found in targets.items():
        table.add_row(
            verdict(word), _reason(reason), printable(function), printable(case_id), joined(found), printable(change)
        )
    return table


def verdict_line(judged: PullRequestJudgement) -> str:
    """The overall verdict and the number of each verdict."""
    counts = ", ".join(f"{count} {name}" for name, count in judged.counts.items() if count)
    smallest = judged.detectable_change
    power = "" if smallest is None else f"; a slowdown of {smallest:.1%} is typically detected in 4 of 5 jobs"
    return f"{judged.verdict}: {counts or 'nothing to compare'}{power}{_floor_used(judged.noise_floor)}"


def _floor_used(floor: FloorUsed | None) -> str:
    if floor is None:
        return ""
    highest = "" if floor.most is None else f" up to {floor.most:.1%}"
    return (
        f"; the noise floor of {floor.measured_at:%Y-%m-%d} (commit {floor.commit_sha[:8]}) raises the threshold of "
        f"{floor.case_count} case(s){highest}"
    )


def _side(side: SideResult | None) -> str:
    if side is None:
        return "absent"
    if side.median_ns is not None:
        return format_ns(side.median_ns)
    return str(side.measured or side.accuracy)


def _reason(reason: Reason) -> Text:
    """Return the code, linked to its documentation."""
    return Text(reason, style=f"link {reason.url}")


def _interval(comparison: Comparison | None) -> str:
    if comparison is None or not all(map(math.isfinite, comparison.relative_interval)):
        return ""
    low, high = comparison.relative_interval
    return f"{low:+.1%} to {high:+.1%}"
