"""How alerts end: why a regression raises none any more, and what its metric is now. Pure."""

from collections.abc import Collection, Sequence
from datetime import datetime

from roofwatch.ci.alerts.conditions import why_not_alerting
from roofwatch.ci.alerts.kinds import Rule
from roofwatch.ci.alerts.metric_conditions import newest_levels
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import MetricRule
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.stored_results import MeasuredCase


def endings_of(
    causes: Collection[str],
    state: ProjectState,
    rules: Sequence[Rule],
    now: datetime,
) -> dict[str, str | None]:
    """Return by cause why a regression raises no alert (None if it does), and what a metric is now.

    Only regressions among the causes are looked up: reading results takes time.
    """
    endings: dict[str, str | None] = {}
    for rule in rules:
        # such a rule is about levels, and has no regression that could end
        if isinstance(rule, MetricRule) and rule.against != "change":
            endings |= newest_levels(rule, state, now)
    for triaged in state.regressions:
        if triaged.regression_id not in causes:
            continue
        reason = why_not_alerting(triaged)
        # people who read that it ended want to see the value too
        if reason is not None:
            value = _newest_value(triaged.regression, state, now)
            if value:
                reason += f"; {value}"
        endings[triaged.regression_id] = reason
    return endings


def _newest_value(
    regression: Regression,
    state: ProjectState,
    now: datetime,
) -> str:
    """Write the newest value of what changed most, with its commit; empty if it has none."""
    for point in regression.change_points:
        series = point.series
        all_runs = state.runs.get(series.runner_class, ())
        runs = [run for run in all_runs if run.started_at <= now]
        # compiled code has no runs
        if not runs:
            continue
        newest_run = runs[-1]
        value = _value_in(state.results(newest_run.run_id), point)
        # a run may have measured other cases
        if value is None:
            continue
        write = series.definition.format
        newest_sha = newest_run.commit.short_sha
        text = f"{series.label}: {write(value)} at {newest_sha}"
        # of a failure there is no earlier value
        if point.after is not None:
            text += f", was {write(point.after)}"
        return text
    return ""


def _value_in(cases: Sequence[MeasuredCase], point: ChangePoint) -> float | None:
    """The value of a change's metric among the results of a run; None if they lack it."""
    subject = point.series.case_key
    for case in cases:
        if case.case_key != subject:
            continue
        value = getattr(case, point.series.metric, None)
        if value is None:
            return None
        return float(value)
    return None
