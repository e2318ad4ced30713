"""What rules about a metric report: rates that fell, and times, memory and errors beyond a limit.
Pure.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from roofwatch.ci.alerts.conditions import (
    MAX_CHANGES,
    ProjectState,
    change_of,
    commit_text,
    interval_of,
)
from roofwatch.ci.alerts.rules import MetricRule
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
    value: float
    since: CommitRef
    """Where the newest values that are beyond the limit begin; the newest commit if none is."""
    previous: CommitRef | None
    """The commit before that, of those that were read."""

    @property
    def ratio(self) -> float:
        return self.value / self.reference


def metric_conditions(rule: MetricRule, state: ProjectState, now: datetime) -> list[AlertCondition]:
    """Report what is beyond a rule's limit: one alert per kernel and device, or one per device for
    a geometric mean.
    """
    groups: dict[tuple[str, str], list[_Level]] = defaultdict(list)
    for runner_class in state.runs.keys() - _ended_classes(state, now):
        for level in (
            _levels(rule, runner_class, state, now) if rule.covers_runner(runner_class) else ()
        ):
            kernel = level.series.kernel if rule.over == "any" else ""
            if rule.over == "geomean" or rule.is_beyond(level.ratio):
                groups[kernel, state.device_of(runner_class)].append(level)
    return [
        _condition(
            rule,
            kernel,
            device,
            sorted(levels, key=lambda one: one.ratio, reverse=not rule.is_floor),
            state,
        )
        for (kernel, device), levels in sorted(groups.items())
        if rule.is_beyond(_geomean(one.ratio for one in levels))
    ]


def _levels(
    rule: MetricRule, runner_class: str, state: ProjectState, now: datetime
) -> Iterator[_Level]:
    """Compare the newest values of each case and implementation with the reference of the rule."""
    known = [run for run in state.runs[runner_class] if run.started_at <= now]
    newest = [
        run
        for run in known[-rule.runs :]
        if run.started_at >= now - timedelta(days=rule.within_days)
    ]
    if rule.limit is not None or not newest:
        older = known[-rule.runs - _MAX_OLDER_RUNS : -rule.runs]  # only to find where it began
    elif rule.against_commit is not None:
        older = [run for run in known if run.commit.sha == state.commits.get(rule.against_commit)]
    else:
        begin = newest[0].commit.committed_at - timedelta(days=rule.against_days or 0.0)
        older = [run for run in known[: -rule.runs] if run.commit.committed_at >= begin]
    older = older[
        :: math.ceil(len(older) / _MAX_OLDER_RUNS) or 1
    ]  # the median of some runs spread evenly will do
    before, after = _points(rule, older, state), _points(rule, newest, state)
    for (case_id, implementation), points in after.items():
        past = [
            one
            for one in before.get((case_id, implementation), ())
            if one.method == points[-1].method
        ]
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
        yield _Level(
            series,
            reference,
            statistics.median(one.value for one in new),
            every[first].commit,
            previous,
        )


def _points(
    rule: MetricRule, runs: Iterable[RunnerRun], state: ProjectState
) -> dict[tuple[str, str], list[_Point]]:
    """Collect the values by case and implementation that a rule covers,
    in the order of the runs.
    """
    found: dict[tuple[str, str], list[_Point]] = defaultdict(list)
    for run in runs:
        for case_id, implementation, timing, value in _values(rule.metric, run, state):
            if value and value > 0 and state.covers(rule, case_id):
                found[case_id, implementation].append(
                    _Point(run.commit, (run.harness_version, timing), value)
                )
    return found


def _values(
    name: str, run: RunnerRun, state: ProjectState
) -> Iterator[tuple[str, str, str, float | None]]:
    """Yield case id, implementation, timer with cache state, and value of a metric."""
    if name not in METRICS:
        for case_id, implementation, key, number in state.imported(run.run_id):
            yield case_id, implementation, "", number if key == name else None
        return
    for case in state.results(run.run_id):
        outcome = case.accuracy_outcome if name == "rmse_ratio" else case.outcome
        costs, value = state.costs_of(case.case_id), getattr(case, name, None)
        if name in costs and case.median_ns:
            value = (costs[name] or 0.0) / case.median_ns * 1e9
        timing = timing_of(case.timer, case.cache)
        yield case.case_id, case.implementation, timing, value if outcome is Outcome.OK else None


def _geomean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _condition(
    rule: MetricRule, kernel: str, device: str, levels: Sequence[_Level], state: ProjectState
) -> AlertCondition:
    """Report some levels, the worst first."""
    write, worst, cases = rule.definition.format, levels[0], count_of(len(levels), "case")
    before, after, scope = worst.reference, worst.value, f"in {cases}"
    if rule.over == "geomean":
        before, after = (
            _geomean(one.reference for one in levels),
            _geomean(one.value for one in levels),
        )
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
    since, base = commit_text(worst.since), worst.previous
    message = Message(
        title=f"{subject}: {rule.definition.title} {what}, {scope} on {device}",
        facts=(
            Fact("Since", since if base is not None else f"{since} or earlier"),
            *(
                []
                if base is None
                else [Fact("Range", f"{base.short_sha}..{worst.since.short_sha}")]
            ),
            Fact("Judged by", judged),
        ),
        owners=state.ownership.owners_of(kernels),
        links=state.link(
            "Trend", "trends", kernel=worst.series.kernel, runner=worst.series.runner_class
        ),
        kernels=kernels,
        devices=(device,),
        base_sha=None if base is None else base.sha,
        head_sha=worst.since.sha,
        changes=tuple(
            change_of(one.series, one.reference, one.value) for one in levels[:MAX_CHANGES]
        ),
    )
    selection = kernel or "\n".join((*rule.kernels, *rule.families, *rule.tags))
    return AlertCondition(
        rule.name, f"{rule.metric}\n{device}\n{selection}", rule.severity, message
    )


def _ended_classes(state: ProjectState, now: datetime) -> set[str]:
    """Return the runner classes that another class of the same device replaced, as after an update
    of the driver.
    """
    ended = set()
    for classes in state.devices.values():
        intervals = {name: one for name in classes if (one := interval_of(state, [name], now))}
        newest = max((one.last_at for one in intervals.values()), default=now)
        ended |= {
            name for name, one in intervals.items() if one.last_at < newest and one.is_silent(now)
        }
    return ended
