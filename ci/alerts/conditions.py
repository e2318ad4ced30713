"""What each rule reports now: regressions, levels beyond a limit, and silent runners. Pure."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import urlencode
from uuid import UUID

from roofwatch.ci.alerts.rules import LevelRule, Ownership, RegressionRule, SilenceRule
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.report.markdown import count_of
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer, metric
from roofwatch.db.alerts.values import AlertCondition, Fact, Link, Message
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.queries.results import MeasuredCase
from roofwatch.db.values import Regression, RegressionState, Verdict

_MAX_EVIDENCE = 3
"""Suspects, and series, in a message."""
_MAX_CASES = 5
_QUERY_NAMES = {"case_id": "case", "runner_class": "runner"}
"""In links to the dashboard, if they differ from those of a series."""
_MIN_INTERVALS = 4
_MAX_INTERVALS = 50
"""Only the newest intervals count, since a runner may change its schedule."""
_SILENT_AFTER = 3.0
"""Times the 90th percentile of the intervals."""
_MIN_SILENCE = timedelta(hours=1)
"""Runs of one job follow each other within minutes."""


@dataclass(frozen=True)
class MessageContext:
    """What messages about a project need."""

    project: str
    now: datetime
    ownership: Ownership = field(default_factory=Ownership)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Tags of cases, from the newest runs."""
    dashboard_url: str | None = None

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """Link to a view of the dashboard, if its address is configured."""
        if self.dashboard_url is None:
            return ()
        return (Link(name, f"{self.dashboard_url.rstrip('/')}/{view}?{urlencode({'project': self.project, **query})}"),)

    def is_past(self, at: datetime, within_days: float) -> bool:
        return at < self.now - timedelta(days=within_days)


# --- regressions


def regression_conditions(
    rule: RegressionRule, regressions: Iterable[TriagedRegression], context: MessageContext
) -> list[AlertCondition]:
    """Report the regressions that a rule covers."""
    return [
        AlertCondition(
            rule=rule.name,
            cause=one.regression_id,
            severity=rule.severity,
            message=_regression_message(one.regression, one.triage.regression_id, context),
            regression_id=one.triage.regression_id,
            is_acknowledged=one.triage.state is TriageState.ACKNOWLEDGED,
            is_past=context.is_past(one.regression.commit.committed_at, rule.within_days),
        )
        for one in regressions
        if why_not_alerting(one) is None and _is_covered(rule, one.regression, context)
    ]


def why_not_alerting(one: TriagedRegression) -> str | None:
    """Return why a regression raises no alert; None if it does."""
    regression, triage = one.regression, one.triage
    if regression.verdict is not Verdict.REGRESSED:
        return "it improved" if regression.verdict is Verdict.IMPROVED else "the clock changed, the cycles did not"
    if regression.recovered_at is not None:
        recovered = regression.recovered_at
        return f"recovered at {recovered.short_sha} ({recovered.subject}, {recovered.author})"
    if triage.state not in {TriageState.NEW, TriageState.ACKNOWLEDGED}:
        return f"{triage.state} by {triage.person}: {triage.reason}"
    if regression.state is not RegressionState.OPEN:
        return "a new measurement did not confirm it"
    return None if regression.is_alert else "no longer certain enough"


def _is_covered(rule: RegressionRule, regression: Regression, context: MessageContext) -> bool:
    """Return whether a rule covers a series that changed enough; failures and machine code always count."""
    for point in regression.change_points:
        series = point.series
        tags = context.tags.get(series.case_id, frozenset())
        if not rule.covers_case(series.kernel, tags) or not rule.covers_runner(series.runner_class):
            continue
        if series.definition.layer is not Layer.MEASURED or is_outcome(point):
            return True
        change = math.inf if point.relative_change is None else abs(point.relative_change)
        if series.metric != "host_ns" and change >= rule.min_relative_change:  # host time only explains a time
            return True
    return False


def _regression_message(regression: Regression, regression_id: UUID, context: MessageContext) -> Message:
    worst, head = regression.change_points[0], regression.commit
    base, series = worst.previous_commit, worst.series
    facts = [
        Fact("Since", f"{head.short_sha} {head.subject} ({head.author}, {head.committed_at:%Y-%m-%d})"),
        Fact("Range", f"{base.short_sha}..{head.short_sha}"),
        *(Fact("Evidence", f"{one.series.label}: {one.evidence}") for one in regression.change_points[:_MAX_EVIDENCE]),
        *(
            Fact(f"Suspect: {one.cause} ({one.weight:.0%})", one.sentence)
            for one in regression.suspects[:_MAX_EVIDENCE]
        ),
    ]
    if regression.family:
        facts.append(Fact("Series", regression.family))
    facts.append(Fact("Confirmed", "yes" if regression.is_confirmed else "not by a paired measurement yet"))
    parts = ("kernel", "metric", "case_id", "implementation", "runner_class", "target", "function", "tensor")
    chosen = {_QUERY_NAMES.get(part, part): value for part in parts if (value := getattr(series, part))}
    return Message(
        title=regression.summary,
        facts=tuple(facts),
        owners=context.ownership.owners_of(dict.fromkeys(one.series.kernel for one in regression.change_points)),
        links=(
            *context.link("Regression", "regression", regression=str(regression_id)),
            *context.link("Trend", "trends", **chosen),
            *context.link("Compare", "compare", base=base.sha, head=worst.commit.sha),
        ),
    )


# --- levels

Runs = Sequence[Sequence[MeasuredCase]]
"""The measurements of each run, oldest run first."""


def level_conditions(
    rule: LevelRule, runs_by_runner: Mapping[str, Runs], context: MessageContext
) -> list[AlertCondition]:
    """Report the kernels beyond a rule's limit; all cases of one kernel on one runner class are one alert.

    Args:
        rule: The limit, and which kernels and runners it covers.
        runs_by_runner: The newest runs of each runner class.
        context: What messages need.
    """
    side, write = "above" if rule.at_least is None else "below", metric(rule.metric).format
    conditions = []
    for runner_class in filter(rule.covers_runner, runs_by_runner):
        violations: dict[str, list[tuple[float, str]]] = defaultdict(list)
        values = _values(rule, runs_by_runner[runner_class], context)
        for (kernel, case_id, implementation), history in values.items():
            newest, limit = statistics.median(history[-rule.runs :]), _limit(rule, history)
            if limit and (newest > limit if rule.at_least is None else newest < limit):
                text = f"{case_id} · {implementation}: {write(newest)}, {side} the limit of {write(limit)}"
                violations[kernel].append((-abs(math.log(max(newest, 1e-300) / limit)), text))
        for kernel, found in violations.items():
            texts = [text for _, text in sorted(found)]  # the farthest from the limit first
            conditions.append(_level_condition(rule, kernel, runner_class, side, texts, context))
    return conditions


def runs_needed(rule: LevelRule) -> int:
    """Return how many of a runner's newest runs a rule reads."""
    return rule.runs + (0 if rule.grown_by is None else rule.against_runs)


def _values(rule: LevelRule, runs: Runs, context: MessageContext) -> dict[tuple[str, str, str], list[float]]:
    """Collect the values of each kernel, case and implementation that a rule covers, the oldest first."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for case in (case for run in runs for case in run):
        value = _value(rule.metric, case)
        if value is not None and rule.covers_case(case.kernel, context.tags.get(case.case_id, frozenset())):
            values[case.kernel, case.case_id, case.implementation].append(value)
    return values


def _value(name: str, case: MeasuredCase) -> float | None:
    if name == "rmse_ratio":
        return case.rmse_ratio if case.accuracy_outcome is Outcome.OK else None
    if case.outcome is not Outcome.OK or not case.median_ns:
        return None
    if name in {"flop_per_s", "memory_bytes_per_s"}:
        work = case.flop_count if name == "flop_per_s" else case.memory_bytes
        return work / (case.median_ns * 1e-9) if work else None
    value: float | None = getattr(case, name)
    return value


def _limit(rule: LevelRule, values: Sequence[float]) -> float | None:
    older = values[-rule.runs - rule.against_runs : -rule.runs]
    if rule.grown_by is not None:
        return statistics.median(older) * (1 + rule.grown_by) if older else None
    return rule.at_least or rule.at_most


def _level_condition(
    rule: LevelRule, kernel: str, runner_class: str, side: str, texts: Sequence[str], context: MessageContext
) -> AlertCondition:
    facts = [Fact("Runner", runner_class), Fact("Judged by", f"the median of the newest {rule.runs} runs")]
    facts += [Fact("Case", text) for text in texts[:_MAX_CASES]]
    if len(texts) > _MAX_CASES:
        facts.append(Fact("And", f"{len(texts) - _MAX_CASES} more cases"))
    title, limit = metric(rule.metric).title, _limit(rule, ())
    what = f"grew by more than {rule.grown_by:.0%}" if limit is None else f"{side} {metric(rule.metric).format(limit)}"
    message = Message(
        title=f"{kernel}: {title} {what} in {count_of(len(texts), 'case')} on {runner_class}",
        facts=tuple(facts),
        owners=context.ownership.owners_of([kernel]),
        links=context.link("Trend", "trends", kernel=kernel, runner=runner_class),
    )
    return AlertCondition(rule.name, f"{kernel}\n{runner_class}", rule.severity, message)


# --- silent runners


@dataclass(frozen=True)
class ReportInterval:
    """How often a runner reports results."""

    last_at: datetime
    usual_gap: timedelta | None
    """Median interval; None with too few results."""
    silent_from: datetime | None
    """When it counts as silent; None with too few results."""

    def is_silent(self, now: datetime) -> bool:
        return self.silent_from is not None and now >= self.silent_from


def report_interval(times: Iterable[datetime]) -> ReportInterval:
    """Determine how often a runner reports, by the times of its results; at least one."""
    ordered = sorted(times)
    gaps = [(after - before).total_seconds() for before, after in pairwise(ordered)]
    gaps = [gap for gap in gaps if gap > 0][-_MAX_INTERVALS:]
    if len(gaps) < _MIN_INTERVALS:
        return ReportInterval(ordered[-1], None, None)
    longest = statistics.quantiles(gaps, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=_SILENT_AFTER * longest), _MIN_SILENCE)
    return ReportInterval(ordered[-1], timedelta(seconds=statistics.median(gaps)), ordered[-1] + allowed)


def silence_conditions(
    rule: SilenceRule, times_by_runner: Mapping[str, Sequence[datetime]], context: MessageContext
) -> list[AlertCondition]:
    """Report the runners that are silent, given the times of their results."""
    conditions = []
    for runner_class, times in times_by_runner.items():
        interval = report_interval(times)
        silent_from = interval.silent_from
        if rule.after_hours is not None:
            silent_from = interval.last_at + timedelta(hours=rule.after_hours)
        if not rule.covers_runner(runner_class) or silent_from is None or context.now < silent_from:
            continue
        since = _duration(context.now - interval.last_at)
        facts = [Fact("Last result", f"{interval.last_at:%Y-%m-%d %H:%M} UTC, {since} ago")]
        if interval.usual_gap is not None:
            facts.append(Fact("Usual interval", _duration(interval.usual_gap)))
        message = Message(f"no results from {runner_class} for {since}", tuple(facts), (), context.link("Overview", ""))
        is_past = context.is_past(silent_from, rule.within_days)
        conditions.append(AlertCondition(rule.name, runner_class, rule.severity, message, is_past=is_past))
    return conditions


def _duration(time: timedelta) -> str:
    hours = time.total_seconds() / 3_600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
