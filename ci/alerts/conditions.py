"""What rules report of regressions at a time, what they cover, and who owns it. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.alerts.rules import (
    KernelRule,
    MetricRule,
    RegressionRule,
    Rule,
    matches,
)
from roofwatch.ci.claims.decide import claim_of_regression
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.history.recent import KernelSuspicion
from roofwatch.ci.history.summary import FalseAlarms, count_false_alarms, share_real
from roofwatch.ci.messages import count_of
from roofwatch.model.alert import AlertCondition, Fact, Link, Message, ReportedValue
from roofwatch.model.case_key import kernel_of
from roofwatch.model.grouping import group_by
from roofwatch.model.history import (
    Cause,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
)
from roofwatch.model.metrics import METRICS, RATIO_TO_REFERENCE, TIME, Layer
from roofwatch.model.stored_results import CaseOption, MeasuredCase, RunnerRun
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

# channels show six; webhooks get these
MAX_CHANGES = 20
# less likely ones would hide the likeliest
_MAX_SUSPECTS = 3
_MAX_NAMES = 10
_NS_PER_S = 1e9
_QUERY_NAMES = {"case_id": "case", "runner_class": "runner"}
"""In links to the dashboard, if they differ from those of a series."""


@dataclass(frozen=True)
class ProjectState:
    """What rules are evaluated on."""

    project: str
    regressions: Sequence[TriagedRegression] = ()
    possible_changes: Sequence[KernelSuspicion] = ()
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
        return group_by(self.runs, self.device_of)

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

    def covers(
        self,
        rule: KernelRule,
        case_id: str,
        implementation: str | None = None,
    ) -> bool:
        if implementation is not None and matches(implementation, rule.exclude_implementations):
            return False
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


# --- regressions


def regression_conditions(
    rule: KernelRule,
    state: ProjectState,
    now: datetime,
) -> list[AlertCondition]:
    """Report the regressions that a rule covers."""
    oldest = now - timedelta(days=rule.within_days)
    false_alarms = count_false_alarms(state.regressions)
    conditions = []
    for triaged in state.regressions:
        regression = triaged.regression
        # triage and state say whether people want to hear of it
        if why_not_alerting(triaged) is not None:
            continue
        # the rule may cover other cases than those that regressed
        if not any(_is_reported(rule, point, state) for point in regression.change_points):
            continue
        condition = AlertCondition(
            rule=rule.name,
            cause=triaged.regression_id,
            severity=rule.severity,
            message=_regression_message(rule, triaged, state, false_alarms),
            regression_id=triaged.triage.regression_id,
            event=regression.commit.sha,
            is_acknowledged=triaged.triage.state is TriageState.ACKNOWLEDGED,
            is_past=_is_past(triaged, oldest),
        )
        conditions.append(condition)
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
        return f"{triage.decided_by}: {triage.reason}"
    if triaged.is_snoozed:
        return f"snoozed until {_snooze_end(triage)}"
    if regression.state is not RegressionState.OPEN:
        return "a new measurement did not confirm it"
    if not regression.is_alert:
        return "no longer certain enough"
    return None


def _snooze_end(triage: Triage) -> str:
    if triage.snoozed_until is not None:
        return f"{triage.snoozed_until:%Y-%m-%d %H:%M} UTC"
    return f"{triage.snoozed_until_sha} is measured"


def _is_past(triaged: TriagedRegression, oldest: datetime) -> bool:
    """Whether a regression is too old for a first message. The end of a snooze asks again."""
    triage = triaged.triage
    was_snoozed = triage.snoozed_until is not None or triage.snoozed_until_sha is not None
    return triaged.regression.commit.committed_at < oldest and not was_snoozed


def _is_reported(
    rule: KernelRule,
    point: ChangePoint,
    state: ProjectState,
) -> bool:
    """Return whether a rule covers a series that changed enough."""
    series = point.series
    if not state.covers(rule, series.case_id, series.implementation):
        return False
    if not rule.covers_runner(series.runner_class):
        return False
    if isinstance(rule, MetricRule):
        return _is_beyond_limit(rule, point)
    # failures and machine code count whatever their size
    if series.definition.layer is not Layer.MEASURED or is_outcome(point):
        return True
    # the time of the host only explains a time
    if series.metric == "host_ns":
        return False
    change = point.relative_change
    # a failure has no size
    if change is None or not isinstance(rule, RegressionRule):
        return True
    return abs(change) >= rule.min_relative_change


def _is_beyond_limit(rule: MetricRule, point: ChangePoint) -> bool:
    """Return whether a change of the rule's metric, or of the time that its rate has, is beyond
    the rule's limit.
    """
    # a rate falls when the time grows, and history analyses times only
    is_rate = rule.is_floor and rule.metric in METRICS
    analysed_metric = TIME.key if is_rate else rule.metric
    if point.relative_change is None or point.series.metric != analysed_metric:
        return False
    ratio = 1 + point.relative_change
    if is_rate:
        ratio = 1 / ratio
    return rule.is_beyond(ratio)


def _regression_message(
    rule: KernelRule,
    triaged: TriagedRegression,
    state: ProjectState,
    false_alarms: FalseAlarms,
) -> Message:
    """Write what a rule tells of a regression.

    Args:
        rule: That covers it.
        triaged: The regression, with what people decided.
        state: Of its project.
        false_alarms: How often earlier alerts of the project were real.
    """
    regression = triaged.regression
    points = regression.change_points
    base = regression.base
    head = regression.commit
    all_series = [point.series for point in points]
    kernels = tuple(dict.fromkeys(series.kernel for series in all_series))
    # compiled code belongs to no runner
    runner_classes = [series.runner_class for series in all_series if series.runner_class]
    devices = tuple(dict.fromkeys(map(state.device_of, runner_classes)))
    title = regression.summary
    # the summary may name the device already
    unnamed = [device for device in devices if device not in title]
    if unnamed:
        title += f" on {', '.join(unnamed)}"
    changes = [_change_told(rule, point, state) for point in _without_ratios(points)]
    return Message(
        title=title,
        facts=tuple(_regression_facts(regression, false_alarms)),
        owners=state.ownership.owners_of(kernels),
        links=(
            *state.link("Regression", "regression", regression=triaged.regression_id),
            *state.link("Trend", "trends", **_trend_query(all_series[0])),
            *state.link("Compare", "compare", base=base.sha, head=head.sha),
        ),
        kernels=kernels,
        devices=devices,
        base_sha=base.sha,
        head_sha=head.sha,
        changes=tuple(changes[:MAX_CHANGES]),
    )


def _trend_query(series: SeriesKey) -> dict[str, str]:
    """The query of the dashboard's page of a series."""
    query = {"kernel": series.kernel}
    for name, value in asdict(series).items():
        if value:
            query[_QUERY_NAMES.get(name, name)] = value
    return query


def _without_ratios(points: Sequence[ChangePoint]) -> list[ChangePoint]:
    """Leave out ratios to a library whose time is among the changes: they move with it, so they
    would be told twice.
    """
    ratios = {
        replace(point.series, metric=RATIO_TO_REFERENCE)
        for point in points
        if point.series.metric == TIME.key
    }
    return [point for point in points if point.series not in ratios]


def _regression_facts(regression: Regression, false_alarms: FalseAlarms) -> Iterator[Fact]:
    worst = regression.change_points[0]
    # several commits may lie between two measurements
    if regression.is_range:
        yield Fact("Since", regression.range_text)
    else:
        yield Fact("Since", commit_text(regression.commit))
    yield Fact("Range", f"{regression.base.short_sha}..{regression.commit.short_sha}")
    yield Fact("Claim", claim_of_regression(regression))
    yield Fact("Evidence", f"{worst.series.label}: {worst.evidence}")
    # an unknown cause suspects nothing
    suspects = [suspect for suspect in regression.suspects if suspect.cause is not Cause.UNKNOWN]
    for suspect in suspects[:_MAX_SUSPECTS]:
        yield Fact(f"Suspect: {suspect.cause} ({suspect.weight:.0%})", suspect.sentence)
    if regression.family:
        yield Fact("Series", regression.family)
    if regression.is_confirmed:
        yield Fact("Confirmed", "yes")
    else:
        # alerts are sent before a pair decides, so they say how often that proves right
        yield Fact("Confirmed", "not by a paired measurement yet")
        yield Fact("Probability that it is real", _share_real(false_alarms))


def _share_real(false_alarms: FalseAlarms) -> str:
    share = share_real(false_alarms.true_count, false_alarms.decided_count)
    return (
        f"{share:.0%}; {false_alarms.true_count} of "
        f"{count_of(false_alarms.decided_count, 'earlier alert')} were real"
    )


def _change_told(
    rule: KernelRule,
    point: ChangePoint,
    state: ProjectState,
) -> ReportedValue:
    """Tell a change once: as a rate if the rule is about one, else as it was measured."""
    series = point.series
    base = point.before
    head = point.after
    # the rate of a case is its work over the time, so it changed with the time
    if isinstance(rule, MetricRule) and series.metric == TIME.key and base and head:
        work = state.costs_of(series.case_id).get(rule.metric)
        if work:
            return change_of(
                replace(series, metric=rule.metric),
                base=work / base * _NS_PER_S,
                head=work / head * _NS_PER_S,
            )
    return change_of(series, base, head)


def change_of(
    series: SeriesKey,
    base: float | None,
    head: float | None,
    *,
    is_limit: bool = False,
) -> ReportedValue:
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
        is_limit=is_limit,
    )


def commit_text(commit: CommitRef) -> str:
    date = f"{commit.committed_at:%Y-%m-%d}"
    return f"{commit.short_sha} {commit.subject} ({commit.author}, {date})"


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
    # a rule about runners covers no kernel
    if not isinstance(rule, KernelRule):
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


def why_never_firing(rule: Rule, states: Sequence[ProjectState]) -> list[str]:
    """Return why a rule that matches something can report nothing."""
    if not isinstance(rule, MetricRule) or rule.against_commit is None:
        return []
    name = rule.against_commit
    if any(state.commits.get(name) is not None for state in states):
        return []
    return [f"rule {rule.name!r} can never fire: against = {name!r} was never measured"]


def coverage_text(covered: Coverage) -> str:
    """Write how many kernels and runners a rule covers, with all names if it is none."""
    parts = []
    for kind, is_covered in covered.items():
        covered_count = sum(is_covered.values())
        part = f"{covered_count} of {count_of(len(is_covered), kind)}"
        # the names show what the rule should have matched
        if not covered_count:
            names = sorted(is_covered)[:_MAX_NAMES]
            part += f": {', '.join(names) or 'no results yet'}"
        parts.append(part)
    return f"matches {', '.join(parts)}"
