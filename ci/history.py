"""A project's history: series of values over commits to regressions. Pure.

What is judged, and by which rule (docs/analysis.md argues each):

- times: steps of the median time per commit (`ci.detect`); the other measured metrics are the same numbers divided by
  constants and are not judged twice;
- outcomes of accuracy checks and of measurements: what worked at the commit before and fails now, or the reverse;
- compiled facts: between neighbouring commits, exact. Only what a thread keeps in device memory decides.

A step of a time is a suspicion until the two commits around it have been measured again, base against head.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ci import detect
from ci.compare import Comparison, compare
from ci.group import ALL_KERNELS, Finding, Status, group_findings, kernel_of
from ci.static import DECISIVE_FACTS, facts_in_words, judge_facts, moved_facts
from ci.thresholds import Thresholds
from collector.metrics import Layer, metric
from collector.part import Outcome
from db.values import (
    Cause,
    ChangePoint,
    CommitRef,
    Pair,
    Regression,
    RegressionState,
    Series,
    SeriesKey,
    SeriesPoint,
    Verdict,
)

_MACHINE_DEPENDENT = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID})
"""Failures that the machine can cause alone: believed when two runs agree."""
_MAX_MESSAGE = 200
_OUTCOME_METRICS = frozenset({"median_ns", "rmse_ratio"})


@dataclass(frozen=True, order=True)
class PairRequest:
    """What to measure base against head, to confirm or refute a step."""

    base: CommitRef
    head: CommitRef
    case_id: str
    implementation: str
    runner_class: str


def judge_history(
    series: Sequence[Series], pairs: Sequence[Pair] = (), *, thresholds: Thresholds | None = None
) -> list[Regression]:
    """Find what got worse or better, at which commit, and how sure that is.

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
    evidence = _PairEvidence(pairs, limits)
    machine_code = _machine_code(series)
    findings: list[Finding] = []
    time_series: list[SeriesKey] = []
    for one in series:
        if one.key.metric in _OUTCOME_METRICS:
            findings.extend(_outcome_findings(one))
        if one.key.metric == "median_ns":
            time_series.append(one.key)
            findings.extend(_time_findings(one, evidence, machine_code, limits))
    findings.extend(_static_findings(series))
    return group_findings(findings, time_series=time_series, thresholds=limits)


def unconfirmed(regressions: Iterable[Regression]) -> list[PairRequest]:
    """What to measure again, the largest step first, slower or faster: every step of an open regression that nothing
    has confirmed.

    Of an environment event only the largest step of each kernel: if those are not there, none is.
    """
    sizes: dict[PairRequest, float] = {}
    for regression in regressions:
        if regression.state is not RegressionState.OPEN or regression.is_confirmed:
            continue
        seen_kernels: set[str] = set()
        for change in regression.change_points:
            key = change.series
            if key.metric != "median_ns" or not change.before or not change.after:
                continue
            if regression.kernel == ALL_KERNELS and kernel_of(key) in seen_kernels:
                continue
            seen_kernels.add(kernel_of(key))
            request = PairRequest(
                base=change.previous_commit,
                head=change.commit,
                case_id=key.case_id,
                implementation=key.implementation,
                runner_class=key.runner_class,
            )
            sizes[request] = max(sizes.get(request, 0.0), abs(math.log(change.after / change.before)))
    return sorted(sizes, key=lambda request: -sizes[request])


class _PairEvidence:
    """Comparisons of paired measurements, by what was measured. Blocks of several pairs of the same thing add up."""

    def __init__(self, pairs: Sequence[Pair], thresholds: Thresholds) -> None:
        blocks: dict[tuple[object, ...], tuple[list[tuple[float, ...]], list[tuple[float, ...]]]] = {}
        for pair in pairs:
            if len(pair.base_blocks_ns) != len(pair.head_blocks_ns):
                continue  # one side was cut short: its blocks have no partners
            key = (
                pair.project,
                pair.case_id,
                pair.implementation,
                pair.runner_class,
                pair.base.sha,
                pair.head.sha,
            )
            base, head = blocks.setdefault(key, ([], []))
            base.extend(pair.base_blocks_ns)
            head.extend(pair.head_blocks_ns)
        self._comparisons = {
            key: compare(base, head, threshold=thresholds.relative_change)
            for key, (base, head) in blocks.items()
            if base
        }

    def find(self, key: SeriesKey, base: CommitRef, head: CommitRef) -> Comparison | None:
        measured = (key.project, key.case_id, key.implementation, key.runner_class, base.sha, head.sha)
        return self._comparisons.get(measured)


def _by_commit(points: Iterable[SeriesPoint]) -> dict[CommitRef, list[SeriesPoint]]:
    grouped: dict[CommitRef, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        grouped[point.commit].append(point)
    return dict(sorted(grouped.items()))


# --- times


def _time_findings(
    series: Series, evidence: _PairEvidence, machine_code: _MachineCode, thresholds: Thresholds
) -> Iterator[Finding]:
    medians = {
        commit: statistics.median(values)
        for commit, points in _by_commit(series.points).items()
        if (values := [point.value for point in points if point.value is not None])
    }
    commits = list(medians)
    steps = detect.find_change_points(list(medians.values()), min_relative_change=thresholds.trend_relative_change)
    for step in steps:
        yield _time_finding(series.key, commits, step, evidence, machine_code)


def _time_finding(
    key: SeriesKey,
    commits: Sequence[CommitRef],
    step: detect.ChangePoint,
    evidence: _PairEvidence,
    machine_code: _MachineCode,
) -> Finding:
    verdict = Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED
    index, status, comparison = _look_again(key, commits, step, verdict, evidence)
    commit, previous = commits[index], commits[index - 1]
    sentence = (
        f"median time {metric('median_ns').format(step.before)} to {metric('median_ns').format(step.after)} "
        f"({step.after / step.before - 1:+.1%}), {step.count_before} commits before and {step.count_after} after, "
        f"{step.standard_errors:.1f} standard errors"
    )
    if comparison is not None:
        sentence += f"; measured again side by side: {_in_words(comparison)}"
    code = machine_code.changed_targets(key, previous, commit)
    if code is not None:
        changed, known = code
        sentence += (
            f"; machine code changed on {changed} of {known} targets"
            if changed
            else f"; machine code unchanged on all {known} targets"
        )
    is_code = status is Status.CONFIRMED or (code is not None and code[0] > 0)
    change = ChangePoint(
        series=key,
        commit=commit,
        previous_commit=previous,
        verdict=verdict,
        before=step.before,
        after=step.after,
        evidence=sentence,
    )
    return Finding(change, Cause.CODE if is_code else Cause.UNKNOWN, status)


def _look_again(
    key: SeriesKey,
    commits: Sequence[CommitRef],
    step: detect.ChangePoint,
    verdict: Verdict,
    evidence: _PairEvidence,
) -> tuple[int, Status, Comparison | None]:
    """Hold a step against the paired measurements of its commits, and of the neighbouring ones that it may as well
    lie at: the index it is at, how sure that is, and the comparison that says so.
    """
    neighbours = [index for index in step.candidates if abs(index - step.index) == 1]
    open_at: tuple[int, Comparison | None] | None = None
    for index in [step.index, *neighbours]:
        comparison = evidence.find(key, commits[index - 1], commits[index])
        if comparison is not None and comparison.verdict is verdict:
            return index, Status.CONFIRMED, comparison
        if (comparison is None or not _rules_out(comparison, step, verdict)) and open_at is None:
            open_at = index, comparison
    if open_at is not None:
        return open_at[0], Status.UNCONFIRMED, open_at[1]
    return step.index, Status.REFUTED, evidence.find(key, commits[step.index - 1], commits[step.index])


def _rules_out(comparison: Comparison, step: detect.ChangePoint, verdict: Verdict) -> bool:
    """Whether a paired measurement leaves no room for a step: it says unchanged or the opposite, or its interval
    holds no change at all and ends below half of the step.
    """
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison.verdict is not verdict
    low, high = comparison.relative_interval
    ratio = step.after / step.before
    if verdict is Verdict.REGRESSED:
        return low <= 0 and 1 + high < ratio**0.5
    return high >= 0 and 1 + low > ratio**0.5


def _in_words(comparison: Comparison) -> str:
    low, high = comparison.relative_interval
    return (
        f"{comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%}, "
        f"{comparison.block_count} blocks): {comparison.verdict}"
    )


# --- outcomes


def _outcome_findings(series: Series) -> Iterator[Finding]:
    ends = [(commit, _outcome_of(points)) for commit, points in _by_commit(series.points).items()]
    run_counts = {commit: len(points) for commit, points in _by_commit(series.points).items()}
    for position, ((previous, before), (commit, after)) in enumerate(pairwise(ends), start=1):
        if (before.outcome is Outcome.OK) == (after.outcome is Outcome.OK):
            continue
        is_broken = after.outcome is not Outcome.OK
        failing = after if is_broken else before
        # the run of failing commits that this change begins or ends
        spell = ends[position:] if is_broken else ends[:position][::-1]
        failing_runs = 0
        for other, point in spell:
            if point.outcome is Outcome.OK:
                break
            failing_runs += run_counts[other]
        is_sure = failing.outcome not in _MACHINE_DEPENDENT or failing_runs >= 2
        change = ChangePoint(
            series=series.key,
            commit=commit,
            previous_commit=previous,
            verdict=Verdict.REGRESSED if is_broken else Verdict.IMPROVED,
            before=before.value,
            after=after.value,
            evidence=_outcome_sentence(series.key, before, after),
        )
        yield Finding(change, Cause.CODE, Status.CONFIRMED if is_sure else Status.UNCONFIRMED)


def _outcome_of(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """A commit works if any of its runs did; else how the last one ended."""
    return next((point for point in points if point.outcome is Outcome.OK), points[-1])


def _outcome_sentence(key: SeriesKey, before: SeriesPoint, after: SeriesPoint) -> str:
    what = "accuracy" if key.definition.layer is Layer.ACCURACY else "measurement"
    return f"{what} was {before.outcome}, is {after.outcome}{_in_brackets(after.message)}"


def _in_brackets(message: str | None) -> str:
    """What a failure said, on one line and short enough for a sentence."""
    if not message:
        return ""
    line = " ".join(message.split())
    return f" ({line[:_MAX_MESSAGE]}…)" if len(line) > _MAX_MESSAGE else f" ({line})"


# --- compiled facts

_Function = tuple[str, str, str, str, str]
"""Project, case id, implementation, function, target."""


@dataclass(frozen=True)
class _Facts:
    """What one commit's compiler made of one function for one target."""

    outcome: Outcome
    code_hash: str | None
    message: str | None
    values: Mapping[str, float]
    keys: Mapping[str, SeriesKey]


def _facts_by_function(series: Sequence[Series]) -> dict[_Function, dict[CommitRef, _Facts]]:
    collected: dict[_Function, dict[CommitRef, _Facts]] = defaultdict(dict)
    for one in series:
        key = one.key
        if key.definition.layer is not Layer.STATIC:
            continue
        function = (key.project, key.case_id, key.implementation, key.function, key.target)
        for point in one.points:
            # several runs of one commit compile the same code: the last one counts
            so_far = collected[function].get(point.commit)
            values = {} if so_far is None else dict(so_far.values)
            keys = {} if so_far is None else dict(so_far.keys)
            keys[key.metric] = key
            if point.value is not None:
                values[key.metric] = point.value
            collected[function][point.commit] = _Facts(point.outcome, point.code_hash, point.message, values, keys)
    return {function: dict(sorted(by_commit.items())) for function, by_commit in collected.items()}


def _static_findings(series: Sequence[Series]) -> Iterator[Finding]:
    for by_commit in _facts_by_function(series).values():
        for (previous, before), (commit, after) in pairwise(by_commit.items()):
            for change in _static_changes(before, after, previous, commit):
                yield Finding(change, Cause.CODE, Status.CONFIRMED)


def _static_changes(before: _Facts, after: _Facts, previous: CommitRef, commit: CommitRef) -> Iterator[ChangePoint]:
    works = after.outcome is Outcome.OK
    if (before.outcome is Outcome.OK) != works:
        metrics = [name for name in (*DECISIVE_FACTS, *after.keys) if name in after.keys and name in before.keys]
        if not metrics:
            return
        yield ChangePoint(
            series=after.keys[metrics[0]],
            commit=commit,
            previous_commit=previous,
            verdict=Verdict.IMPROVED if works else Verdict.REGRESSED,
            before=before.values.get(metrics[0]) if works is False else None,
            after=after.values.get(metrics[0]) if works else None,
            evidence=f"compiling was {before.outcome}, is {after.outcome}{_in_brackets(after.message)}",
        )
        return
    if not works or (before.code_hash is not None and before.code_hash == after.code_hash):
        return
    verdict = judge_facts(before.values, after.values)
    if verdict is Verdict.UNCHANGED:
        return
    for name in DECISIVE_FACTS:
        if name not in moved_facts(before.values, after.values):
            continue
        is_worse = metric(name).is_worse(base=before.values[name], head=after.values[name])
        if is_worse is (verdict is Verdict.REGRESSED):
            yield ChangePoint(
                series=after.keys[name],
                commit=commit,
                previous_commit=previous,
                verdict=verdict,
                before=before.values[name],
                after=after.values[name],
                evidence=f"machine code changed: {facts_in_words(before.values, after.values)}",
            )


class _MachineCode:
    """Which targets' machine code of an implementation changed between two commits."""

    def __init__(self, facts: Mapping[_Function, Mapping[CommitRef, _Facts]]) -> None:
        self._hashes: dict[tuple[str, str, str, CommitRef], dict[str, set[str]]] = defaultdict(dict)
        for (project, case_id, implementation, _, target), by_commit in facts.items():
            for commit, one in by_commit.items():
                if one.code_hash is not None:
                    targets = self._hashes[project, case_id, implementation, commit]
                    targets.setdefault(target, set()).add(one.code_hash)

    def changed_targets(self, key: SeriesKey, base: CommitRef, head: CommitRef) -> tuple[int, int] | None:
        """How many targets changed, of how many known on both sides; None where none is."""
        before = self._hashes.get((key.project, key.case_id, key.implementation, base), {})
        after = self._hashes.get((key.project, key.case_id, key.implementation, head), {})
        known = before.keys() & after.keys()
        if not known:
            return None
        return sum(before[target] != after[target] for target in known), len(known)


def _machine_code(series: Sequence[Series]) -> _MachineCode:
    return _MachineCode(_facts_by_function(series))
