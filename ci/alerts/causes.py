"""What the rules of regressions and of silent runners have to tell. Pure: what is known in, what fires out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from roofwatch.ci.alerts.rules import RegressionRule, SilenceRule
from roofwatch.ci.alerts.silence import rhythm_of
from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.report.dashboard_links import dashboard_link
from roofwatch.ci.report.owners import Ownership
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.alerts.values import Fact, Firing, Link, Message
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.values import ChangePoint, Regression, RegressionState, Verdict

_TAKEN_UP = frozenset({TriageState.NEW, TriageState.ACKNOWLEDGED})
_SUSPECTS = 3
_EVIDENCE = 3


@dataclass(frozen=True)
class Surroundings:
    """What messages are written with."""

    project: str
    now: datetime
    ownership: Ownership = field(default_factory=Ownership)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of cases, as their newest run knew them."""
    dashboard_url: str | None = None

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """A link into the dashboard; none where it is not known where that is."""
        if self.dashboard_url is None:
            return ()
        return (Link(name, dashboard_link(self.dashboard_url, view, project=self.project, **query)),)

    def is_past(self, at: datetime, within_days: float) -> bool:
        return at < self.now - timedelta(days=within_days)


def regression_firings(
    rule: RegressionRule, regressions: Iterable[tuple[Regression, Triage]], surroundings: Surroundings
) -> list[Firing]:
    """The regressions that a rule tells of: sure, not undone, and not decided to be expected, fixed or none."""
    return [
        Firing(
            rule=rule.name,
            cause=str(triage.regression_id),
            severity=rule.severity,
            message=_regression_message(regression, triage.regression_id, surroundings),
            regression_id=triage.regression_id,
            is_acknowledged=triage.state is TriageState.ACKNOWLEDGED,
            is_past=surroundings.is_past(regression.commit.committed_at, rule.within_days),
        )
        for regression, triage in regressions
        if why_not(regression, triage) is None and _is_meant(rule, regression, surroundings)
    ]


def why_not(regression: Regression, triage: Triage) -> str | None:
    """Why nobody is called for a regression; None where somebody may be."""
    if regression.verdict is not Verdict.REGRESSED:
        return "it got better" if regression.verdict is Verdict.IMPROVED else "the clock moved, the cycles did not"
    if regression.recovered_at is not None:
        recovered = regression.recovered_at
        return f"back where it was at {recovered.short_sha} ({recovered.subject}, {recovered.author})"
    if triage.state not in _TAKEN_UP:
        return f"{triage.state}, says {triage.person}: {triage.reason}"
    if regression.state is not RegressionState.OPEN:
        return "measured again, and not there"
    if not regression.is_alert:
        return "no longer sure enough to call somebody"
    return None


def silence_firings(
    rule: SilenceRule, times_by_runner: Mapping[str, Sequence[datetime]], surroundings: Surroundings
) -> list[Firing]:
    """The runners that have gone silent.

    Args:
        rule: Which, and what silence is.
        times_by_runner: When the results of each runner class came.
        surroundings: The time among them.
    """
    firings = []
    for runner_class, times in times_by_runner.items():
        silent_from = _silent_from(rule, times)
        if not rule.covers_runner(runner_class) or silent_from is None or surroundings.now < silent_from:
            continue
        last, usual = max(times), rhythm_of(times).usual_gap
        facts = [Fact("Last result", f"{last:%Y-%m-%d %H:%M} UTC, {_ago(surroundings.now - last)} ago")]
        if usual is not None:
            facts.append(Fact("Usual interval", _ago(usual)))
        firings.append(
            Firing(
                rule=rule.name,
                cause=runner_class,
                severity=rule.severity,
                message=Message(
                    title=f"no results from {runner_class} for {_ago(surroundings.now - last)}",
                    facts=tuple(facts),
                    links=surroundings.link("Overview", ""),
                ),
                is_past=surroundings.is_past(silent_from, rule.within_days),
            )
        )
    return firings


def _silent_from(rule: SilenceRule, times: Sequence[datetime]) -> datetime | None:
    rhythm = rhythm_of(times)
    ends = []
    if rule.after_hours is not None:
        ends.append(rhythm.last_at + timedelta(hours=rule.after_hours))
    if rule.times_usual is not None and rhythm.usual_gap is not None:
        ends.append(rhythm.last_at + rule.times_usual * rhythm.usual_gap)
    if rule.after_hours is None and rule.times_usual is None:
        return rhythm.silent_from
    return min(ends, default=None)


def _is_meant(rule: RegressionRule, regression: Regression, surroundings: Surroundings) -> bool:
    meant = [
        point
        for point in regression.change_points
        if rule.covers_case(point.series.kernel, surroundings.tags.get(point.series.case_id, frozenset()))
        and rule.covers_runner(point.series.runner_class)
    ]
    measured = [point for point in meant if point.series.definition.layer is Layer.MEASURED and not is_outcome(point)]
    sizes = [
        math.inf if point.relative_change is None else abs(point.relative_change)
        for point in measured
        if point.series.metric != "host_ns"  # a suspicion beside a time makes that no larger
    ]
    others = len(meant) > len(measured)
    return others or max(sizes, default=-1.0) >= rule.min_relative_change


def _regression_message(regression: Regression, regression_id: UUID, surroundings: Surroundings) -> Message:
    worst = regression.change_points[0]
    base, head = worst.previous_commit, regression.commit
    facts = [
        Fact("Since", f"{head.short_sha} {head.subject} ({head.author}, {head.committed_at:%Y-%m-%d})"),
        Fact("Range", f"{base.short_sha}..{head.short_sha}"),
        *(
            Fact("Evidence", f"{point.series.label}: {point.evidence}")
            for point in regression.change_points[:_EVIDENCE]
        ),
        *(
            Fact(f"Suspect: {suspect.cause} ({suspect.weight:.0%})", suspect.sentence)
            for suspect in regression.suspects[:_SUSPECTS]
        ),
    ]
    if regression.family:
        facts.append(Fact("Series", regression.family))
    facts.append(Fact("Sure", "confirmed" if regression.is_confirmed else "not confirmed by a paired measurement yet"))
    kernels = dict.fromkeys(point.series.kernel for point in regression.change_points)
    return Message(
        title=regression.summary,
        facts=tuple(facts),
        owners=surroundings.ownership.owners_of(kernels),
        links=(
            *surroundings.link("Regression", "regression", regression=str(regression_id)),
            *_links(worst, surroundings),
        ),
    )


def _links(worst: ChangePoint, surroundings: Surroundings) -> tuple[Link, ...]:
    series = worst.series
    asked = {
        "kernel": series.kernel,
        "metric": series.metric,
        "case": series.case_id,
        "implementation": series.implementation,
        "runner": series.runner_class,
        "target": series.target,
        "function": series.function,
        "tensor": series.tensor,
    }
    return (
        *surroundings.link("Trend", "trends", **{name: value for name, value in asked.items() if value}),
        *surroundings.link("Compare", "compare", base=worst.previous_commit.sha, head=worst.commit.sha),
    )


def _ago(time: timedelta) -> str:
    hours = time.total_seconds() / 3_600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
