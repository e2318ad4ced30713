"""What rules report of regressions and of silent runners at a time, what they cover, and who owns
it. Pure.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import urlencode
from uuid import UUID

from codeowners import CodeOwners

from roofwatch.ci.alerts.rules import (
    KernelOwners,
    MetricRule,
    RegressionRule,
    Rule,
    SilenceRule,
    matches,
)
from roofwatch.ci.claims.decide import claim_of_regression
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.history.summary import FalseAlarms, count_false_alarms, share_real
from roofwatch.ci.messages import count_of
from roofwatch.model.alert import AlertCondition, Fact, Link, Message, ReportedValue
from roofwatch.model.history import (
    Cause,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
)
from roofwatch.model.metrics import METRICS, Layer
from roofwatch.model.stored_results import CaseOption, MeasuredCase, RunnerRun
from roofwatch.model.triage import TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in this order."""
OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)
MAX_CHANGES = 20
_MAX_SUSPECTS = 3
_MAX_NAMES = 10
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
class Ownership:
    table: Sequence[KernelOwners] = ()
    codeowners: CodeOwners | None = None
    source_paths: Mapping[str, str] = field(default_factory=dict)
    """By kernel, from the root of the repository."""

    def owners_of(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Return the owners of some kernels, each once, in the order of the kernels."""
        owners = [owner for kernel in kernels for owner in self._of_kernel(kernel)]
        return tuple(dict.fromkeys(owners))

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        if path is None or self.codeowners is None:
            return []
        return [owner for _, owner in self.codeowners.of(path)]


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file as GitHub does: invalid lines are skipped, and a pattern without
    owners has none.
    """
    valid = []
    for line in text.splitlines():
        rule, _, _ = line.partition("#")
        pattern, *owners = rule.split() or [""]
        # GitHub supports no negation, escapes or character classes
        is_supported = set(pattern).isdisjoint("!\\[]")
        if is_supported and all(map(OWNER.fullmatch, owners)):
            valid.append(" ".join([pattern, *owners]))
    return CodeOwners("\n".join(valid))


@dataclass(frozen=True)
class ProjectState:
    """What rules are evaluated on."""

    project: str
    regressions: Sequence[TriagedRegression] = ()
    runs: Mapping[str, Sequence[RunnerRun]] = field(default_factory=dict)
    """By runner class, the newest commit last."""
    results: Callable[[UUID], Sequence[MeasuredCase]] = field(default=lambda _: ())
    """Reads the measurements of a run."""
    imported: Callable[[UUID], Sequence[tuple[str, str, str, float]]] = field(default=lambda _: ())
    """Reads the values that a run imported: case id, implementation, metric and value."""
    cases: Mapping[str, CaseOption] = field(default_factory=dict)
    """By case id, those of recent runs."""
    commits: Mapping[str, str | None] = field(default_factory=dict)
    """The sha of each tag or commit that rules compare with."""
    ownership: Ownership = field(default_factory=Ownership)
    dashboard_url: str | None = None

    @property
    def devices(self) -> dict[str, list[str]]:
        """Runner classes of each device."""
        classes: dict[str, list[str]] = defaultdict(list)
        for runner_class in self.runs:
            classes[self.device_of(runner_class)].append(runner_class)
        return dict(classes)

    def device_of(self, runner_class: str) -> str:
        runs = self.runs.get(runner_class)
        if not runs:
            return runner_class
        return runs[-1].device_name

    def costs_of(self, case_id: str) -> Mapping[str, float | None]:
        """Work of one launch by the metric of its rate, from the newest run: another cost model
        changes no rate.
        """
        case = self.cases.get(case_id)
        if case is None:
            return {}
        return case.costs

    def covers(self, rule: RegressionRule | MetricRule, case_id: str) -> bool:
        kernel = kernel_of(case_id)
        case = self.cases.get(case_id)
        if case is None:  # no recent run has it, so its family and tags are unknown
            return rule.covers_case(kernel, "", ())
        return rule.covers_case(kernel, case.family, case.tags)

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """Link to a view of the dashboard, if its address is configured."""
        if self.dashboard_url is None:
            return ()
        parameters = urlencode({"project": self.project, **query})
        url = f"{self.dashboard_url.rstrip('/')}/{view}?{parameters}"
        return (Link(name, url),)


def kernel_of(case_id: str) -> str:
    return case_id.partition("/")[0]


# --- regressions


def regression_conditions(
    rule: RegressionRule | MetricRule, state: ProjectState, now: datetime
) -> list[AlertCondition]:
    """Report the regressions that a rule covers."""
    oldest = now - timedelta(days=rule.within_days)
    false_alarms = count_false_alarms(state.regressions)
    conditions = []
    for triaged in state.regressions:
        regression = triaged.regression
        if why_not_alerting(triaged) is not None:
            continue
        if not any(_is_reported(rule, point, state) for point in regression.change_points):
            continue
        conditions.append(
            AlertCondition(
                rule=rule.name,
                cause=triaged.regression_id,
                severity=rule.severity,
                message=_regression_message(triaged, state, false_alarms),
                regression_id=triaged.triage.regression_id,
                is_acknowledged=triaged.triage.state is TriageState.ACKNOWLEDGED,
                is_past=regression.commit.committed_at < oldest,
            )
        )
    return conditions


def why_not_alerting(triaged: TriagedRegression) -> str | None:
    """Return why a regression raises no alert; None if it does."""
    regression = triaged.regression
    triage = triaged.triage
    if regression.verdict is Verdict.IMPROVED:
        return "it improved"
    if regression.verdict is not Verdict.REGRESSED:
        return "the clock changed, the cycles did not"
    if regression.state is RegressionState.NO_LONGER_FOUND:
        return regression.ended or "no longer found"
    # before triage: a regression that is gone needs no decision
    if regression.recovered_at is not None:
        recovered = regression.recovered_at
        return f"recovered at {recovered.short_sha} ({recovered.subject}, {recovered.author})"
    if triage.state not in {TriageState.NEW, TriageState.ACKNOWLEDGED}:
        return f"{triage.state} by {triage.person}: {triage.reason}"
    if regression.state is not RegressionState.OPEN:
        return "a new measurement did not confirm it"
    if not regression.is_alert:
        return "no longer certain enough"
    return None


def _is_reported(
    rule: RegressionRule | MetricRule, point: ChangePoint, state: ProjectState
) -> bool:
    """Return whether a rule covers a series that changed enough; failures and machine code count
    for a regression.
    """
    series = point.series
    change = point.relative_change
    if not state.covers(rule, series.case_id):
        return False
    if not rule.covers_runner(series.runner_class):
        return False
    if isinstance(rule, MetricRule):
        # a rate falls when the time grows, and history analyses times only
        is_rate = rule.is_floor and rule.metric in METRICS
        analysed_metric = "median_ns" if is_rate else rule.metric
        if change is None or series.metric != analysed_metric:
            return False
        ratio = 1 + change
        if is_rate:
            ratio = 1 / ratio
        return rule.is_beyond(ratio)
    if series.definition.layer is not Layer.MEASURED or is_outcome(point):
        return True
    if series.metric == "host_ns":  # only explains a time
        return False
    return change is None or abs(change) >= rule.min_relative_change


def _regression_message(
    triaged: TriagedRegression, state: ProjectState, false_alarms: FalseAlarms
) -> Message:
    regression = triaged.regression
    points = regression.change_points
    base, head = regression.base, regression.commit
    series = points[0].series
    kernels = tuple(dict.fromkeys(point.series.kernel for point in points))
    runner_classes = [point.series.runner_class for point in points if point.series.runner_class]
    devices = tuple(dict.fromkeys(map(state.device_of, runner_classes)))
    title = regression.summary
    unnamed = [device for device in devices if device not in title]
    if unnamed:
        title += f" on {', '.join(unnamed)}"
    series_query = {"kernel": series.kernel}
    for name, value in asdict(series).items():
        if value:
            series_query[_QUERY_NAMES.get(name, name)] = value
    changes = [change for point in points for change in _changes(point, state)]
    return Message(
        title=title,
        facts=tuple(_regression_facts(regression, false_alarms)),
        owners=state.ownership.owners_of(kernels),
        links=(
            *state.link("Regression", "regression", regression=triaged.regression_id),
            *state.link("Trend", "trends", **series_query),
            *state.link("Compare", "compare", base=base.sha, head=head.sha),
        ),
        kernels=kernels,
        devices=devices,
        base_sha=base.sha,
        head_sha=head.sha,
        changes=tuple(changes[:MAX_CHANGES]),
    )


def _regression_facts(regression: Regression, false_alarms: FalseAlarms) -> Iterator[Fact]:
    base, head = regression.base, regression.commit
    worst = regression.change_points[0]
    yield Fact("Since", regression.range_text if regression.is_range else commit_text(head))
    yield Fact("Range", f"{base.short_sha}..{head.short_sha}")
    yield Fact("Claim", claim_of_regression(regression))
    yield Fact("Evidence", f"{worst.series.label}: {worst.evidence}")
    suspects = [suspect for suspect in regression.suspects if suspect.cause is not Cause.UNKNOWN]
    for suspect in suspects[:_MAX_SUSPECTS]:
        yield Fact(f"Suspect: {suspect.cause} ({suspect.weight:.0%})", suspect.sentence)
    if regression.family:
        yield Fact("Series", regression.family)
    if regression.is_confirmed:
        yield Fact("Confirmed", "yes")
    else:
        yield Fact("Confirmed", "not by a paired measurement yet")
        yield Fact("Probability that it is real", _share_real(false_alarms))


def _share_real(false_alarms: FalseAlarms) -> str:
    share = share_real(false_alarms.true_count, false_alarms.decided_count)
    return (
        f"{share:.0%}; {false_alarms.true_count} of "
        f"{count_of(false_alarms.decided_count, 'earlier alert')} were real"
    )


def _changes(point: ChangePoint, state: ProjectState) -> list[ReportedValue]:
    """Return a change of a series and, if it is a time, the same as rates."""
    changes = [change_of(point.series, point.before, point.after)]
    base_ns, head_ns = point.before, point.after
    if point.series.metric != "median_ns" or not base_ns or not head_ns:
        return changes
    for rate, cost in state.costs_of(point.series.case_id).items():
        if cost:
            base_per_s = cost / base_ns * 1e9
            head_per_s = cost / head_ns * 1e9
            rate_series = replace(point.series, metric=rate)
            changes.append(change_of(rate_series, base_per_s, head_per_s))
    return changes


def change_of(series: SeriesKey, base: float | None, head: float | None) -> ReportedValue:
    relative_change = None
    if base and head is not None:
        relative_change = (head - base) / base
    return ReportedValue(
        kernel=series.kernel,
        case_id=series.case_id,
        implementation=series.implementation,
        runner_class=series.runner_class,
        metric=series.metric,
        unit=series.definition.unit,
        before=base,
        after=head,
        relative_change=relative_change,
    )


def commit_text(commit: CommitRef) -> str:
    date = f"{commit.committed_at:%Y-%m-%d}"
    return f"{commit.short_sha} {commit.subject} ({commit.author}, {date})"


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
    last_at = ordered[-1]
    all_gaps_s = [(following - time).total_seconds() for time, following in pairwise(ordered)]
    # two results may have the same time
    gaps_s = [gap_s for gap_s in all_gaps_s if gap_s > 0][-_MAX_INTERVALS:]
    if len(gaps_s) < _MIN_INTERVALS:
        return ReportInterval(last_at, None, None)
    longest_s = statistics.quantiles(gaps_s, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=_SILENT_AFTER * longest_s), _MIN_SILENCE)
    return ReportInterval(
        last_at=last_at,
        usual_gap=timedelta(seconds=statistics.median(gaps_s)),
        silent_from=last_at + allowed,
    )


def interval_of(
    state: ProjectState, runner_classes: Iterable[str], now: datetime
) -> ReportInterval | None:
    """Determine how often some runner classes together report, by their results until now; None
    without any.
    """
    all_times = [run.started_at for name in runner_classes for run in state.runs[name]]
    times = [time for time in all_times if time <= now]
    if not times:
        return None
    return report_interval(times)


def silence_conditions(
    rule: SilenceRule, state: ProjectState, now: datetime
) -> list[AlertCondition]:
    """Report the devices that are silent, and the patterns of the rule that no runner ever
    matched.
    """
    conditions = []
    for pattern in rule.runners:
        has_match = any(matches(name, [pattern]) for name in state.runs)
        # a new project has no runner yet
        if state.runs and not has_match:
            message = Message(f"no results from a runner that matches {pattern}, ever")
            conditions.append(_silence(rule, pattern, message))
    for device, classes in state.devices.items():
        interval = interval_of(state, classes, now)
        if interval is None or not any(map(rule.covers_runner, classes)):
            continue
        if rule.after_hours is not None:
            silent_from = interval.last_at + timedelta(hours=rule.after_hours)
            interval = replace(interval, silent_from=silent_from)
        if interval.silent_from is None or not interval.is_silent(now):
            continue
        oldest = now - timedelta(days=rule.within_days)
        message = _silence_message(state, device, interval, now)
        conditions.append(_silence(rule, device, message, is_past=interval.silent_from < oldest))
    return conditions


def _silence(
    rule: SilenceRule,
    name: str,
    message: Message,
    *,
    is_past: bool = False,
) -> AlertCondition:
    return AlertCondition(
        rule=rule.name,
        cause=f"silence\n{name}",
        severity=rule.severity,
        message=message,
        is_past=is_past,
    )


def _silence_message(
    state: ProjectState,
    device: str,
    interval: ReportInterval,
    now: datetime,
) -> Message:
    silent_for = _duration(now - interval.last_at)
    facts = [Fact("Last result", f"{interval.last_at:%Y-%m-%d %H:%M} UTC, {silent_for} ago")]
    if interval.usual_gap is not None:
        facts.append(Fact("Usual interval", _duration(interval.usual_gap)))
    return Message(
        title=f"no results from {device} for {silent_for}",
        facts=tuple(facts),
        links=state.link("Overview", ""),
        devices=(device,),
    )


def _duration(time: timedelta) -> str:
    hours = time.total_seconds() / 3_600
    if hours < 48:
        return f"{hours:.1f} hours"
    return f"{hours / 24:.1f} days"


# --- what a rule covers

Coverage = dict[str, dict[str, bool]]
"""Names of kernels and runners, and whether a rule covers each."""


def coverage(rule: Rule, state: ProjectState) -> Coverage:
    """Determine which runners and kernels a rule covers; a kernel needs a case that has the rule's
    metric.
    """
    runners: dict[str, bool] = {}
    for device, classes in state.devices.items():
        runners[device] = any(map(rule.covers_runner, classes))
    if isinstance(rule, SilenceRule):
        return {"runner": runners}
    kernels: dict[str, bool] = defaultdict(bool)
    for case_id, case in state.cases.items():
        has_metric = True
        if isinstance(rule, MetricRule):
            # a rate needs an amount of work; other metrics have no entry
            has_metric = bool(case.costs.get(rule.metric, 1))
        kernels[kernel_of(case_id)] |= has_metric and state.covers(rule, case_id)
    return {"kernel": dict(kernels), "runner": runners}


def is_idle(covered: Coverage) -> bool:
    """Return whether a rule can report nothing, although there are results."""
    return any(names and not any(names.values()) for names in covered.values())


def coverage_text(covered: Coverage) -> str:
    """Write how many kernels and runners a rule covers, with all names if it is none."""
    parts = []
    for kind, names in covered.items():
        part = f"{sum(names.values())} of {count_of(len(names), kind)}"
        if not any(names.values()):
            part += f": {', '.join(sorted(names)[:_MAX_NAMES]) or 'no results yet'}"
        parts.append(part)
    return f"matches {', '.join(parts)}"
