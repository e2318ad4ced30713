"""The kinds of alert rules, and what each reports. Pure."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from roofwatch.ci.alerts.conditions import regression_conditions
from roofwatch.ci.alerts.metric_conditions import metric_conditions
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import MetricRule, RegressionRule
from roofwatch.ci.alerts.silence import SilenceRule, silence_conditions
from roofwatch.ci.alerts.suspicions import suspicion_conditions
from roofwatch.model.alert import AlertCondition

Rule = Annotated[RegressionRule | MetricRule | SilenceRule, Field(discriminator="kind")]


def conditions_at(
    rule: Rule,
    state: ProjectState,
    now: datetime,
) -> list[AlertCondition]:
    """Return what a rule reports at a time; later results and regressions are ignored."""
    if isinstance(rule, SilenceRule):
        return silence_conditions(rule, state, now)
    if isinstance(rule, MetricRule) and rule.against != "change":
        return metric_conditions(rule, state, now)
    conditions = regression_conditions(rule, state, now)
    if isinstance(rule, RegressionRule):
        conditions += suspicion_conditions(rule, state, now)
    return conditions
