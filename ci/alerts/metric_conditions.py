"""What rules about a metric report: rates that fell, and times, memory and errors beyond a limit.
Pure.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.regression_messages import MAX_CHANGES, change_of, commit_text
from roofwatch.ci.alerts.rules import MetricRule
from roofwatch.ci.alerts.silence import ReportInterval, interval_of
from roofwatch.ci.messages import count_of
from roofwatch.model.alert import AlertCondition, Fact, Message
from roofwatch.model.history import CommitRef, SeriesKey, timing_of
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import METRICS
from roofwatch.model.stored_results import RunnerRun

_MAX_OLDER_RUNS = 20
"""That the newest ones are compared with."""


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
    """The rule's limit, else the median of the older values."""
    value: float
    """Median of the newest values."""
    since: CommitRef
    """Where the newest values that are beyond the limit begin; the newest commit if none is."""
    previous: CommitRef | None
    """The commit before that, of those that were read."""
    newest: CommitRef
    """Commit of the newest value."""

    @property
    def ratio(self) -> float:
        """New value over reference: 1 if nothing changed."""
        return self.value / self.reference


def metric_conditions(
    rule: MetricRule,
    state: ProjectState,
    now: datetime,
) -> list[AlertCondition]:
    """Report what is beyond a rule's limit: one alert per kernel and device, or one per device for
    a geometric mean.
    """
    groups = _levels_by_subject(rule, state, now)
    # a mean over all kernels needs the levels within the limit too
    if rule.over != "geomean":
        for subject, levels in groups.items():
            groups[subject] = [level for level in levels if rule.is_beyond(level.ratio)]
    conditions = []
    for (kernel, device), levels in sorted(groups.items()):
        if not levels:
            continue
        # of single cases, all levels that are left are beyond the limit, and so is their mean
        if rule.is_beyond(_geomean(level.ratio for level in levels)):
            # the worst first: a rate is worse the lower it is
            levels.sort(key=lambda level: level.ratio, reverse=not rule.is_floor)
            conditions.append(
                _condition(
                    rule,
                    kernel,
                    device,
                    levels,
                    state,
                )
            )
    return conditions


def newest_levels(
    rule: MetricRule,
    state: ProjectState,
    now: datetime,
) -> dict[str, str]:
    """Write by cause what a metric is now: the worst value of its cases, and at which commit."""
    write = rule.definition.format
    # the worst is the lowest where a floor is set, else the highest
    worst_of = min if rule.is_floor else max
    texts: dict[str, str] = {}
    groups = _levels_by_subject(rule, state, now)
    for (kernel, device), levels in groups.items():
        worst = worst_of(levels, key=lambda level: level.ratio)
        cause = _cause(rule, kernel, device)
        newest = commit_text(worst.newest)
        texts[cause] = f"back within limits: {write(worst.value)} at {newest}"
    return texts


def _levels_by_subject(
    rule: MetricRule,
    state: ProjectState,
    now: datetime,
) -> dict[tuple[str, str], list[_Level]]:
    """Group the levels that a rule covers by kernel and device; of a geometric mean over all
    kernels, by device alone, with an empty name.
    """
    groups: dict[tuple[str, str], list[_Level]] = defaultdict(list)
    # the last values of a replaced class would stay beyond the limit for ever
    for runner_class in state.runs.keys() - _ended_classes(state, now):
        if not rule.covers_runner(runner_class):
            continue
        device = state.device_of(runner_class)
        levels = _levels(
            rule,
            runner_class,
            state,
            now,
        )
        for level in levels:
            # a geometric mean is over the cases of all kernels
            kernel = ""
            if rule.over != "geomean":
                kernel = level.series.kernel
            groups[kernel, device].append(level)
    return groups


def _levels(
    rule: MetricRule,
    runner_class: str,
    state: ProjectState,
    now: datetime,
) -> Iterator[_Level]:
    """Compare the newest values of each case and implementation with the reference of the rule."""
    runs = [run for run in state.runs[runner_class] if run.started_at <= now]
    oldest = now - timedelta(days=rule.within_days)
    last_runs = runs[-rule.runs :]
    newest_runs = [run for run in last_runs if run.started_at >= oldest]
    reference_runs = _reference_runs(
        rule,
        runs,
        newest_runs,
        state,
    )
    # the median of some runs spread evenly will do
    stride = math.ceil(len(reference_runs) / _MAX_OLDER_RUNS) or 1
    reference_points = _points(rule, reference_runs[::stride], state)
    for subject, newest_points in _points(rule, newest_runs, state).items():
        # values of another timer or harness are not comparable
        method = newest_points[-1].method
        old_points = _of_method(reference_points.get(subject, ()), method)
        new_points = _of_method(newest_points, method)
        # without a limit, there must be something to compare with
        if rule.limit is None and not old_points:
            continue
        case_id, implementation = subject
        series = SeriesKey(
            project=state.project,
            case_id=case_id,
            implementation=implementation,
            metric=rule.metric,
            runner_class=runner_class,
        )
        yield _level_of(
            rule,
            series,
            old_points,
            new_points,
        )


def _level_of(
    rule: MetricRule,
    series: SeriesKey,
    old_points: Sequence[_Point],
    new_points: Sequence[_Point],
) -> _Level:
    """Compare the newest values of a series with the rule's limit, or else with old ones."""
    reference = rule.limit or _median(old_points)
    points = [*old_points, *new_points]
    ratios = [point.value / reference for point in points]
    first = _first_beyond(rule, ratios)
    previous = None
    # the first value that was read has none before it
    if first:
        previous = points[first - 1].commit
    return _Level(
        series=series,
        reference=reference,
        value=_median(new_points),
        since=points[first].commit,
        previous=previous,
        newest=new_points[-1].commit,
    )


def _of_method(points: Iterable[_Point], method: tuple[str, str]) -> list[_Point]:
    """The values that were measured in one way."""
    return [point for point in points if point.method == method]


def _median(points: Iterable[_Point]) -> float:
    return statistics.median(point.value for point in points)


def _first_beyond(rule: MetricRule, ratios: Sequence[float]) -> int:
    """Position from which on all values are beyond the limit; the last one if it is not."""
    first = len(ratios) - 1
    # back from the newest value to where it began
    while first > 0 and rule.is_beyond(ratios[first - 1]):
        first -= 1
    return first


def _reference_runs(
    rule: MetricRule,
    runs: Sequence[RunnerRun],
    newest: Sequence[RunnerRun],
    state: ProjectState,
) -> Sequence[RunnerRun]:
    """The runs that the newest ones are compared with."""
    if rule.limit is not None or not newest:
        # only to find where it began
        return runs[-rule.runs - _MAX_OLDER_RUNS : -rule.runs]
    if rule.against_commit is not None:
        sha = state.commits.get(rule.against_commit)
        return [run for run in runs if run.commit.sha == sha]
    span = timedelta(days=rule.against_days or 0.0)
    begin = newest[0].commit.committed_at - span
    older_runs = runs[: -rule.runs]
    return [run for run in older_runs if run.commit.committed_at >= begin]


def _points(
    rule: MetricRule,
    runs: Iterable[RunnerRun],
    state: ProjectState,
) -> dict[tuple[str, str], list[_Point]]:
    """Collect the values by case and implementation that a rule covers,
    in the order of the runs.
    """
    points: dict[tuple[str, str], list[_Point]] = defaultdict(list)
    for run in runs:
        for case_id, implementation, timing, value in _values(rule.metric, run, state):
            # ratios and geometric means need values above 0
            if not value or value < 0:
                continue
            if not state.covers(rule, case_id, implementation):
                continue
            point = _Point(
                commit=run.commit,
                method=(run.harness_version, timing),
                value=value,
            )
            points[case_id, implementation].append(point)
    return points


def _values(
    name: str,
    run: RunnerRun,
    state: ProjectState,
) -> Iterator[tuple[str, str, str, float | None]]:
    """Yield case id, implementation, timer with cache state, and value of a metric."""
    # only files of other tools have metrics that this version does not know
    if name not in METRICS:
        for case_id, implementation, key, number in state.imported(run.run_id):
            if key == name:
                yield case_id, implementation, "", number
        return
    for case in state.results(run.run_id):
        # an error is measured by the check of the accuracy, all else by the timing
        outcome: Outcome | None = case.outcome
        if name == "rmse_ratio":
            outcome = case.accuracy_outcome
        if outcome is not Outcome.OK:
            continue
        value = getattr(case, name, None)
        costs = state.costs_of(case.case_id)
        # a rate is work over time, by the cost model of now
        if name in costs and case.median_ns:
            work = costs[name] or 0.0
            value = work / case.median_ns * 1e9
        timing = timing_of(case.timer, case.cache)
        yield case.case_id, case.implementation, timing, value


def _geomean(values: Iterable[float]) -> float:
    """Geometric mean of values above 0."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _condition(
    rule: MetricRule,
    kernel: str,
    device: str,
    levels: Sequence[_Level],
    state: ProjectState,
) -> AlertCondition:
    """Report some levels, the worst first."""
    worst = levels[0]
    kernels = tuple(dict.fromkeys(level.series.kernel for level in levels))
    if rule.families == ("*",):
        group_names = kernels
    else:
        group_names = rule.families
    subject = kernel or ", ".join(group_names)
    is_limit = rule.limit is not None
    # a state that always was has no commit
    began_here = not is_limit or worst.previous is not None
    changes = [
        change_of(
            level.series,
            level.reference,
            level.value,
            is_limit=is_limit,
        )
        for level in levels[:MAX_CHANGES]
    ]
    event = f"{rule.name}\n{device}"
    head_sha = None
    if began_here:
        event = worst.since.sha
        head_sha = worst.since.sha
    base_sha = None
    if worst.previous is not None:
        base_sha = worst.previous.sha
    message = Message(
        title=f"{subject}: {rule.definition.title} {_change_text(rule, levels)} on {device}",
        facts=tuple(_facts(rule, worst)),
        owners=state.ownership.owners_of(kernels),
        links=state.link(
            "Trend",
            "trends",
            kernel=worst.series.kernel,
            runner=worst.series.runner_class,
        ),
        kernels=kernels,
        devices=(device,),
        base_sha=base_sha,
        head_sha=head_sha,
        changes=tuple(changes),
    )
    return AlertCondition(
        rule=rule.name,
        cause=_cause(rule, kernel, device),
        severity=rule.severity,
        message=message,
        event=event,
    )


def _cause(
    rule: MetricRule,
    kernel: str,
    device: str,
) -> str:
    """What an alert is about, so that its next message finds it."""
    # a mean over all kernels is named by the patterns that select them
    patterns = [*rule.kernels, *rule.families, *rule.tags]
    selection = kernel or "\n".join(patterns)
    return f"{rule.metric}\n{device}\n{selection}"


def _change_text(rule: MetricRule, levels: Sequence[_Level]) -> str:
    """Write what changed and by how much, for the title of a message."""
    cases = count_of(len(levels), "case")
    if rule.over == "geomean":
        reference = _geomean(level.reference for level in levels)
        value = _geomean(level.value for level in levels)
        scope = f"over {cases} (geometric mean)"
    else:
        worst = levels[0]
        reference = worst.reference
        value = worst.value
        scope = f"in {cases}"
    value_text = rule.definition.format(value)
    if rule.limit is not None:
        side = "below" if rule.is_floor else "above"
        limit_text = rule.definition.format(rule.limit)
        return f"{side} {limit_text}: {value_text}, {scope}"
    verb = "fell" if rule.is_floor else "grew"
    relative_change = abs(value / reference - 1)
    reference_text = rule.definition.format(reference)
    return f"{verb} {relative_change:.1%}, {reference_text} to {value_text}, {scope}"


def _facts(rule: MetricRule, worst: _Level) -> Iterator[Fact]:
    """Where the change began, and what was compared."""
    since = commit_text(worst.since)
    # the limit may have been crossed at any time before
    if worst.previous is None and rule.limit is not None:
        yield Fact("Since", "before the oldest run that was read")
    elif worst.previous is None:
        yield Fact("Since", f"{since} or earlier")
    else:
        yield Fact("Since", since)
        yield Fact("Range", f"{worst.previous.short_sha}..{worst.since.short_sha}")
    judged = f"the median of the newest {rule.runs} runs"
    # without a fixed limit, older values are the reference
    if rule.limit is None:
        judged += f" against {rule.against}"
    yield Fact("Judged by", judged)


def _ended_classes(state: ProjectState, now: datetime) -> set[str]:
    """Return the runner classes that another class of the same device replaced, as after an update
    of the driver.
    """
    ended: set[str] = set()
    for classes in state.devices.values():
        intervals: dict[str, ReportInterval] = {}
        for name in classes:
            interval = interval_of(state, [name], now)
            # a class without a run so far reports nothing
            if interval is not None:
                intervals[name] = interval
        newest_at = max((interval.last_at for interval in intervals.values()), default=now)
        for name, interval in intervals.items():
            # it is silent while another class of its device reports
            if interval.last_at < newest_at and interval.is_silent(now):
                ended.add(name)
    return ended
