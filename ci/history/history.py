"""A project's history: series of values over commits to regressions. Pure.

What is judged, and by which rule (docs/analysis.md argues each):

- times: steps of the median time per commit (`roofwatch.ci.history.time_steps`), each timer and cache state for itself
  (`roofwatch.ci.history.timed_history`); rates and utilisation are the same numbers divided by constants and are not
  judged
  twice;
- what is measured beside them: steps of the host's time of a launch and of the memory of one
  (`roofwatch.ci.history.secondary_change`);
- errors of results: steps within their tolerance (`roofwatch.ci.history.error_steps`);
- outcomes of accuracy checks and of measurements: what worked at the commit before and fails now, or the reverse
  (`roofwatch.ci.history.outcome_changes`);
- compiled facts: between neighbouring commits, exact. Only what a thread keeps in device memory, and whether a block
  fits at all, decides (`roofwatch.ci.causes.compiled_changes`).

What they find is put together by cause (`roofwatch.ci.history.group`), what may call somebody is chosen
(`roofwatch.ci.history.false_alarms`), and
what is back where it was is noted (`roofwatch.ci.history.recovery`). A step of a time is a suspicion until the two
commits around
it have been measured again, base against head.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.causes.compiled_changes import CompiledHistory
from roofwatch.ci.causes.runner_evidence import Calibrations
from roofwatch.ci.history.error_steps import METRIC as ERROR
from roofwatch.ci.history.error_steps import ErrorSteps
from roofwatch.ci.history.false_alarms import choose_alerts
from roofwatch.ci.history.family import Population
from roofwatch.ci.history.group import ALL_KERNELS, group_with_findings
from roofwatch.ci.history.outcome_changes import OUTCOME_METRICS, outcome_findings
from roofwatch.ci.history.points import points_by_commit
from roofwatch.ci.history.recovery import note_recoveries
from roofwatch.ci.history.secondary_change import BESIDE_TIME, BesideTime
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.history.timed_history import TimedHistory
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Pair, Regression, RegressionState, Series, Verdict


@dataclass(frozen=True, order=True)
class PairRequest:
    """What to measure base against head, to confirm or refute a step."""

    base: CommitRef
    head: CommitRef
    case_id: str
    implementation: str
    runner_class: str


@dataclass
class Gathered:
    """What series tell, before it is put together."""

    findings: list[TrendFinding] = field(default_factory=list)
    population: Population = field(default_factory=Population)
    """Of series of times that were judged, moved or not."""
    series_by_date: Counter[date] = field(default_factory=Counter)
    """How many of them were measured in each night."""

    def add(self, other: Gathered) -> None:
        """Take in what other series tell."""
        self.findings += other.findings
        self.population.merge(other.population)
        self.series_by_date.update(other.series_by_date)


def judge_history(
    series: Iterable[Series], pairs: Sequence[Pair] = (), *, thresholds: Thresholds | None = None
) -> list[Regression]:
    """Find what got worse or better, at which commit, how sure that is, and what may have caused it.

    Args:
        series: Of any metrics; those that are not judged are left aside.
        pairs: Paired measurements of neighbouring commits. A step is confirmed if the pair of its commits agrees, and
            dismissed if the pair rules it out; where the step may as well lie one commit away, that pair counts too
            and the regression moves to it.
        thresholds: What is worth telling; the defaults if left out.

    Returns:
        Regressions and improvements, worst first; dismissed ones last.
    """
    limits = thresholds or Thresholds()
    witnesses = Witnesses(calibrations=Calibrations(pairs))
    return put_together(gather(series, PairEvidence(pairs, limits), limits, witnesses), limits)


def gather(
    series: Iterable[Series],
    evidence: PairEvidence,
    thresholds: Thresholds,
    witnesses: Witnesses | None = None,
) -> Gathered:
    """What each of some series tells.

    Args:
        series: All series of some cases: what one tells is held against the others of its case.
        evidence: Of paired measurements.
        thresholds: What is worth telling.
        witnesses: What the runs show beside their times; none if left out.
    """
    given = list(series)
    compiled = CompiledHistory(given)
    gathered = Gathered(findings=list(compiled.findings()))
    for one in given:
        if one.key.metric in BESIDE_TIME:
            beside_time = BesideTime.of(one, thresholds)
            gathered.findings.extend(beside_time.findings(compiled))
        if one.key.metric not in OUTCOME_METRICS:
            continue
        by_commit = points_by_commit(one.points)
        gathered.findings.extend(outcome_findings(one, by_commit))
        if one.key.metric == "median_ns":
            timed = TimedHistory.of(one, thresholds)
            gathered.population.add(one.key)
            gathered.series_by_date.update(timed.dates)
            gathered.findings.extend(timed.findings(evidence, compiled, witnesses or Witnesses()))
        elif one.key.metric == ERROR:
            errors = ErrorSteps(one.key, by_commit, thresholds)
            gathered.findings.extend(errors.findings(compiled))
    return gathered


def put_together(gathered: Gathered, thresholds: Thresholds) -> list[Regression]:
    """Regressions of all that was gathered, worst first."""
    grouped = group_with_findings(gathered.findings, population=gathered.population, thresholds=thresholds)
    chosen = choose_alerts(grouped, series_by_date=gathered.series_by_date, rate=thresholds.false_discovery_rate)
    return note_recoveries(chosen, thresholds)


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
