"""What the rules of levels have to tell: a rate below its floor, a time or memory above its limit, a utilisation below
its objective, a growing error. Pure.

The median of the newest runs counts, so that one run that went badly calls nobody. Cases of one kernel on one runner
are one cause.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.alerts.causes import Surroundings
from roofwatch.ci.alerts.rules import AccuracyRule, FloorRule, LevelRule, LimitRule, UtilisationRule
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import metric
from roofwatch.db.alerts.values import CaseError, Fact, Firing, Message
from roofwatch.db.queries.run_values import MeasuredCase

_NAMED_CASES = 5


@dataclass(frozen=True)
class RunLevels:
    """What one run of a runner measured."""

    cases: tuple[MeasuredCase, ...]
    errors: tuple[CaseError, ...] = ()


@dataclass(frozen=True)
class _Shortfall:
    """One case and implementation that is on the wrong side."""

    case: MeasuredCase | CaseError
    by: float
    """How far, as a ratio above 1: the larger the worse."""
    sentence: str


def level_firings(
    rule: LevelRule, runs_by_runner: Mapping[str, Sequence[RunLevels]], surroundings: Surroundings
) -> list[Firing]:
    """The kernels whose level is wrong, by runner.

    Args:
        rule: What is wrong, of which kernels and runners.
        runs_by_runner: The newest runs of each runner class, in the order of the branch.
        surroundings: What messages are written with.
    """
    firings = []
    for runner_class, runs in runs_by_runner.items():
        if not rule.covers_runner(runner_class):
            continue
        by_kernel: dict[str, list[_Shortfall]] = defaultdict(list)
        for values in _histories(rule, runs, surroundings):
            shortfall = _shortfall(rule, values)
            if shortfall is not None:
                by_kernel[shortfall.case.kernel].append(shortfall)
        firings += [
            _firing(rule, kernel, runner_class, shortfalls, surroundings) for kernel, shortfalls in by_kernel.items()
        ]
    return firings


def runs_needed(rule: LevelRule) -> int:
    """How many runs of a runner a rule looks at."""
    return rule.runs + (rule.against_runs if isinstance(rule, AccuracyRule) else 0)


_History = Sequence[tuple[MeasuredCase | CaseError, float]]


def _histories(rule: LevelRule, runs: Sequence[RunLevels], surroundings: Surroundings) -> Iterator[_History]:
    """The values of each case and implementation that a rule covers, oldest first."""
    values: dict[tuple[str, str], list[tuple[MeasuredCase | CaseError, float]]] = defaultdict(list)
    for run in runs:
        for case, value in _values(rule, run):
            if rule.covers_case(case.kernel, surroundings.tags.get(case.case_id, frozenset())):
                values[case.case_id, case.implementation].append((case, value))
    return iter(values.values())


def _values(rule: LevelRule, run: RunLevels) -> Iterator[tuple[MeasuredCase | CaseError, float]]:
    if isinstance(rule, AccuracyRule):
        yield from ((error, error.rmse_ratio) for error in run.errors)
        return
    for case in run.cases:
        value = _value(rule, case)
        if value is not None:
            yield case, value


def _value(rule: FloorRule | LimitRule | UtilisationRule, case: MeasuredCase) -> float | None:
    if case.outcome is not Outcome.OK or not case.median_ns:
        return None
    if isinstance(rule, LimitRule):
        values = {"host_ns": case.host_ns, "peak_allocated_bytes": case.peak_allocated_bytes}
        return values.get(rule.metric, case.median_ns)
    if not isinstance(rule, FloorRule):
        return case.utilisation
    work = case.flop_count if rule.metric == "flop_per_s" else case.memory_bytes
    return work / (case.median_ns * 1e-9) if work else None


def _shortfall(rule: LevelRule, history: _History) -> _Shortfall | None:
    case = history[-1][0]
    values = [value for _, value in history]
    newest = statistics.median(values[-rule.runs :])
    subject = f"{case.case_id} · {case.implementation}"
    if isinstance(rule, AccuracyRule):
        older = values[-rule.runs - rule.against_runs : -rule.runs]
        usual = statistics.median(older) if older else 0.0
        if len(values) <= rule.runs or newest <= usual * (1 + rule.grown_by) or not usual:
            return None
        shown = metric("rmse_ratio").format
        return _Shortfall(case, newest / usual, f"{subject}: {shown(usual)} to {shown(newest)}")
    if isinstance(rule, LimitRule):
        if newest <= rule.limit:
            return None
        shown = metric(rule.metric).format
        return _Shortfall(case, newest / rule.limit, f"{subject}: {shown(newest)}, allowed {shown(rule.limit)}")
    limit = rule.floor if isinstance(rule, FloorRule) else rule.objective
    if newest >= limit:
        return None
    shown = metric(rule.metric if isinstance(rule, FloorRule) else "utilisation").format
    return _Shortfall(case, limit / max(newest, 1e-300), f"{subject}: {shown(newest)}, wanted {shown(limit)}")


def _firing(
    rule: LevelRule, kernel: str, runner_class: str, shortfalls: Iterable[_Shortfall], surroundings: Surroundings
) -> Firing:
    worst_first = sorted(shortfalls, key=lambda one: (-one.by, one.case.case_id, one.case.implementation))
    facts = [Fact("Runner", runner_class), Fact("Judged by", f"the median of the newest {rule.runs} runs")]
    facts += [Fact("Case", one.sentence) for one in worst_first[:_NAMED_CASES]]
    if len(worst_first) > _NAMED_CASES:
        facts.append(Fact("And", f"{len(worst_first) - _NAMED_CASES} more cases"))
    return Firing(
        rule=rule.name,
        cause=f"{kernel}\n{runner_class}",
        severity=rule.severity,
        message=Message(
            title=f"{kernel}: {_what(rule)} in {_cases(len(worst_first))} on {runner_class}",
            facts=tuple(facts),
            owners=surroundings.ownership.owners_of([kernel]),
            links=surroundings.link("Trend", "trends", kernel=kernel, runner=runner_class),
        ),
    )


def _what(rule: LevelRule) -> str:
    if isinstance(rule, AccuracyRule):
        return f"the error has grown by more than {rule.grown_by:.0%}"
    if isinstance(rule, FloorRule):
        return f"below its floor of {metric(rule.metric).format(rule.floor)}"
    if isinstance(rule, LimitRule):
        known = metric(rule.metric)
        return f"{known.title} above its limit of {known.format(rule.limit)}"
    return f"below its objective of {metric('utilisation').format(rule.objective)} utilisation"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
