"""Tables of comparisons: a pair of records, the noise floor, machine code, regressions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import format_ns, metric
from roofwatch.db.values import Verdict
from roofwatch.tables import joined, verdict
from roofwatch.terminal import make_table

if TYPE_CHECKING:
    from roofwatch.ci.ab.comparable import SideResult
    from roofwatch.ci.ab.compare import Comparison
    from roofwatch.ci.ab.noise_floor import NoiseFloor
    from roofwatch.ci.report.pull_request import PullRequestJudgement
    from roofwatch.ci.static.comparison import StaticJudgement
    from roofwatch.ci.verdicts import Reason
    from roofwatch.db.auth.values import Triage
    from roofwatch.db.values import Regression
    from roofwatch.measurement.submissions import Result


def judgement_tables(judged: PullRequestJudgement) -> list[Table]:
    """Everything that is not unchanged, the worst first: cases, accuracy, memory and host time, machine code."""
    from roofwatch.ci.report.findings import worst_first

    cases = [
        (
            *(case.case_id, case.implementation, _side(case.base), _side(case.head)),
            None if case.comparison is None else f"{case.comparison.relative_change:+.1%}",
            *(
                _interval(case.comparison),
                verdict(case.verdict),
                _reason(case.reason).append(_more_blocks(case.comparison)),
            ),
        )
        for case in worst_first(judged.cases)
        if case.verdict is not Verdict.UNCHANGED
    ]
    write_error = metric("rmse_ratio").format
    errors = [
        (one.case_id, one.implementation, one.part, write_error(one.base), write_error(one.head), _reason(one.reason))
        for one in judged.accuracy_changes
    ]
    secondary = [
        (one.case_id, one.implementation, one.in_words, verdict(one.verdict), _reason(one.reason))
        for one in judged.secondary_changes
    ]
    steps = [
        (
            *(one.kernel, one.implementation, f"{one.kernel_change:+.1%}", one.workload_case_id, f"{one.share:.1%}"),
            *(f"{one.step_change:+.1%}", f"{one.low:+.1%} to {one.high:+.1%}"),
        )
        for one in judged.step_predictions
    ]
    tables = (
        make_table(("case", "implementation", "base", "head", "change", "95 % interval", "verdict", "reason"), cases),
        make_table(
            ("case", "implementation", "result", "error at base", "error at head", "change"), errors, title="accuracy"
        ),
        make_table(("case", "implementation", "change", "verdict", "reason"), secondary, title="memory and host time"),
        make_table(
            ("kernel", "implementation", "change", "workload", "share", "step", "interval"),
            steps,
            title="predicted change of steps",
        ),
        static_changes_table(judged.static),
    )
    return [table for table in tables if table.row_count]


def noise_floor_table(noise: NoiseFloor) -> Table:
    """One row per case: how much blocks of the same code differ, and the change detectable with a number of blocks."""
    blocks = sorted({count for case in noise.cases for count in case.detectable_change})
    rows = [
        (
            *(case.case_id, case.implementation, case.block_count, f"{case.noise_floor:.2%}"),
            *(f"{case.detectable_change[count]:+.1%}" for count in blocks),
            "false alarm" if case.is_false_alarm else "interval" if case.is_significant else None,
        )
        for case in sorted(noise.cases, key=lambda case: -case.noise_floor)
    ]
    counts = [f"detectable with {count}" for count in blocks]
    return make_table(("case", "implementation", "blocks", "noise floor", *counts, "alarm"), rows, left=2)


def _more_blocks(comparison: Comparison | None) -> str:
    """How many more blocks would decide the verdict, if any number would."""
    return "" if comparison is None or comparison.more_blocks is None else f", {comparison.more_blocks} more blocks"


def static_changes_table(judged: Iterable[StaticJudgement]) -> Table:
    """Changes of machine code; targets with the same finding share a row."""
    targets: dict[tuple[str, Reason, str, str, str], list[str]] = {}
    for item in judged:
        if not item.is_listed:
            continue
        failed = None if item.head is None or item.head.outcome is Outcome.OK else item.head
        change = str(item.detail or "") if failed is None else f"{failed.outcome}: {item.detail or ''}"
        key = (item.word, item.reason, item.function, item.case_id, change)
        targets.setdefault(key, []).append(item.target)
    rows = [
        (verdict(word), _reason(reason), function, case_id, joined(found), change)
        for (word, reason, function, case_id, change), found in targets.items()
    ]
    return make_table(("verdict", "reason", "function", "case", "targets", "change"), rows, title="machine code")


def regressions_table(found: Sequence[Regression], triage: Sequence[Triage] | None = None) -> Table:
    """One row per regression, with its triage if given."""
    rows = []
    for place, one in enumerate(found):
        certainty = "confirmed" if one.is_confirmed else "not confirmed"
        rows.append(
            (
                *(f"{one.commit.short_sha} {one.commit.subject}", one.kernel, verdict(one.verdict), one.cause),
                *(
                    one.summary,
                    f"{one.ended or one.state}, {certainty}",
                    *([] if triage is None else [_triage(triage[place])]),
                ),
            )
        )
    columns = ("commit", "kernel", "verdict", "cause", "change", "state", *([] if triage is None else ["triage"]))
    return make_table(columns, rows, title="regressions and improvements")


def verdict_line(judged: PullRequestJudgement) -> str:
    """The overall verdict with the numbers of the pull-request comment."""
    from roofwatch.ci.report.comment import headline, tally

    said = "; ".join(filter(None, (str(headline(judged)), tally(judged))))
    smallest = judged.detectable_change
    power = "" if smallest is None else f"; detects slowdowns ≥ {smallest:.1%} with 80% power"
    floor = "" if judged.noise_floor is None else f". {judged.noise_floor.remark}"
    return f"{judged.verdict}: {said}{power}{floor}"


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


def _triage(triage: Triage) -> str:
    state = "" if triage.state == "new" else triage.state.value
    return state if triage.person is None else f"{state} by {triage.person}"


def submission_lines(result: Result) -> Iterator[str]:
    """The verdict on a candidate and its evidence, line by line."""
    yield f"{result.verdict}: {result.reason}"
    for found in result.evidence:
        yield f"  {found['test']} {found['case']}: {found['message']}"
    if result.evidence:
        yield f"  repeat: {result.evidence[0]['repeat']}"
    if result.effect is not None:
        low, high = result.effect["interval"]
        times = f"{format_ns(result.effect['base_ns'])} -> {format_ns(result.effect['candidate_ns'])}"
        yield f"speedup {result.effect['ratio']:.3f} [{low:.3f}, {high:.3f}] over {result.spec['against']}, {times}"
    if result.roofline is not None:
        yield f"roofline: {result.roofline['utilisation']:.0%} of the {result.roofline['bound']} roof"
    missing = result.isolation.get("missing", {})
    if missing:
        yield "isolation lacks " + "; ".join(f"{layer} ({why})" for layer, why in missing.items())
    yield f"{result.budget['submissions_left']} confirmations of this spec left"


def submission_table(entries: Iterable[Mapping[str, Any]]) -> Table:
    rows = [
        (
            *(entry["at"], entry["kernel"], entry["file"], entry["hash"][:12], (entry["parent"] or "")[:12]),
            *(entry["verdict"], None if entry["ratio"] is None else f"{entry['ratio']:.3f}", entry["reason"]),
        )
        for entry in entries
    ]
    columns = ("submitted", "kernel", "file", "hash", "parent", "verdict", "speedup", "reason")
    return make_table(columns, rows, title="Submissions")
