"""The rule of runners that stopped reporting results, and what it reports at a time. Pure."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

from pydantic import Field

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import BaseRule
from roofwatch.ci.alerts.tables import matches
from roofwatch.model.alert import AlertCondition, Fact, Message

# fewer do not show how often a runner reports
_MIN_INTERVALS = 4
_MAX_INTERVALS = 50
"""Only the newest intervals count, since a runner may change its schedule."""
_SILENT_AFTER = 3.0
"""Times the 90th percentile of the intervals."""
_MIN_SILENCE = timedelta(hours=1)
"""Runs of one job follow each other within minutes."""


class SilenceRule(BaseRule):
    """A runner that stopped reporting results."""

    kind: Literal["silence"]
    after_hours: float | None = Field(default=None, gt=0)
    """Default: three times its usual longest interval."""


@dataclass(frozen=True)
class ReportInterval:
    """How often a runner reports results."""

    last_at: datetime
    usual_gap: timedelta | None
    """Median interval; None with too few results."""
    silent_from: datetime | None
    """When it counts as silent; None with too few results."""

    def is_silent(self, now: datetime) -> bool:
        """Whether it should have reported by now."""
        return self.silent_from is not None and now >= self.silent_from


def report_interval(times: Iterable[datetime]) -> ReportInterval:
    """Determine how often a runner reports, by the times of its results; at least one."""
    ordered = sorted(times)
    last_at = ordered[-1]
    gaps = [following - time for time, following in pairwise(ordered)]
    all_gaps_s = [gap.total_seconds() for gap in gaps]
    # two results may have the same time
    positive_gaps_s = [gap_s for gap_s in all_gaps_s if gap_s > 0]
    gaps_s = positive_gaps_s[-_MAX_INTERVALS:]
    if len(gaps_s) < _MIN_INTERVALS:
        return ReportInterval(
            last_at=last_at,
            usual_gap=None,
            silent_from=None,
        )
    longest_s = statistics.quantiles(gaps_s, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=_SILENT_AFTER * longest_s), _MIN_SILENCE)
    return ReportInterval(
        last_at=last_at,
        usual_gap=timedelta(seconds=statistics.median(gaps_s)),
        silent_from=last_at + allowed,
    )


def interval_of(
    state: ProjectState,
    runner_classes: Iterable[str],
    now: datetime,
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
    rule: SilenceRule,
    state: ProjectState,
    now: datetime,
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
        message = _silence_message(
            state,
            device,
            interval,
            now,
        )
        conditions.append(
            _silence(
                rule,
                device,
                message,
                is_past=interval.silent_from < oldest,
            )
        )
    return conditions


def _silence(
    rule: SilenceRule,
    name: str,
    message: Message,
    *,
    is_past: bool = False,
) -> AlertCondition:
    """Report one silent device, or one pattern without a runner."""
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
    """Since when a device is silent, and how often it reported before."""
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
