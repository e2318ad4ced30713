"""What rules report of regressions at a time. Pure."""

from datetime import datetime, timedelta

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.regression_messages import regression_message
from roofwatch.ci.alerts.rules import KernelRule, MetricRule, RegressionRule
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.history.summary import count_false_alarms
from roofwatch.model.alert import AlertCondition
from roofwatch.model.history import ChangePoint, RegressionState
from roofwatch.model.metrics import METRICS, TIME, Layer
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict


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
            message=regression_message(
                rule,
                triaged,
                state,
                false_alarms,
            ),
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
    """When a snooze ends: at a time, or when a commit is measured."""
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
    if is_rate:
        analysed_metric = TIME.key
    else:
        analysed_metric = rule.metric
    if point.relative_change is None or point.series.metric != analysed_metric:
        return False
    ratio = 1 + point.relative_change
    if is_rate:
        ratio = 1 / ratio
    return rule.is_beyond(ratio)
