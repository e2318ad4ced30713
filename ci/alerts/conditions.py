"""What each rule reports at a time: regressions, metrics beyond a limit, and silent runners. Pure."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import urlencode
from uuid import UUID

from roofwatch.ci.alerts.rules import MetricRule, Ownership, RegressionRule, Rule, SilenceRule, matches
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.report.markdown import count_of
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import METRICS, Layer
from roofwatch.db.alerts.values import AlertCondition, Change, Fact, Link, Message
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.queries.results import CaseFacts, MeasuredCase, RunnerRun
from roofwatch.db.values import (
    Cause,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
    Verdict,
    timing_of,
)

_MAX_SUSPECTS = 3
_MAX_CHANGES = 20
_QUERY_NAMES = {"case_id": "case", "runner_class": "runner"}
"""In links to the dashboard, if they differ from those of a series."""
_MAX_NAMES = 10
_MAX_OLDER_RUNS = 20
"""That the newest ones are compared with."""
_MIN_INTERVALS = 4
_MAX_INTERVALS = 50
"""Only the newest intervals count, since a runner may change its schedule."""
_SILENT_AFTER = 3.0
"""Times the 90th percentile of the intervals."""
_MIN_SILENCE = timedelta(hours=1)
"""Runs of one job follow each other within minutes."""


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
    cases: Mapping[str, CaseFacts] = field(default_factory=dict)
    """By case id, from the newest run of each runner class."""
    commits: Mapping[str, str | None] = field(default_factory=dict)
    """The sha of each tag or commit that rules compare with."""
    ownership: Ownership = field(default_factory=Ownership)
    dashboard_url: str | None = None

    @property
    def devices(self) -> dict[str, list[str]]:
        """Runner classes of each device."""
        found: dict[str, list[str]] = defaultdict(list)
        for runner_class, runs in self.runs.items():
            found[runs[-1].device_name].append(runner_class)
        return dict(found)

    def device_of(self, runner_class: str) -> str:
        runs = self.runs.get(runner_class)
        return runs[-1].device_name if runs else runner_class

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """Link to a view of the dashboard, if its address is configured."""
        if self.dashboard_url is None:
            return ()
        return (Link(name, f"{self.dashboard_url.rstrip('/')}/{view}?{urlencode({'project': self.project, **query})}"),)


_UNKNOWN_CASE = CaseFacts("", frozenset(), {})


def conditions_at(rule: Rule, state: ProjectState, now: datetime) -> list[AlertCondition]:
    """Return what a rule reports at a time; later results and regressions are ignored."""
    if isinstance(rule, SilenceRule):
        return silence_conditions(rule, state, now)
    if isinstance(rule, MetricRule) and rule.against != "change":
        return metric_conditions(rule, state, now)
    return regression_conditions(rule, state, now)


# --- regressions


def regression_conditions(
    rule: RegressionRule | MetricRule, state: ProjectState, now: datetime
) -> list[AlertCondition]:
    """Report the regressions that a rule covers."""
    oldest = now - timedelta(days=rule.within_days)
    return [
        AlertCondition(
            rule=rule.name,
            cause=one.regression_id,
            severity=rule.severity,
            message=_regression_message(one.regression, one.triage.regression_id, state),
            regression_id=one.triage.regression_id,
            is_acknowledged=one.triage.state is TriageState.ACKNOWLEDGED,
            is_past=one.regression.commit.committed_at < oldest,
        )
        for one in state.regressions
        if why_not_alerting(one) is None
        and any(_is_reported(rule, point, state) for point in one.regression.change_points)
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


def _is_reported(rule: RegressionRule | MetricRule, point: ChangePoint, state: ProjectState) -> bool:
    """Return whether a rule covers a series that changed enough; failures and machine code count for a regression."""
    series, change = point.series, point.relative_change
    facts = state.cases.get(series.case_id, _UNKNOWN_CASE)
    if not rule.covers_case(series.kernel, facts.family, facts.tags) or not rule.covers_runner(series.runner_class):
        return False
    if isinstance(rule, MetricRule):  # a rate falls when the time grows
        is_rate = rule.is_floor and rule.metric in METRICS
        if change is None or series.metric != ("median_ns" if is_rate else rule.metric):
            return False
        return rule.is_beyond(1 / (1 + change) if is_rate else 1 + change)
    if series.definition.layer is not Layer.MEASURED or is_outcome(point):
        return True
    # host time only explains a time
    return series.metric != "host_ns" and (change is None or abs(change) >= rule.min_relative_change)


def _regression_message(regression: Regression, regression_id: UUID, state: ProjectState) -> Message:
    worst, head = regression.change_points[0], regression.commit
    base, series = worst.previous_commit, worst.series
    suspects = [one for one in regression.suspects if one.cause is not Cause.UNKNOWN][:_MAX_SUSPECTS]
    facts = [
        Fact("Since", _commit_text(head)),
        Fact("Range", f"{base.short_sha}..{head.short_sha}"),
        Fact("Evidence", f"{series.label}: {worst.evidence}"),
        *(Fact(f"Suspect: {one.cause} ({one.weight:.0%})", one.sentence) for one in suspects),
        *([Fact("Series", regression.family)] if regression.family else []),
        Fact("Confirmed", "yes" if regression.is_confirmed else "not by a paired measurement yet"),
    ]
    parts = ("kernel", "metric", "case_id", "implementation", "runner_class", "target", "function", "tensor")
    chosen = {_QUERY_NAMES.get(part, part): value for part in parts if (value := getattr(series, part))}
    kernels = tuple(dict.fromkeys(one.series.kernel for one in regression.change_points))
    classes = dict.fromkeys(one.series.runner_class for one in regression.change_points if one.series.runner_class)
    devices = tuple(dict.fromkeys(map(state.device_of, classes)))
    unnamed = [device for device in devices if device not in regression.summary]
    return Message(
        title=" on ".join((regression.summary, *([", ".join(unnamed)] if unnamed else []))),
        facts=tuple(facts),
        owners=state.ownership.owners_of(kernels),
        links=(
            *state.link("Regression", "regression", regression=str(regression_id)),
            *state.link("Trend", "trends", **chosen),
            *state.link("Compare", "compare", base=base.sha, head=worst.commit.sha),
        ),
        kernels=kernels,
        devices=devices,
        base_sha=base.sha,
        head_sha=head.sha,
        changes=tuple(change for point in regression.change_points for change in _changes(point, state))[:_MAX_CHANGES],
    )


def _changes(point: ChangePoint, state: ProjectState) -> list[Change]:
    """Return a change of a series and, if it is a time, the same as rates."""
    changes, before, after = [_change(point.series, point.before, point.after)], point.before, point.after
    if point.series.metric == "median_ns" and before and after:
        for rate, cost in state.cases.get(point.series.case_id, _UNKNOWN_CASE).costs.items():
            if cost:
                series = replace(point.series, metric=rate)
                changes.append(_change(series, cost / before * 1e9, cost / after * 1e9))
    return changes


def _change(series: SeriesKey, before: float | None, after: float | None) -> Change:
    parts = (series.kernel, series.case_id, series.implementation, series.runner_class)
    relative = (after - before) / before if before and after is not None else None
    return Change(*parts, series.metric, series.definition.unit, before, after, relative)


def _commit_text(commit: CommitRef) -> str:
    return f"{commit.short_sha} {commit.subject} ({commit.author}, {commit.committed_at:%Y-%m-%d})"


# --- metrics


@dataclass(frozen=True)
class _Point:
    commit: CommitRef
    method: tuple[str, str]
    """Harness version, and timer with cache state; values of others are not comparable."""
    value: float


@dataclass(frozen=True)
class _Level:
    """The newest value of a series and what it is compared with."""

    series: SeriesKey
    reference: float
    value: float
    since: CommitRef
    """Where the newest values that are beyond the limit begin; the newest commit if none is."""
    previous: CommitRef | None
    """The commit before that, of those that were read."""

    @property
    def ratio(self) -> float:
        return self.value / self.reference


def metric_conditions(rule: MetricRule, state: ProjectState, now: datetime) -> list[AlertCondition]:
    """Report what is beyond a rule's limit: one alert per kernel and device, or one per device for a geometric mean."""
    groups: dict[tuple[str, str], list[_Level]] = defaultdict(list)
    for runner_class in state.runs.keys() - _ended_classes(state, now):
        for level in _levels(rule, runner_class, state, now) if rule.covers_runner(runner_class) else ():
            kernel = level.series.kernel if rule.over == "any" else ""
            if rule.over == "geomean" or rule.is_beyond(level.ratio):
                groups[kernel, state.device_of(runner_class)].append(level)
    return [
        _metric_condition(
            rule, kernel, device, sorted(levels, key=lambda one: one.ratio, reverse=not rule.is_floor), state
        )
        for (kernel, device), levels in sorted(groups.items())
        if rule.is_beyond(_geomean(one.ratio for one in levels))
    ]


def _levels(rule: MetricRule, runner_class: str, state: ProjectState, now: datetime) -> list[_Level]:
    """Compare the newest values of each case and implementation with the reference of the rule."""
    known = [run for run in state.runs[runner_class] if run.started_at <= now]
    newest = [run for run in known[-rule.runs :] if run.started_at >= now - timedelta(days=rule.within_days)]
    if rule.limit is not None or not newest:
        older = known[-rule.runs - _MAX_OLDER_RUNS : -rule.runs]  # only to find where it began
    elif rule.against_commit is not None:
        older = [run for run in known if run.commit.sha == state.commits.get(rule.against_commit)]
    else:
        begin = newest[0].commit.committed_at - timedelta(days=rule.against_days or 0.0)
        older = [run for run in known[: -rule.runs] if run.commit.committed_at >= begin]
    older = older[:: math.ceil(len(older) / _MAX_OLDER_RUNS) or 1]  # the median of some runs spread evenly will do
    before, after = _points(rule, older, state), _points(rule, newest, state)
    levels = []
    for (case_id, implementation), points in after.items():
        past = [one for one in before.get((case_id, implementation), ()) if one.method == points[-1].method]
        new = [one for one in points if one.method == points[-1].method]
        if rule.limit is None and not past:
            continue
        reference = rule.limit or statistics.median(one.value for one in past)
        every = [*past, *new]
        first = len(every) - 1
        while first > 0 and rule.is_beyond(every[first - 1].value / reference):
            first -= 1
        series = SeriesKey(state.project, case_id, implementation, rule.metric, runner_class)
        previous = every[first - 1].commit if first else None
        value = statistics.median(one.value for one in new)
        levels.append(_Level(series, reference, value, every[first].commit, previous))
    return levels


def _points(rule: MetricRule, runs: Iterable[RunnerRun], state: ProjectState) -> dict[tuple[str, str], list[_Point]]:
    """Collect the values by case and implementation that a rule covers, in the order of the runs."""
    found: dict[tuple[str, str], list[_Point]] = defaultdict(list)
    for run in runs:
        for case_id, implementation, timing, value in _values(rule.metric, run, state):
            facts = state.cases.get(case_id, _UNKNOWN_CASE)
            if value and value > 0 and rule.covers_case(case_id.split("/", 1)[0], facts.family, facts.tags):
                found[case_id, implementation].append(_Point(run.commit, (run.harness_version, timing), value))
    return found


def _values(name: str, run: RunnerRun, state: ProjectState) -> Iterator[tuple[str, str, str, float | None]]:
    """Yield case id, implementation, timer with cache state, and value of a metric."""
    for case_id, implementation, key, number in state.imported(run.run_id) if name not in METRICS else ():
        if key == name:
            yield case_id, implementation, "", number
    for case in state.results(run.run_id) if name in METRICS else ():
        costs = state.cases.get(case.case_id, _UNKNOWN_CASE).costs
        value: float | None = getattr(case, name, None)
        if name in costs:  # of the newest run, so that another cost model changes no rate
            value = (costs[name] or 0.0) / case.median_ns * 1e9 if case.median_ns else None
        outcome = case.accuracy_outcome if name == "rmse_ratio" else case.outcome
        yield (
            case.case_id,
            case.implementation,
            timing_of(case.timer, case.cache),
            value if outcome is Outcome.OK else None,
        )


def _geomean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _metric_condition(
    rule: MetricRule, kernel: str, device: str, levels: Sequence[_Level], state: ProjectState
) -> AlertCondition:
    """Report some levels, the worst first."""
    write, worst, cases = rule.definition.format, levels[0], count_of(len(levels), "case")
    before, after, scope = worst.reference, worst.value, f"in {cases}"
    if rule.over == "geomean":
        before, after = _geomean(one.reference for one in levels), _geomean(one.value for one in levels)
        scope = f"over {cases} (geometric mean)"
    judged = f"the median of the newest {rule.runs} runs"
    if rule.limit is None:
        verb = "fell" if rule.is_floor else "grew"
        what = f"{verb} {abs(after / before - 1):.1%}, {write(before)} to {write(after)}"
        judged += f" against {rule.against}"
    else:
        what = f"{'below' if rule.is_floor else 'above'} {write(rule.limit)}: {write(after)}"
    kernels = tuple(dict.fromkeys(one.series.kernel for one in levels))
    subject = kernel or ", ".join(kernels if rule.families == ("*",) else rule.families)
    facts = [Fact("Since", _commit_text(worst.since)), Fact("Judged by", judged)]
    if worst.previous is not None:
        facts.insert(1, Fact("Range", f"{worst.previous.short_sha}..{worst.since.short_sha}"))
    message = Message(
        title=f"{subject}: {rule.definition.title} {what}, {scope} on {device}",
        facts=tuple(facts),
        owners=state.ownership.owners_of(kernels),
        links=state.link("Trend", "trends", kernel=worst.series.kernel, runner=worst.series.runner_class),
        kernels=kernels,
        devices=(device,),
        base_sha=None if worst.previous is None else worst.previous.sha,
        head_sha=worst.since.sha,
        changes=tuple(_change(one.series, one.reference, one.value) for one in levels[:_MAX_CHANGES]),
    )
    selection = kernel or "\n".join((*rule.kernels, *rule.families, *rule.tags))
    return AlertCondition(rule.name, f"{rule.metric}\n{device}\n{selection}", rule.severity, message)


def _ended_classes(state: ProjectState, now: datetime) -> set[str]:
    """Return the runner classes that another class of the same device replaced, as after an update of the driver."""
    ended = set()
    for classes in state.devices.values():
        intervals = {name: report_interval(times) for name in classes if (times := _times(state, [name], now))}
        newest = max((one.last_at for one in intervals.values()), default=now)
        ended |= {name for name, one in intervals.items() if one.last_at < newest and one.is_silent(now)}
    return ended


def _times(state: ProjectState, runner_classes: Iterable[str], now: datetime) -> list[datetime]:
    """List the times of the results of some runner classes until now."""
    return [run.started_at for name in runner_classes for run in state.runs[name] if run.started_at <= now]


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


def silence_conditions(rule: SilenceRule, state: ProjectState, now: datetime) -> list[AlertCondition]:
    """Report the devices that are silent, and the patterns of the rule that no runner ever matched."""
    missing = [one for one in rule.runners if state.runs and not any(matches(name, [one]) for name in state.runs)]
    found = [(one, Message(f"no results from a runner that matches {one}, ever"), False) for one in missing]
    for device, classes in state.devices.items():
        times = _times(state, classes, now)
        if not times or not any(map(rule.covers_runner, classes)):
            continue
        interval = report_interval(times)
        silent_from = interval.silent_from
        if rule.after_hours is not None:
            silent_from = interval.last_at + timedelta(hours=rule.after_hours)
        if silent_from is None or now < silent_from:
            continue
        since = _duration(now - interval.last_at)
        facts = [Fact("Last result", f"{interval.last_at:%Y-%m-%d %H:%M} UTC, {since} ago")]
        if interval.usual_gap is not None:
            facts.append(Fact("Usual interval", _duration(interval.usual_gap)))
        links = state.link("Overview", "")
        message = Message(f"no results from {device} for {since}", tuple(facts), (), links, devices=(device,))
        found.append((device, message, silent_from < now - timedelta(days=rule.within_days)))
    return [
        AlertCondition(rule.name, f"silence\n{name}", rule.severity, message, is_past=is_past)
        for name, message, is_past in found
    ]


def _duration(time: timedelta) -> str:
    hours = time.total_seconds() / 3_600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


# --- what a rule covers

Coverage = dict[str, dict[str, bool]]
"""Names of kernels and runners, and whether a rule covers each."""


def coverage(rule: Rule, state: ProjectState) -> Coverage:
    """Determine which runners and kernels a rule covers; a kernel needs a case that has the rule's metric."""
    runners = {device: any(map(rule.covers_runner, classes)) for device, classes in state.devices.items()}
    if isinstance(rule, SilenceRule):
        return {"runner": runners}
    kernels: dict[str, bool] = {}
    for case_id, facts in state.cases.items():
        kernel = case_id.split("/", 1)[0]
        has_metric = not isinstance(rule, MetricRule) or bool(facts.costs.get(rule.metric, 1))
        is_covered = has_metric and rule.covers_case(kernel, facts.family, facts.tags)
        kernels[kernel] = kernels.get(kernel, False) or is_covered
    return {"kernel": kernels, "runner": runners}


def is_idle(covered: Coverage) -> bool:
    """Return whether a rule can report nothing, although there are results."""
    return any(names and not any(names.values()) for names in covered.values())


def coverage_text(covered: Coverage) -> str:
    """Write how many kernels and runners a rule covers, with all names if it is none."""
    parts = []
    for what, names in covered.items():
        listed = "" if any(names.values()) else f": {', '.join(sorted(names)[:_MAX_NAMES]) or 'no results yet'}"
        parts.append(f"{sum(names.values())} of {count_of(len(names), what)}{listed}")
    return f"matches {', '.join(parts)}"
