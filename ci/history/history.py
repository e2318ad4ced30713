"""A project's history: series of values over commits to regressions. Pure.

What is judged, and by which rule (docs/explanation/verdicts.md argues each): steps and drifts of the median time
(`roofwatch.ci.history.time_steps`; rates and utilisation are the same numbers divided by constants), steps of errors,
memory and host time (`roofwatch.ci.history.value_steps`), outcomes and compiled facts of neighbouring commits
(`roofwatch.ci.history.commit_changes`).

What they find is grouped by cause (`roofwatch.ci.history.group`), and alerts are chosen
(`roofwatch.ci.history.false_alarms`). A step of a time is a suspicion until the two commits around it have been
measured again, base against head.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.commit_changes import OUTCOME_METRICS, CompiledHistory, outcome_findings
from roofwatch.ci.history.false_alarms import choose_alerts
from roofwatch.ci.history.finding import ALL_KERNELS, TrendFinding
from roofwatch.ci.history.group import group_findings
from roofwatch.ci.history.regression import Population, note_recoveries
from roofwatch.ci.history.time_steps import TimeSteps
from roofwatch.ci.history.value_steps import VALUE_METRICS, once_per_commit, timelines, value_findings
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Pair, Regression, RegressionState, Series, Verdict


@dataclass
class SeriesAnalysis:
    """What some series show, before it is grouped."""

    findings: list[TrendFinding] = field(default_factory=list)
    population: Population = field(default_factory=Population)
    """Of series of times that were judged, changed or not."""
    series_by_date: Counter[date] = field(default_factory=Counter)
    """How many of them were measured in each night."""

    def add(self, other: SeriesAnalysis) -> None:
        """Take in what other series show."""
        self.findings += other.findings
        self.population.merge(other.population)
        self.series_by_date.update(other.series_by_date)

    def regressions(self, thresholds: Thresholds) -> list[Regression]:
        """Regressions and improvements, worst first; dismissed ones last."""
        grouped = group_findings(self.findings, population=self.population, thresholds=thresholds)
        chosen = choose_alerts(grouped, series_by_date=self.series_by_date, rate=thresholds.false_discovery_rate)
        return note_recoveries(chosen, thresholds)


def judge_history(
    series: Iterable[Series], pairs: Sequence[Pair] = (), *, thresholds: Thresholds | None = None
) -> list[Regression]:
    """Find what got worse or better, at which commit, how sure that is, and what may have caused it.

    Args:
        series: Of any metrics; those that are not judged are left aside.
        pairs: Paired measurements of neighbouring commits. A step is confirmed if the pair of its commits agrees, and
            dismissed if the pair rules it out; where the step may as well lie one commit away, that pair counts too
            and the regression moves to it.
        thresholds: What is worth reporting; the defaults if left out.

    Returns:
        Regressions and improvements, worst first; dismissed ones last.
    """
    limits = thresholds or Thresholds()
    return analyse_series(series, SupportingEvidence(pairs, limits), limits).regressions(limits)


def analyse_series(series: Iterable[Series], evidence: SupportingEvidence, thresholds: Thresholds) -> SeriesAnalysis:
    """What each of some series shows.

    Args:
        series: All series of some cases: what one shows is held against the others of its case.
        evidence: What the runs and pairs show beside them.
        thresholds: What is worth reporting.
    """
    given = list(series)
    compiled = CompiledHistory(given)
    found = SeriesAnalysis(findings=list(compiled.findings()))
    for one in given:
        metric = one.key.metric
        if metric in OUTCOME_METRICS:
            found.findings.extend(outcome_findings(one))
        if metric in VALUE_METRICS:
            found.findings.extend(value_findings(one, compiled, thresholds))
        elif metric == "median_ns":
            timed = [TimeSteps(line, thresholds) for line in timelines(one)]
            found.population.add(one.key)
            found.series_by_date.update({night for steps in timed for night in steps.dates})
            found.findings.extend(once_per_commit(steps.findings(evidence, compiled) for steps in timed))
    return found


@dataclass(frozen=True, order=True)
class PairRequest:
    """What to measure base against head, to confirm or refute a step."""

    base: CommitRef
    head: CommitRef
    case_id: str
    implementation: str
    runner_class: str


def unconfirmed(regressions: Iterable[Regression]) -> list[PairRequest]:
    """What to measure again, the largest step first, slower or faster: every step of an open regression that nothing
    has confirmed; last those that the clock explains.

    Of an environment event only the largest step of each kernel: if those are not there, none is.
    """
    sizes: dict[PairRequest, tuple[bool, float]] = {}
    for regression in regressions:
        if regression.state is not RegressionState.OPEN or regression.is_confirmed:
            continue
        seen_kernels: set[str] = set()
        for change in regression.change_points:
            key = change.series
            if key.metric != "median_ns" or change.is_gradual or not change.before or not change.after:
                continue
            if regression.kernel == ALL_KERNELS and key.kernel in seen_kernels:
                continue
            seen_kernels.add(key.kernel)
            request = PairRequest(
                base=change.previous_commit,
                head=change.commit,
                case_id=key.case_id,
                implementation=key.implementation,
                runner_class=key.runner_class,
            )
            size = change.verdict is not Verdict.INCONCLUSIVE, abs(math.log(change.after / change.before))
            sizes[request] = max(sizes.get(request, size), size)
    return sorted(sizes, key=lambda request: sizes[request], reverse=True)
