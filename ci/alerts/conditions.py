"""What rules report of regressions and of silent runners at a time, what they cover, and who owns
it. Pure.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from roofwatch.ci.claims import claim_of_regression
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.history.summary import FalseAlarms, count_false_alarms, share_real
from roofwatch.ci.messages import count_of
from roofwatch.model.alert import AlertCondition, Change, Fact, Link, Message
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
        return tuple(
            dict.fromkeys(owner for kernel in kernels for owner in self._of_kernel(kernel))
        )

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        return (
            []
            if path is None or self.codeowners is None
            else [owner for _, owner in self.codeowners.of(path)]
        )


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file as GitHub does: invalid lines are skipped, and a pattern without
    owners has none.
    """
    valid = []
    for line in text.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        if not set("!\\[]") & set(pattern) and all(map(OWNER.fullmatch, owners)):
            valid.append(" ".join((pattern, *owners)))
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
        found: dict[str, list[str]] = defaultdict(list)
        for runner_class in self.runs:
            found[self.device_of(runner_class)].append(runner_class)
        return dict(found)

    def device_of(self, runner_class: str) -> str:
        return (
            self.runs[runner_class][-1].device_name if runner_class in self.runs else runner_class
        )

    def costs_of(self, case_id: str) -> Mapping[str, float | None]:
        """Work of one launch by the metric of its rate, from the newest run: another cost model
        changes no rate.
        """
        return self.cases[case_id].costs if case_id in self.cases else {}

    def covers(self, rule: RegressionRule | MetricRule, case_id: str) -> bool:
        kernel, known = case_id.split("/", 1)[0], self.cases.get(case_id)
        return rule.covers_case(kernel, known.family if known else "", known.tags if known else ())

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """Link to a view of the dashboard, if its address is configured."""
        if self.dashboard_url is None:
            return ()
        return (
            Link(
                name,
                f"{self.dashboard_url.rstrip('/')}/{view}"
                f"?{urlencode({'project': self.project, **query})}",
            ),
        )


# --- regressions


def regression_conditions(
    rule: RegressionRule | MetricRule, state: ProjectState, now: datetime
) -> list[AlertCondition]:
    """Report the regressions that a rule covers."""
    oldest = now - timedelta(days=rule.within_days)
    earlier = count_false_alarms(state.regressions)
    return [
        AlertCondition(
            rule=rule.name,
            cause=one.regression_id,
            severity=rule.severity,
            message=_regression_message(one.regression, one.regression_id, state, earlier),
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
        return (
            "it improved"
            if regression.verdict is Verdict.IMPROVED
            else "the clock changed, the cycles did not"
        )
    if regression.state is RegressionState.NO_LONGER_FOUND:
        return regression.ended or "no longer found"
    if regression.recovered_at is not None:
        recovered = regression.recovered_at
        return f"recovered at {recovered.short_sha} ({recovered.subject}, {recovered.author})"
    if triage.state not in {TriageState.NEW, TriageState.ACKNOWLEDGED}:
        return f"{triage.state} by {triage.person}: {triage.reason}"
    if regression.state is not RegressionState.OPEN:
        return "a new measurement did not confirm it"
    return None if regression.is_alert else "no longer certain enough"


def _is_reported(
    rule: RegressionRule | MetricRule, point: ChangePoint, state: ProjectState
) -> bool:
    """Return whether a rule covers a series that changed enough; failures and machine code count
    for a regression.
    """
    series, change = point.series, point.relative_change
    if not state.covers(rule, series.case_id) or not rule.covers_runner(series.runner_class):
        return False
    if isinstance(rule, MetricRule):  # a rate falls when the time grows
        is_rate = rule.is_floor and rule.metric in METRICS
        if change is None or series.metric != ("median_ns" if is_rate else rule.metric):
            return False
        return rule.is_beyond(1 / (1 + change) if is_rate else 1 + change)
    if series.definition.layer is not Layer.MEASURED or is_outcome(point):
        return True
    # host time only explains a time
    return series.metric != "host_ns" and (
        change is None or abs(change) >= rule.min_relative_change
    )


def _regression_message(
    regression: Regression, regression_id: str, state: ProjectState, earlier: FalseAlarms
) -> Message:
    points, worst, head = regression.change_points, regression.change_points[0], regression.commit
    base, series = regression.base, worst.series
    suspects = [one for one in regression.suspects if one.cause is not Cause.UNKNOWN][
        :_MAX_SUSPECTS
    ]
    facts = [
        Fact("Since", regression.range_text if regression.is_range else commit_text(head)),
        Fact("Range", f"{base.short_sha}..{head.short_sha}"),
        Fact("Claim", claim_of_regression(regression)),
        Fact("Evidence", f"{series.label}: {worst.evidence}"),
        *(Fact(f"Suspect: {one.cause} ({one.weight:.0%})", one.sentence) for one in suspects),
        *([Fact("Series", regression.family)] if regression.family else []),
        Fact("Confirmed", "yes" if regression.is_confirmed else "not by a paired measurement yet"),
        *(
            []
            if regression.is_confirmed
            else [Fact("Probability that it is real", _share_real(earlier))]
        ),
    ]
    named = {_QUERY_NAMES.get(name, name): value for name, value in asdict(series).items() if value}
    kernels = tuple(dict.fromkeys(one.series.kernel for one in points))
    devices = tuple(
        dict.fromkeys(
            state.device_of(one.series.runner_class) for one in points if one.series.runner_class
        )
    )
    unnamed = ", ".join(device for device in devices if device not in regression.summary)
    return Message(
        title=f"{regression.summary} on {unnamed}" if unnamed else regression.summary,
        facts=tuple(facts),
        owners=state.ownership.owners_of(kernels),
        links=(
            *state.link("Regression", "regression", regression=regression_id),
            *state.link("Trend", "trends", **{"kernel": series.kernel, **named}),
            *state.link("Compare", "compare", base=base.sha, head=head.sha),
        ),
        kernels=kernels,
        devices=devices,
        base_sha=base.sha,
        head_sha=head.sha,
        changes=tuple(change for point in points for change in _changes(point, state))[
            :MAX_CHANGES
        ],
    )


def _share_real(earlier: FalseAlarms) -> str:
    share = share_real(earlier.true_count, earlier.decided_count)
    return (
        f"{share:.0%}; {earlier.true_count} of "
        f"{count_of(earlier.decided_count, 'earlier alert')} were real"
    )


def _changes(point: ChangePoint, state: ProjectState) -> list[Change]:
    """Return a change of a series and, if it is a time, the same as rates."""
    changes, before, after = (
        [change_of(point.series, point.before, point.after)],
        point.before,
        point.after,
    )
    if point.series.metric == "median_ns" and before and after:
        changes += [
            change_of(replace(point.series, metric=rate), cost / before * 1e9, cost / after * 1e9)
            for rate, cost in state.costs_of(point.series.case_id).items()
            if cost
        ]
    return changes


def change_of(series: SeriesKey, before: float | None, after: float | None) -> Change:
    parts = (series.kernel, series.case_id, series.implementation, series.runner_class)
    relative = (after - before) / before if before and after is not None else None
    return Change(*parts, series.metric, series.definition.unit, before, after, relative)


def commit_text(commit: CommitRef) -> str:
    return f"{commit.short_sha} {commit.subject} ({commit.author}, {commit.committed_at:%Y-%m-%d})"


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
    gaps = [
        gap for before, after in pairwise(ordered) if (gap := (after - before).total_seconds()) > 0
    ]
    gaps = gaps[-_MAX_INTERVALS:]
    if len(gaps) < _MIN_INTERVALS:
        return ReportInterval(ordered[-1], None, None)
    longest = statistics.quantiles(gaps, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=_SILENT_AFTER * longest), _MIN_SILENCE)
    return ReportInterval(
        ordered[-1], timedelta(seconds=statistics.median(gaps)), ordered[-1] + allowed
    )


def interval_of(
    state: ProjectState, runner_classes: Iterable[str], now: datetime
) -> ReportInterval | None:
    """Determine how often some runner classes together report, by their results until now; None
    without any.
    """
    times = [
        run.started_at
        for name in runner_classes
        for run in state.runs[name]
        if run.started_at <= now
    ]
    return report_interval(times) if times else None


def silence_conditions(
    rule: SilenceRule, state: ProjectState, now: datetime
) -> list[AlertCondition]:
    """Report the devices that are silent, and the patterns of the rule that no runner ever
    matched.
    """
    missing = [
        one
        for one in rule.runners
        if state.runs and not any(matches(name, [one]) for name in state.runs)
    ]
    found = [
        (one, Message(f"no results from a runner that matches {one}, ever"), False)
        for one in missing
    ]
    for device, classes in state.devices.items():
        interval = interval_of(state, classes, now)
        if interval is None or not any(map(rule.covers_runner, classes)):
            continue
        if rule.after_hours is not None:
            interval = replace(
                interval, silent_from=interval.last_at + timedelta(hours=rule.after_hours)
            )
        if interval.silent_from is None or not interval.is_silent(now):
            continue
        since = _duration(now - interval.last_at)
        facts = [Fact("Last result", f"{interval.last_at:%Y-%m-%d %H:%M} UTC, {since} ago")]
        if interval.usual_gap is not None:
            facts.append(Fact("Usual interval", _duration(interval.usual_gap)))
        links = state.link("Overview", "")
        message = Message(
            f"no results from {device} for {since}", tuple(facts), links=links, devices=(device,)
        )
        found.append(
            (device, message, interval.silent_from < now - timedelta(days=rule.within_days))
        )
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
    """Determine which runners and kernels a rule covers; a kernel needs a case that has the rule's
    metric.
    """
    runners = {
        device: any(map(rule.covers_runner, classes)) for device, classes in state.devices.items()
    }
    if isinstance(rule, SilenceRule):
        return {"runner": runners}
    kernels: dict[str, bool] = defaultdict(bool)
    for case_id, facts in state.cases.items():
        has_metric = not isinstance(rule, MetricRule) or bool(facts.costs.get(rule.metric, 1))
        kernels[case_id.split("/", 1)[0]] |= has_metric and state.covers(rule, case_id)
    return {"kernel": dict(kernels), "runner": runners}


def is_idle(covered: Coverage) -> bool:
    """Return whether a rule can report nothing, although there are results."""
    return any(names and not any(names.values()) for names in covered.values())


def coverage_text(covered: Coverage) -> str:
    """Write how many kernels and runners a rule covers, with all names if it is none."""
    parts = []
    for what, names in covered.items():
        listed = (
            ""
            if any(names.values())
            else f": {', '.join(sorted(names)[:_MAX_NAMES]) or 'no results yet'}"
        )
        parts.append(f"{sum(names.values())} of {count_of(len(names), what)}{listed}")
    return f"matches {', '.join(parts)}"
