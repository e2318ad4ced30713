"""What each rule has to report now: regressions, levels beyond a limit, and runners that went silent. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import urlencode
from uuid import UUID

from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.alerts.rules import AccuracyRule, FloorRule, LevelRule, LimitRule, RegressionRule, SilenceRule
from roofwatch.ci.history.finding import is_outcome
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer, metric
from roofwatch.db.alerts.values import AlertCondition, CaseError, Fact, Link, Message
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.queries.run_values import MeasuredCase
from roofwatch.db.values import Regression, RegressionState, Verdict

_ALERTING_TRIAGE = frozenset({TriageState.NEW, TriageState.ACKNOWLEDGED})
_LISTED = 3
"""Suspects, and series as evidence, in a message."""
_LISTED_CASES = 5
_MIN_GAPS = 4
"""Fewer intervals between results say nothing about what is usual."""
_MAX_GAPS = 50
"""Only the newest count: a runner that became nightly is not measured by its hourly past."""
_SILENT_AFTER = 3.0
"""Times the usual longest interval. A runner that rests at weekends has these among its intervals."""
_MIN_SILENCE = timedelta(hours=1)
"""Runs of one job follow each other within minutes: their intervals say nothing."""


@dataclass(frozen=True)
class MessageContext:
    """What messages about a project are written with."""

    project: str
    now: datetime
    ownership: Ownership = field(default_factory=Ownership)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of cases, from the newest runs."""
    dashboard_url: str | None = None

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """A link to a view of the dashboard; none if its address is not known."""
        if self.dashboard_url is None:
            return ()
        chosen = urlencode({"project": self.project, **query})
        return (Link(name, f"{self.dashboard_url.rstrip('/')}/{view}?{chosen}"),)

    def is_past(self, at: datetime, within_days: float) -> bool:
        return at < self.now - timedelta(days=within_days)


# --- regressions


def regression_conditions(
    rule: RegressionRule, regressions: Iterable[tuple[Regression, Triage]], context: MessageContext
) -> list[AlertCondition]:
    """The regressions that a rule reports."""
    return [
        AlertCondition(
            rule=rule.name,
            cause=str(triage.regression_id),
            severity=rule.severity,
            message=_regression_message(regression, triage.regression_id, context),
            regression_id=triage.regression_id,
            is_acknowledged=triage.state is TriageState.ACKNOWLEDGED,
            is_past=context.is_past(regression.commit.committed_at, rule.within_days),
        )
        for regression, triage in regressions
        if why_not_alerting(regression, triage) is None and _is_covered(rule, regression, context)
    ]


def why_not_alerting(regression: Regression, triage: Triage) -> str | None:
    """Why nobody is alerted of a regression; None if somebody may be."""
    if regression.verdict is not Verdict.REGRESSED:
        return "it got better" if regression.verdict is Verdict.IMPROVED else "the clock moved, the cycles did not"
    if regression.recovered_at is not None:
        recovered = regression.recovered_at
        return f"back where it was at {recovered.short_sha} ({recovered.subject}, {recovered.author})"
    if triage.state not in _ALERTING_TRIAGE:
        return f"{triage.state}, says {triage.person}: {triage.reason}"
    if regression.state is not RegressionState.OPEN:
        return "measured again, and not there"
    return None if regression.is_alert else "no longer sure enough to call somebody"


def _is_covered(rule: RegressionRule, regression: Regression, context: MessageContext) -> bool:
    """Whether a rule covers a series of the regression that moved far enough. A series without a size, as machine code
    is, and one that ceased to work count whatever they are.
    """
    for point in regression.change_points:
        series = point.series
        tags = context.tags.get(series.case_id, frozenset())
        if not rule.covers_case(series.kernel, tags) or not rule.covers_runner(series.runner_class):
            continue
        if series.definition.layer is not Layer.MEASURED or is_outcome(point):
            return True
        size = math.inf if point.relative_change is None else abs(point.relative_change)
        # the host's time only explains a time, and makes none larger
        if series.metric != "host_ns" and size >= rule.min_relative_change:
            return True
    return False


def _regression_message(regression: Regression, regression_id: UUID, context: MessageContext) -> Message:
    worst, head = regression.change_points[0], regression.commit
    base, series = worst.previous_commit, worst.series
    facts = [
        Fact("Since", f"{head.short_sha} {head.subject} ({head.author}, {head.committed_at:%Y-%m-%d})"),
        Fact("Range", f"{base.short_sha}..{head.short_sha}"),
        *(Fact("Evidence", f"{one.series.label}: {one.evidence}") for one in regression.change_points[:_LISTED]),
        *(Fact(f"Suspect: {one.cause} ({one.weight:.0%})", one.sentence) for one in regression.suspects[:_LISTED]),
    ]
    if regression.family:
        facts.append(Fact("Series", regression.family))
    facts.append(Fact("Sure", "confirmed" if regression.is_confirmed else "not confirmed by a paired measurement yet"))
    shown = {
        "kernel": series.kernel,
        "metric": series.metric,
        "case": series.case_id,
        "implementation": series.implementation,
        "runner": series.runner_class,
        "target": series.target,
        "function": series.function,
        "tensor": series.tensor,
    }
    return Message(
        title=regression.summary,
        facts=tuple(facts),
        owners=context.ownership.owners_of(dict.fromkeys(one.series.kernel for one in regression.change_points)),
        links=(
            *context.link("Regression", "regression", regression=str(regression_id)),
            *context.link("Trend", "trends", **{name: value for name, value in shown.items() if value}),
            *context.link("Compare", "compare", base=base.sha, head=worst.commit.sha),
        ),
    )


# --- levels


@dataclass(frozen=True)
class RunLevels:
    """What one run of a runner measured."""

    cases: tuple[MeasuredCase, ...]
    errors: tuple[CaseError, ...] = ()


_Measured = tuple[MeasuredCase | CaseError, float]


@dataclass(frozen=True)
class _Violation:
    """A case and implementation beyond its limit."""

    case: MeasuredCase | CaseError
    ratio: float
    """How far; above 1, the larger the worse."""
    sentence: str


def level_conditions(
    rule: LevelRule, runs_by_runner: Mapping[str, Sequence[RunLevels]], context: MessageContext
) -> list[AlertCondition]:
    """The kernels whose level is beyond a rule's limit; all cases of one kernel on one runner are one cause.

    The median of the newest runs counts, so one bad run alerts nobody.

    Args:
        rule: The limit, and which kernels and runners it covers.
        runs_by_runner: The newest runs of each runner class, in the order of the branch.
        context: What messages are written with.
    """
    conditions = []
    for runner_class, runs in runs_by_runner.items():
        if not rule.covers_runner(runner_class):
            continue
        by_kernel: dict[str, list[_Violation]] = defaultdict(list)
        for history in _histories(rule, runs, context):
            violation = _violation(rule, history)
            if violation is not None:
                by_kernel[violation.case.kernel].append(violation)
        conditions += [_level_condition(rule, kernel, runner_class, by_kernel[kernel], context) for kernel in by_kernel]
    return conditions


def runs_needed(rule: LevelRule) -> int:
    """How many of a runner's newest runs a rule reads."""
    return rule.runs + (rule.against_runs if isinstance(rule, AccuracyRule) else 0)


def _histories(rule: LevelRule, runs: Sequence[RunLevels], context: MessageContext) -> Iterable[list[_Measured]]:
    """The values of each case and implementation that a rule covers, oldest first."""
    histories: dict[tuple[str, str], list[_Measured]] = defaultdict(list)
    for run in runs:
        for case in run.errors if isinstance(rule, AccuracyRule) else run.cases:
            value = _value(rule, case)
            if value is not None and rule.covers_case(case.kernel, context.tags.get(case.case_id, frozenset())):
                histories[case.case_id, case.implementation].append((case, value))
    return histories.values()


def _value(rule: LevelRule, case: MeasuredCase | CaseError) -> float | None:
    if isinstance(case, CaseError):
        return case.rmse_ratio
    if case.outcome is not Outcome.OK or not case.median_ns:
        return None
    if isinstance(rule, FloorRule):
        work = case.flop_count if rule.metric == "flop_per_s" else case.memory_bytes
        return work / (case.median_ns * 1e-9) if work else None
    value: float | None = getattr(case, rule.metric)
    return value


def _violation(rule: LevelRule, history: Sequence[_Measured]) -> _Violation | None:
    case, values = history[-1][0], [value for _, value in history]
    newest = statistics.median(values[-rule.runs :])
    shown = metric(rule.metric).format
    if isinstance(rule, AccuracyRule):
        older = values[-rule.runs - rule.against_runs : -rule.runs]
        usual = statistics.median(older) if older else 0.0
        is_violated, words = 0 < usual * (1 + rule.grown_by) < newest, f"{shown(usual)} to {shown(newest)}"
        ratio = newest / usual if usual else 1.0
    elif isinstance(rule, LimitRule):
        is_violated, words = newest > rule.limit, f"{shown(newest)}, allowed {shown(rule.limit)}"
        ratio = newest / rule.limit
    else:
        is_violated, words = newest < rule.least, f"{shown(newest)}, wanted {shown(rule.least)}"
        ratio = rule.least / max(newest, 1e-300)
    return _Violation(case, ratio, f"{case.case_id} · {case.implementation}: {words}") if is_violated else None


def _level_condition(
    rule: LevelRule, kernel: str, runner_class: str, violations: Iterable[_Violation], context: MessageContext
) -> AlertCondition:
    worst_first = sorted(violations, key=lambda one: (-one.ratio, one.case.case_id, one.case.implementation))
    count = len(worst_first)
    facts = [Fact("Runner", runner_class), Fact("Judged by", f"the median of the newest {rule.runs} runs")]
    facts += [Fact("Case", one.sentence) for one in worst_first[:_LISTED_CASES]]
    if count > _LISTED_CASES:
        facts.append(Fact("And", f"{count - _LISTED_CASES} more cases"))
    cases = "1 case" if count == 1 else f"{count} cases"
    return AlertCondition(
        rule=rule.name,
        cause=f"{kernel}\n{runner_class}",
        severity=rule.severity,
        message=Message(
            title=f"{kernel}: {_what(rule)} in {cases} on {runner_class}",
            facts=tuple(facts),
            owners=context.ownership.owners_of([kernel]),
            links=context.link("Trend", "trends", kernel=kernel, runner=runner_class),
        ),
    )


def _what(rule: LevelRule) -> str:
    known = metric(rule.metric)
    if isinstance(rule, AccuracyRule):
        return f"the error has grown by more than {rule.grown_by:.0%}"
    if isinstance(rule, LimitRule):
        return f"{known.title} above its limit of {known.format(rule.limit)}"
    if isinstance(rule, FloorRule):
        return f"below its floor of {known.format(rule.floor)}"
    return f"below its objective of {known.format(rule.objective)} utilisation"


# --- silent runners


@dataclass(frozen=True)
class ReportInterval:
    """How often a runner reports results."""

    last_at: datetime
    usual_gap: timedelta | None
    """Median between two results; None if there are too few."""
    silent_from: datetime | None
    """When it counts as silent if nothing comes; None if there are too few results to know."""

    def is_silent(self, now: datetime) -> bool:
        return self.silent_from is not None and now >= self.silent_from


def report_interval(times: Iterable[datetime]) -> ReportInterval:
    """How often a runner reports, by the times of its results in any order; there must be one at least."""
    ordered = sorted(times)
    gaps = [(after - before).total_seconds() for before, after in pairwise(ordered)]
    gaps = [gap for gap in gaps if gap > 0][-_MAX_GAPS:]
    if len(gaps) < _MIN_GAPS:
        return ReportInterval(ordered[-1], None, None)
    longest = statistics.quantiles(gaps, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=_SILENT_AFTER * longest), _MIN_SILENCE)
    return ReportInterval(ordered[-1], timedelta(seconds=statistics.median(gaps)), ordered[-1] + allowed)


def silence_conditions(
    rule: SilenceRule, times_by_runner: Mapping[str, Sequence[datetime]], context: MessageContext
) -> list[AlertCondition]:
    """The runners that have gone silent, given the times of each one's results."""
    conditions = []
    for runner_class, times in times_by_runner.items():
        interval = report_interval(times)
        silent_from = _silent_from(rule, interval)
        if not rule.covers_runner(runner_class) or silent_from is None or context.now < silent_from:
            continue
        since = _duration(context.now - interval.last_at)
        facts = [Fact("Last result", f"{interval.last_at:%Y-%m-%d %H:%M} UTC, {since} ago")]
        if interval.usual_gap is not None:
            facts.append(Fact("Usual interval", _duration(interval.usual_gap)))
        links = context.link("Overview", "")
        condition = AlertCondition(
            rule=rule.name,
            cause=runner_class,
            severity=rule.severity,
            message=Message(title=f"no results from {runner_class} for {since}", facts=tuple(facts), links=links),
            is_past=context.is_past(silent_from, rule.within_days),
        )
        conditions.append(condition)
    return conditions


def _silent_from(rule: SilenceRule, interval: ReportInterval) -> datetime | None:
    if rule.after_hours is None and rule.times_usual is None:
        return interval.silent_from
    ends = []
    if rule.after_hours is not None:
        ends.append(interval.last_at + timedelta(hours=rule.after_hours))
    if rule.times_usual is not None and interval.usual_gap is not None:
        ends.append(interval.last_at + rule.times_usual * interval.usual_gap)
    return min(ends, default=None)


def _duration(time: timedelta) -> str:
    hours = time.total_seconds() / 3_600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
