"""Analyse a project's history: from series of values over commits to regressions. Pure.

Judged are steps and drifts of the median time, steps of errors, memory, host time and imported
values (`step_findings`), and outcomes and compiled facts of neighbouring commits
(`commit_changes`). Findings are grouped by cause (`group`). docs/explanation/verdicts.md argues
each rule.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from roofwatch.ci.ab.compare import largest_discovery
from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.commit_changes import OUTCOME_METRICS, CompiledHistory, outcome_findings
from roofwatch.ci.history.controls import Controls, library_events, settle_controls
from roofwatch.ci.history.finding import (
    ALL_KERNELS,
    TrendFinding,
    is_time_step,
    log_change,
)
from roofwatch.ci.history.group import group_findings
from roofwatch.ci.history.operator_changes import operator_findings
from roofwatch.ci.history.regression import Population, note_recoveries
from roofwatch.ci.history.step_findings import step_findings
from roofwatch.ci.history.steps import TIME, VALUE_METRICS, is_judged_import, timelines
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import ChangePoint, Regression, RegressionState, Series, SeriesKey
from roofwatch.model.metrics import Layer
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict


@dataclass
class SeriesAnalysis:
    """Findings of some series, before they are grouped."""

    findings: list[TrendFinding] = field(default_factory=list)
    population: Population = field(default_factory=Population)
    """Judged series of times, changed or not."""
    series_by_date: Counter[date] = field(default_factory=Counter)
    """Number of them that were measured on each day."""
    controls: Controls = field(default_factory=Controls)

    def add(self, analysis: "SeriesAnalysis") -> None:
        """Take over what was found in other series of the same project."""
        self.findings += analysis.findings
        self.population.merge(analysis.population)
        self.series_by_date.update(analysis.series_by_date)
        self.controls.merge(analysis.controls)

    def regressions(self) -> list[Regression]:
        """Regressions and improvements, worst first, dismissed ones last."""
        settled, of_libraries = settle_controls(settle_shares(self.findings), self.controls)
        grouped = group_findings(settled, population=self.population)
        chosen = choose_alerts(
            grouped,
            series_by_date=self.series_by_date,
            rate=THRESHOLDS.false_discovery_rate,
        )
        return note_recoveries([*chosen, *library_events(of_libraries, settled)])


def analyse_series(
    series: Iterable[Series],
    evidence: SupportingEvidence,
    controls: Collection[CaseKey] = (),
) -> SeriesAnalysis:
    """Find the changes of some series.

    Args:
        series: All series of some cases: the machine code of a case is evidence about its times.
        evidence: Other runs and pairs of the same cases.
        controls: Cases and implementations that are rows of a library.
    """
    all_series = list(series)
    compiled = CompiledHistory(all_series)
    analysis = SeriesAnalysis(findings=list(compiled.findings()))
    analysis.controls.subjects.update(controls)
    for case_series in all_series:
        key = case_series.key
        is_imported = is_judged_import(key)
        # a ratio has no value exactly if one of its two times has none
        if key.metric in OUTCOME_METRICS or (is_imported and not key.is_ratio_to_reference):
            analysis.findings.extend(outcome_findings(case_series))
        if key.definition.layer is Layer.OPERATORS:
            analysis.findings.extend(operator_findings(case_series))
        if key.metric not in VALUE_METRICS and key.metric != TIME and not is_imported:
            continue
        lines = timelines(case_series)
        analysis.findings.extend(step_findings(lines, evidence, compiled))
        if not key.is_performance:
            continue
        analysis.series_by_date.update({day for line in lines for day in line.dates})
        is_control = analysis.controls.has(key)
        if is_control and lines:
            analysis.controls.add(lines[0])
        # imported controls are not judged, so they do not count among the judged series
        if not (is_control and is_imported):
            analysis.population.add(key)
    return analysis


def settle_shares(findings: Iterable[TrendFinding]) -> Iterator[TrendFinding]:
    """Judge changes of shares of a workload's step by changes of the step at the same place.

    If the time of the step did not change, its kernels traded places (renamed, fused, tuned), which
    is no alert. A share that changed with the step in the same direction stays, without a p-value:
    the time decides on the alert. One that changed in the other direction only follows from the
    step, and is dropped. The rest become notes.
    """
    all_findings = list(findings)
    # a step that the clock explains is no step of the workload
    times = [
        finding for finding in all_findings if finding.is_performance and not finding.is_clock_move
    ]
    steps = group_by(times, lambda finding: _step_of(finding.change.series))
    for finding in all_findings:
        change = finding.change
        if not change.series.is_share_of_step:
            yield finding
            continue
        of_step = steps.get(_step_of(change.series), [])
        nearby = [step for step in of_step if step.reach.touches(finding.reach)]
        # the kernels traded places within an unchanged step
        if not nearby:
            note = replace(
                change,
                verdict=Verdict.INCONCLUSIVE,
                reason=Reason.COST_SHIFT,
            )
            yield replace(
                finding,
                change=note,
                p_value=None,
            )
        elif any(step.change.verdict is change.verdict for step in nearby):
            yield replace(finding, p_value=None)


def _step_of(series: SeriesKey) -> tuple[str, ...]:
    return (
        series.project,
        series.case_id,
        series.implementation,
        series.runner_class,
    )


def choose_alerts(
    regressions: Sequence[tuple[Regression, Sequence[TrendFinding]]],
    *,
    series_by_date: Mapping[date, int],
    rate: float,
) -> list[Regression]:
    """Set `is_alert` of the regressions that are sure enough, at a controlled false discovery rate.

    A step of a time has a p-value (`roofwatch.ci.changepoint.chance`), and a regression has Simes's
    (1986) over its change points. Benjamini and Hochberg's procedure (1995) controls the
    regressions of a day, not change points: a cause that changes a hundred series counts once
        (Benjamini and Heller 2007).

    Confirmed regressions always alert. Dismissed ones, unconfirmed failures and times that the
    clock explains never do.

    Args:
        regressions: Each with its findings.
        series_by_date: Number of judged series of times on each day, changed or not.
        rate: False discovery rate among a day's alerts.

    Returns:
        The regressions in the order given.
    """
    alerts = set()
    p_values: dict[int, float] = {}
    by_day: dict[date | None, list[int]] = defaultdict(list)
    for position, (regression, findings) in enumerate(regressions):
        if regression.state is not RegressionState.OPEN:
            continue
        if regression.is_confirmed:
            alerts.add(position)
        of_findings = [finding.p_value for finding in findings if finding.p_value is not None]
        if of_findings and regression.verdict is not Verdict.INCONCLUSIVE:
            p_values[position] = _joint_p_value(of_findings)
            days = [finding.measured_on for finding in findings if finding.measured_on is not None]
            by_day[min(days, default=None)].append(position)
    for day, positions in by_day.items():
        # a series that did not change is a hypothesis too, with a p-value of 1
        changed = 0
        for position in positions:
            _, findings = regressions[position]
            changed += sum(finding.p_value is not None for finding in findings)
        judged = 0
        if day is not None:
            judged = series_by_date.get(day, 0)
        count = len(positions) + max(judged - changed, 0)
        of_day = [p_values[position] for position in positions]
        largest = largest_discovery(of_day, rate, count)
        alerts.update(position for position in positions if p_values[position] <= largest)
    return [
        replace(regression, is_alert=position in alerts)
        for position, (regression, _) in enumerate(regressions)
    ]


def _joint_p_value(p_values: Iterable[float]) -> float:
    """The p-value of the hypothesis that none of several series changed (Simes 1986)."""
    ordered = sorted(p_values)
    series_count = len(ordered)
    corrected = [p * series_count / rank for rank, p in enumerate(ordered, start=1)]
    return min(1.0, *corrected)


def unconfirmed(regressions: Iterable[Regression]) -> list[ChangePoint]:
    """List the steps to measure again in pairs: those of open, unconfirmed regressions, the largest
    first.

    Steps that the clock explains come last. Of an environment event, only the largest step of each
    kernel counts.
    """
    steps: list[ChangePoint] = []
    for regression in regressions:
        if regression.state is RegressionState.OPEN and not regression.is_confirmed:
            points = [point for point in regression.change_points if is_time_step(point)]
            if regression.kernel == ALL_KERNELS:
                points = list({point.series.kernel: point for point in reversed(points)}.values())
            steps += points
    return sorted(
        steps,
        key=lambda step: (step.verdict is not Verdict.INCONCLUSIVE, abs(log_change(step))),
        reverse=True,
    )
