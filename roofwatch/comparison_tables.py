"""Tables of comparisons and of what is stored: a pair of records, noise, machine code, runs,
series, regressions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from roofwatch.change_tables import changes_table, times_table
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.ci.ab.prediction import StepChange
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.claims.decide import claim_of_regression
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.ratios import LibraryEvidence
from roofwatch.ci.messages import visible
from roofwatch.ci.report.change_words import counted_changes
from roofwatch.ci.report.comment import summary_line
from roofwatch.ci.report.new_implementations import NewImplementation
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.alert import Alert, Delivery
from roofwatch.model.history import Regression, Series
from roofwatch.model.metrics import format_ns, is_metric
from roofwatch.model.stored_results import RunSummary
from roofwatch.model.triage import Triage, TriagedRegression
from roofwatch.model.verdict import Verdict
from roofwatch.table_cells import joined, verdict
from roofwatch.terminal import make_table, sparkline

if TYPE_CHECKING:  # they need numpy, and comparing files does not
    from roofwatch.ci.changepoint.detect import SeriesNoise
    from roofwatch.ci.history.recent import KernelSuspicion
    from roofwatch.measurement.submissions import Result

_SPARKLINE_POINTS = 20
_RATIO_ROWS = 10


def judgement_tables(judged: PullRequestJudgement) -> list[Table]:
    """Everything that changed or is undecided, and what it costs the steps of workloads."""
    predicted = _step_table(judged.step_predictions)
    changes = [*counted_changes(judged), *judged.accuracy_changes]
    cases = [change for change in changes if isinstance(change.evidence, CaseEvidence)]
    others = [change for change in changes if not isinstance(change.evidence, CaseEvidence)]
    timed = times_table(cases)
    change_table = changes_table(others)
    new = make_table(
        ("kernel", "implementation", "result", "compiled", "time"),
        [
            (
                implementation.kernel,
                implementation.implementation,
                implementation.result,
                _compiled_text(implementation),
                "\n".join(map(str, implementation.times)),
            )
            for implementation in judged.new_implementations
        ],
        title="new implementations",
    )
    ratios = _ratio_table(judged.library_ratios)
    return [table for table in (timed, change_table, new, ratios, predicted) if table.row_count]


def _compiled_text(implementation: NewImplementation) -> str:
    lines = [f"{words} ({joined(targets)})" for words, targets in implementation.compiled]
    return "\n".join(lines)


def _step_table(predictions: Iterable[StepChange]) -> Table:
    rows: list[tuple[str, ...]] = []
    for prediction in predictions:
        source = prediction.evidence
        low, high = prediction.interval
        rows.append(
            (
                source.kernel,
                source.implementation,
                f"{source.kernel_change:+.1%}",
                prediction.case_id,
                f"{source.share:.1%}",
                f"{prediction.relative_change:+.1%}",
                f"{low:+.1%} to {high:+.1%}",
            )
        )
    columns = ("kernel", "implementation", "change", "workload", "share", "step", "interval")
    return make_table(columns, rows, title="predicted change of steps")


def _ratio_table(ratios: Sequence[Change[LibraryEvidence]]) -> Table:
    """Make a table of the ratios to a library that changed most."""
    title = "time / library's time"
    # the others changed less than the shown ones
    if len(ratios) > _RATIO_ROWS:
        title += f", the {_RATIO_ROWS} of {len(ratios)} that changed most"
    rows: list[tuple[str, ...]] = []
    for ratio in ratios[:_RATIO_ROWS]:
        base, head = ratio.values
        rows.append(
            (
                ratio.case_id,
                ratio.implementation,
                ratio.evidence.library,
                f"{base:.3g}",
                f"{head:.3g}",
                f"{ratio.relative_change:+.1%}",
            )
        )
    columns = ("case", "implementation", "library", "base", "head", "change")
    return make_table(columns, rows, title=title)


def remark_lines(judged: PullRequestJudgement) -> list[str]:
    """Why the records are not compared, and which dependencies differ."""
    lines = [f"not compared: {refusal}" for refusal in judged.refusals]
    if judged.dependencies is not None:
        lines.append(f"note: {judged.dependencies}")
    return lines


def noise_floor_table(noise: NoiseFloor) -> Table:
    """One row per case: how much blocks of the same code differ, and the change detectable with a
    number of blocks.
    """
    blocks = sorted({count for case in noise.cases for count in case.detectable_change})
    rows: list[tuple[object, ...]] = []
    for case in sorted(noise.cases, key=lambda case: -case.noise_floor):
        detectable = [f"{case.detectable_change[count]:+.1%}" for count in blocks]
        alarm = None
        # a false alarm weighs more than a wide interval
        if case.is_false_alarm:
            alarm = "false alarm"
        elif case.is_significant:
            alarm = "interval"
        rows.append(
            (
                case.case_id,
                case.implementation,
                case.block_count,
                f"{case.noise_floor:.2%}",
                *detectable,
                alarm,
            )
        )
    counts = [f"detectable with {count}" for count in blocks]
    return make_table(
        ("case", "implementation", "blocks", "noise floor", *counts, "alarm"),
        rows,
        left_column_count=2,
    )


def regressions_table(regressions: Sequence[Regression], triage: Sequence[Triage] = ()) -> Table:
    """One row per regression, with its triage if given."""
    rows: list[tuple[object, ...]] = []
    for index, regression in enumerate(regressions):
        # several commits may lie between two measurements
        if regression.is_range:
            commit = regression.range_text
        else:
            commit = f"{regression.commit.short_sha} {regression.commit.subject}"
        state = regression.ended or regression.state
        rows.append(
            (
                commit,
                regression.kernel,
                verdict(regression.verdict),
                regression.cause,
                regression.summary,
                f"{state}, {claim_of_regression(regression)}",
                *map(_triage, triage[index : index + 1]),
            )
        )
    columns = (
        "commit",
        "kernel",
        "verdict",
        "cause",
        "change",
        "state",
        *(["triage"] if triage else []),
    )
    return make_table(columns, rows, title="regressions and improvements")


def acceptances_table(
    acceptances: Sequence[PullRequestAcceptance], regressions: Sequence[TriagedRegression]
) -> Table:
    """One row per acceptance, with the regressions of the main branch that it settled."""
    rows: list[tuple[str, ...]] = []
    for acceptance in acceptances:
        settled = [
            triaged.regression_id[:8]
            for triaged in regressions
            if acceptance.pull_request in (triaged.triage.accepted_in or "").split(", ")
        ]
        rows.append(
            (
                acceptance.pull_request,
                acceptance.head_sha[:8],
                acceptance.person,
                f"{acceptance.accepted_at:%Y-%m-%d}",
                f"{len(acceptance.most)} by {acceptance.grain}",
                acceptance.reason,
                ", ".join(settled),
            )
        )
    columns = ("pull request", "commit", "person", "accepted", "bounds", "reason", "regressions")
    return make_table(columns, rows, title="accepted in pull requests")


def possible_lines(changes: Iterable[KernelSuspicion]) -> Iterator[str]:
    """One line per change that waits for a verdict."""
    for change in changes:
        name = visible(f"{change.kernel} on {change.runner_class}")
        line = f"{name}: {change.claim}"
        if not change.is_imported:
            revisions = f"--base {change.base.short_sha} --head {change.head.short_sha}"
            line += f" (roofwatch ab FILE {revisions})"
        yield line


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """One row per run."""
    rows = []
    for run in runs:
        marks = {
            " (dirty work tree)": run.is_dirty,
            " (side of a pair)": run.is_pair_side,
            " (commit no longer on its branch)": run.is_unreachable,
        }
        suffix = "".join(mark for mark in marks if marks[mark])
        outcomes = [f"{count} {outcome}" for outcome, count in run.outcome_counts.items()]
        rows.append(
            (
                run.run_id,
                f"{run.commit.short_sha} {run.commit.subject}{suffix}",
                run.runner_class,
                f"{run.started_at:%Y-%m-%d %H:%M}",
                ", ".join(outcomes),
            )
        )
    return make_table(("run", "commit", "runner class", "started", "outcomes"), rows)


def series_table(series_with_noise: Sequence[tuple[Series, SeriesNoise | None]]) -> Table:
    """One row per series of a metric: its newest values, and for times the noise and the detectable
    step.
    """
    keys = [series.key for series, _ in series_with_noise]
    runner_classes = sorted({key.runner_class for key in keys if key.runner_class})
    has_metrics = len({key.metric for key in keys}) > 1
    has_runner_column = len(runner_classes) > 1
    rows = []
    for series, noise in series_with_noise:
        label = series.key.label
        if has_metrics:
            label += f" · {series.key.metric}"
        newest, commit = _newest_value(series)
        rows.append(
            (
                label,
                *([series.key.runner_class] if has_runner_column else []),
                len(series.points),
                sum(point.outcome.is_failure for point in series.points) or None,
                sparkline([point.value for point in series.points[-_SPARKLINE_POINTS:]]),
                newest,
                commit,
                noise and f"±{noise.deviation:.1%}",
                noise and f"{noise.minimum_detectable_change:.1%}",
            )
        )
    columns = (
        "series",
        *(["runner class"] if has_runner_column else []),
        "points",
        "failed",
        "history",
        "newest",
        "at commit",
        "noise",
        "detectable",
    )
    title = "values of other tools" if has_metrics else keys[0].metric
    if runner_classes:
        title += f" on {', '.join(runner_classes)}"
    left_column_count = 2 if has_runner_column else 1
    return make_table(columns, rows, title=title, left_column_count=left_column_count)


def _newest_value(series: Series) -> tuple[str | None, str | None]:
    """The newest value of a series as text, and the short SHA of its commit."""
    points = [point for point in series.points if point.value is not None]
    if not points:
        return None, None
    newest = points[-1]
    # A newer server may have metrics that this version does not know.
    if is_metric(series.key.metric) and newest.value is not None:
        return series.key.definition.format(newest.value), newest.commit.short_sha
    return f"{newest.value:g}", newest.commit.short_sha


def alert_tables(alerts: Sequence[Alert], deliveries: Sequence[Delivery]) -> list[Table | str]:
    """One table each, if there are any."""
    of_alerts: list[tuple[object, ...]] = []
    for alert in alerts:
        state = str(alert.state)
        if state == "acknowledged":
            state = f"{state} by {alert.acknowledged_by}"
        of_alerts.append(
            (
                alert.alert_id,
                alert.project,
                ", ".join(alert.rules),
                alert.severity,
                state,
                f"{alert.fired_at:%Y-%m-%d %H:%M}",
                alert.message.title,
            )
        )
    of_deliveries = [
        (
            delivery.alert.project,
            delivery.alert.message.title,
            delivery.event,
            delivery.channel,
            delivery.state,
            delivery.attempt_count,
            f"{delivery.sent_at or delivery.next_attempt_at:%Y-%m-%d %H:%M}",
            delivery.error,
        )
        for delivery in deliveries
    ]
    columns = ("project", "what", "event", "channel", "state", "attempts", "next or last", "why")
    alert_table = make_table(
        ("alert", "project", "rules", "severity", "state", "since", "what"), of_alerts
    )
    delivery_table = make_table(columns, of_deliveries)
    return [table for table in (alert_table, delivery_table) if table.row_count]


def next_steps(judged: PullRequestJudgement) -> Iterator[str]:
    """Say how to get what is missing, line by line."""
    if judged.missing:
        yield f"required by [check], and missing: {', '.join(judged.missing)}"
    if any(case.evidence.claimed.is_time_missing for case in judged.cases):
        yield "time not measured: use a machine with a GPU, or comment `/roofwatch run`"


def changed_sizes(judged: PullRequestJudgement) -> list[dict[str, Any]]:
    """The size of each timed change and of what is undecided, regressions first, for programs."""
    order = [Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE]
    changed = [
        case
        for case in judged.cases
        if case.relative_interval is not None and case.verdict in order
    ]
    changed.sort(key=lambda case: order.index(case.verdict))
    return [
        {
            "case_id": case.case_id,
            "implementation": case.implementation,
            "verdict": case.verdict,
            "relative_change": case.relative_change,
            "relative_interval": case.relative_interval,
            "base_ns": case.base,
            "head_ns": case.head,
        }
        for case in changed
    ]


def claim_counts(judged: PullRequestJudgement) -> dict[str, int]:
    """Count the cases by what may be claimed about them."""
    return dict(Counter(case.evidence.claimed.text for case in judged.cases).most_common())


def verdict_line(judged: PullRequestJudgement) -> str:
    """The overall verdict with the numbers of the pull-request comment."""
    smallest = judged.detectable_change
    if smallest is None:
        power = ""
    else:
        power = f"; detects slowdowns ≥ {smallest:.1%} with 80% power"
    if judged.noise_floor is None:
        floor = ""
    else:
        floor = f". {judged.noise_floor.remark}"
    return f"{judged.verdict}: {summary_line(judged)}{power}{floor}"


def _triage(triage: Triage) -> str:
    if triage.person is None:
        return ""
    return triage.decided_by


def submission_lines(result: Result) -> Iterator[str]:
    """The verdict on a candidate and its evidence, line by line."""
    yield f"{result.verdict}: {result.reason}"
    for evidence in result.evidence:
        yield f"  {evidence['test']} {evidence['case']}: {evidence['message']}"
    if result.evidence:
        yield f"  repeat: {result.evidence[0]['repeat']}"
    if result.effect is not None:
        low, high = result.effect["interval"]
        base = format_ns(result.effect["base_ns"])
        candidate = format_ns(result.effect["candidate_ns"])
        yield (
            f"speedup {result.effect['ratio']:.3f} [{low:.3f}, {high:.3f}] over "
            f"{result.spec['against']}, {base} -> {candidate}"
        )
    if result.roofline is not None:
        yield (
            f"roofline: {result.roofline['utilisation']:.0%} of the {result.roofline['bound']} roof"
        )
    missing = result.isolation.get("missing", {})
    if missing:
        yield "isolation lacks " + "; ".join(f"{layer} ({why})" for layer, why in missing.items())
    yield f"{result.budget['submissions_left']} confirmations of this spec left"


def submission_table(entries: Iterable[Mapping[str, Any]]) -> Table:
    rows: list[tuple[object, ...]] = []
    for entry in entries:
        speedup = None
        if entry["ratio"] is not None:
            speedup = f"{entry['ratio']:.3f}"
        rows.append(
            (
                entry["at"],
                entry["kernel"],
                entry["file"],
                # Twelve digits of a SHA-256 tell the files of one log apart.
                entry["hash"][:12],
                (entry["parent"] or "")[:12],
                entry["verdict"],
                speedup,
                entry["reason"],
            )
        )
    columns = ("submitted", "kernel", "file", "hash", "parent", "verdict", "speedup", "reason")
    return make_table(columns, rows, title="Submissions")
