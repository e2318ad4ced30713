"""Tables of what is stored: runs, series, regressions, acceptances and alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from roofwatch.ci.claims.decide import claim_of_regression
from roofwatch.ci.messages import visible
from roofwatch.console.terminal import make_table, sparkline
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.alert import Alert, Delivery
from roofwatch.model.history import Regression, Series
from roofwatch.model.metrics import is_metric
from roofwatch.model.stored_results import RunSummary
from roofwatch.model.triage import Triage, TriagedRegression
from roofwatch.tables.cells import verdict

if TYPE_CHECKING:  # they need numpy, and comparing files does not
    from roofwatch.ci.changepoint.detect import SeriesNoise
    from roofwatch.ci.history.recent import KernelSuspicion

_SPARKLINE_POINTS = 20


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


def _triage(triage: Triage) -> str:
    if triage.person is None:
        return ""
    return triage.decided_by
