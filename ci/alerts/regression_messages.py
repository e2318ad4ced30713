"""What messages about a regression say. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import KernelRule, MetricRule
from roofwatch.ci.claims.decide import claim_of_regression
from roofwatch.ci.history.summary import FalseAlarms, share_real
from roofwatch.ci.messages import count_of
from roofwatch.model.alert import Fact, Message, ReportedValue
from roofwatch.model.history import Cause, ChangePoint, CommitRef, Regression, SeriesKey
from roofwatch.model.metrics import RATIO_TO_REFERENCE, TIME
from roofwatch.model.triage import TriagedRegression

# channels show six; webhooks get these
MAX_CHANGES = 20
# less likely ones would hide the likeliest
_MAX_SUSPECTS = 3
_NS_PER_S = 1e9
_QUERY_NAMES = {"case_id": "case", "runner_class": "runner"}
"""In links to the dashboard, if they differ from those of a series."""


def regression_message(
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
            *state.link(
                "Compare",
                "compare",
                base=base.sha,
                head=head.sha,
            ),
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
    """Where it began, what supports it, who or what is suspected, and how certain it is."""
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
        name = f"Suspect: {suspect.cause} ({suspect.weight:.0%})"
        yield Fact(name, suspect.sentence)
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
    """Tell one change of a series, in the unit of its metric."""
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
    """Name a commit so that its readers recognise it."""
    date = f"{commit.committed_at:%Y-%m-%d}"
    return f"{commit.short_sha} {commit.subject} ({commit.author}, {date})"
