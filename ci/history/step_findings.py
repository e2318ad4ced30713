"""Steps and drifts of a series as findings, with their evidence. Pure.

A step of a time is unconfirmed until its two commits are measured again in a pair. No pair confirms
a step of memory, error or host time: if all runs of a level have the same number, the step is
certain, else it stays unconfirmed.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofwatch.ci.ab.compare import ComparedRange, PairedEstimate
from roofwatch.ci.causes.evidence import (
    Observation,
    SupportingEvidence,
    describe_comparison,
    measured_again,
)
from roofwatch.ci.causes.explain import NEAR_RUNS, ChangeContext, CodeObservation, explain
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.drift import Drift
from roofwatch.ci.history.bridges import bridge_findings
from roofwatch.ci.history.commit_changes import CompiledHistory
from roofwatch.ci.history.drift_findings import drift_finding
from roofwatch.ci.history.finding import TrendFinding, windows_between
from roofwatch.ci.history.level_changes import (
    clock_checked,
    describe_counts,
    levels_in_words,
    make_change,
)
from roofwatch.ci.history.steps import (
    TIME,
    Timeline,
    find_slow_drift,
    find_time_steps,
)
from roofwatch.ci.history.value_findings import value_findings
from roofwatch.model.history import CommitRef, SeriesPoint
from roofwatch.model.metrics import metric
from roofwatch.model.verdict import Status, Verdict

_MAX_DRIFT_STEPS = 3
"""Newest steps that may be one drift: a drift cut into more moved by a fifth at least, and is not
slow.
"""
_SURE_CHANCE = 0.001
"""Largest p-value of a step that alerts without a pair: docs/explanation/error-rates.md has the
false alerts that it allows.
"""
_SURE_VALUES = 10
"""Values that its new level needs."""
_VALUES_FOR_NOISE = 20
"""Values before it, from which the noise of the series is known."""
_SURE_OF_A_DRIFT = 6.0
"""Likelihood ratio by which a drift must beat the steps in its place: odds of 20 to 1."""


def step_findings(
    lines: Sequence[Timeline],
    evidence: SupportingEvidence,
    compiled: CompiledHistory,
) -> Iterator[TrendFinding]:
    """Find all steps and drifts of a series, given by timer and cache state with the newest first.

    Of two timers that step at one commit, the newer one is reported.
    """
    seen: set[CommitRef] = set()
    for line in lines:
        if line.key.metric == TIME:
            findings = list(_time_findings(line, evidence, compiled))
        else:
            findings = list(value_findings(line, compiled))
        yield from (finding for finding in findings if finding.change.commit not in seen)
        seen.update(finding.change.commit for finding in findings)


def _time_findings(
    line: Timeline,
    evidence: SupportingEvidence,
    compiled: CompiledHistory,
) -> Iterator[TrendFinding]:
    """The steps of a time, and the drift since the last of them."""
    steps = find_time_steps(line.values, line.relative_errors)
    chances = chances_of_steps(line.values, steps)
    step_count, drift = _drift_after(line, steps, evidence)
    # what no step accounts for is reported by itself
    open_pairs = evidence.confirmed_ranges(line.key, line.commits)
    open_bridges = list(bridge_findings(line))
    for step, chance in zip(steps[:step_count], chances, strict=False):
        finding = _with_chance(
            _time_finding(
                line,
                step,
                evidence,
                compiled,
            ),
            step,
            chance,
        )
        same_pairs = [pair for pair in open_pairs if _is_same_change(finding, pair)]
        open_pairs = [pair for pair in open_pairs if pair not in same_pairs]
        if same_pairs and finding.status is Status.UNCONFIRMED:
            finding = _confirmed_by(finding, _pair_finding(line, same_pairs[0], compiled))
        crossed = [bridge for bridge in open_bridges if _is_over(finding, bridge)]
        open_bridges = [bridge for bridge in open_bridges if bridge not in crossed]
        if crossed:
            finding = _explained_by(finding, crossed[0])
        yield finding
    yield from open_bridges
    for pair in open_pairs:
        yield _pair_finding(line, pair, compiled)
    if drift is not None:
        yield drift_finding(line.since(_start_of_level(steps, step_count)), drift)


def _with_chance(
    finding: TrendFinding,
    step: Step,
    chance: float,
) -> TrendFinding:
    """Add how likely noise alone shows such a step, and the error of its size."""
    # what is not sure waits for a pair, however unlikely chance is
    if is_sure_step(step, chance):
        p_value = chance
    else:
        p_value = 1.0
    finding = replace(finding, p_value=p_value)
    if step.standard_errors <= 0:
        return finding
    return replace(finding, log_error=abs(finding.log_change) / step.standard_errors)


def _start_of_level(steps: Sequence[Step], count: int) -> int:
    """Position at which the level after so many steps begins."""
    if not count:
        return 0
    return steps[count - 1].index


def is_sure_step(step: Step, chance: float) -> bool:
    """Whether single runs are enough for an alert: the step is hardly chance, between two levels of
    enough values.

    Args:
        step: As `find_time_steps` found it.
        chance: Its p-value.
    """
    has_noise = step.index >= _VALUES_FOR_NOISE
    return chance <= _SURE_CHANCE and has_noise and step.count_after >= _SURE_VALUES


def _is_over(finding: TrendFinding, bridge: TrendFinding) -> bool:
    """Whether a step lies where the software changed, in the direction that its bridge shows."""
    # a pair has decided it already
    if finding.status is not Status.UNCONFIRMED:
        return False
    if finding.direction is not bridge.direction:
        return False
    return finding.reach.touches(bridge.reach)


def _explained_by(step: TrendFinding, bridge: TrendFinding) -> TrendFinding:
    """Blame a step on the software, with the evidence of both."""
    evidence = f"{step.change.evidence}; {bridge.change.evidence}"
    p_values = [finding.p_value for finding in (step, bridge) if finding.p_value is not None]
    return replace(
        step,
        change=replace(step.change, evidence=evidence),
        suspects=bridge.suspects,
        p_value=min(p_values),
        runner_changed=True,
        is_bridge=True,
    )


def _is_same_change(finding: TrendFinding, pair: ComparedRange) -> bool:
    window, _ = windows_between(
        commits=[pair.base, pair.head],
        first=1,
        last=1,
    )
    return finding.direction is pair.verdict and finding.reach.touches(window)


def _pair_finding(
    line: Timeline,
    pair: ComparedRange,
    compiled: CompiledHistory,
) -> TrendFinding:
    """Report a change that a pair decided, however few runs the history has."""
    comparison = pair.comparison
    index = line.commits.index(pair.head)
    before_ns = statistics.median(_values_of(line, pair.base))
    # the runs of a pair lie side by side, so only their ratio is exact
    after_ns = before_ns * (1 + comparison.relative_change)
    code = compiled.code_change(
        line.key,
        pair.base,
        pair.head,
        pair.verdict,
    )
    time = metric(TIME)
    medians = f"median time {time.format(before_ns)} to {time.format(after_ns)}"
    change = make_change(
        line=line,
        index=index,
        before=before_ns,
        after=after_ns,
        evidence=f"measured side by side: {medians}, {describe_comparison(comparison)}",
        has_code=code is not None,
    )
    # commits between the two were not measured in a pair
    change = replace(change, previous_commit=pair.base)
    # the base itself has the old time
    candidates = [commit for commit in line.commits if pair.base < commit <= pair.head]
    context = ChangeContext(
        before=line.points[pair.base],
        after=line.points[pair.head],
        log_change=comparison.log_ratio,
        candidates=frozenset(candidates),
        code=code,
        paired=comparison,
    )
    finding = TrendFinding.at_commit(
        change=change,
        status=Status.CONFIRMED,
        suspects=explain(context),
    )
    return replace(
        finding,
        measured_on=line.dates[index],
        outline=line.outline(index),
    )


def _confirmed_by(step: TrendFinding, pair: TrendFinding) -> TrendFinding:
    """Join a step with a pair that saw the same change: the narrower of the two places it."""
    base = pair.change.previous_commit
    head = pair.change.commit
    is_in_range = base < step.change.commit <= head
    if not is_in_range or step.window.width >= pair.window.width:
        return pair
    evidence = f"{step.change.evidence}; {pair.change.evidence}"
    return replace(
        step,
        change=replace(
            step.change,
            verdict=pair.change.verdict,
            reason=None,
            evidence=evidence,
        ),
        status=Status.CONFIRMED,
        suspects=pair.suspects,
    )


def _values_of(line: Timeline, commit: CommitRef) -> list[float]:
    return [run.value for run in line.points[commit] if run.value is not None]


def _drift_after(
    line: Timeline,
    steps: Sequence[Step],
    evidence: SupportingEvidence,
) -> tuple[int, Drift | None]:
    """How many of the steps to report, and the drift after them: the newest steps may be parts of a
    drift.
    """

    def drift_since(step_count: int) -> Drift | None:
        """The drift after so many steps, if there is one."""
        start = _start_of_level(steps, step_count)
        return find_slow_drift(line.values[start:], line.dates[start:])

    fewest_steps = len(steps)
    for step in reversed(steps[-_MAX_DRIFT_STEPS:]):
        _, _, comparison = evidence.check_step(line.key, line.commits, step)
        # a step that is known to the commit, or was measured again, is no drift
        if len(step.candidates) < 2 or comparison is not None:
            break
        fewest_steps -= 1
    # the drift that replaces the most steps comes first
    for step_count in range(fewest_steps, len(steps)):
        drift = drift_since(step_count)
        if drift is not None and drift.likelihood_ratio > _SURE_OF_A_DRIFT:
            return step_count, drift
    return len(steps), drift_since(len(steps))


def _time_finding(
    line: Timeline,
    step: Step,
    evidence: SupportingEvidence,
    compiled: CompiledHistory,
) -> TrendFinding:
    """Report a step of a time, with all that is known about its commit and its cause."""
    commits = line.commits
    log_change = math.log(step.after / step.before)
    index, status, comparison = evidence.check_step(line.key, commits, step)
    code = compiled.code_change(
        key=line.key,
        base=commits[index - 1],
        head=commits[index],
        verdict=Verdict.of_change(is_worse=log_change > 0),
    )
    old_runs, new_runs = _runs_around(line, index)
    change = make_change(
        line=line,
        index=index,
        before=step.before,
        after=step.after,
        evidence=_describe_time_step(step, comparison, code),
        standard_errors=step.standard_errors,
        degraded_by=_degraded_by(old_runs, new_runs),
        has_code=code is not None,
    )
    # a pair already excludes the clock: its sides ran side by side
    if status is Status.UNCONFIRMED:
        change = clock_checked(
            change,
            line.runs(step.start, step.index),
            line.runs(step.index, step.end),
            log_change,
        )
    old_level = [commits[step.start], commits[index - 1]]
    new_level = [commits[index], commits[step.end - 1]]
    levels = (old_level, new_level)
    again = _measured_again(line, step)
    # a pair explains only the step that it confirmed
    confirming_pair = None
    if status is Status.CONFIRMED:
        confirming_pair = comparison
    context = ChangeContext(
        before=old_runs,
        after=new_runs,
        log_change=log_change,
        candidates=frozenset(commits[position] for position in step.candidates),
        code=code,
        paired=confirming_pair,
        counters=evidence.counters_around(line.key, levels),
        launches=evidence.launches_around(line.key, levels, log_change),
        measured_again=again,
        sources=evidence.unchanged_code(line.key, commits, step.candidates),
    )
    finding = TrendFinding.at_commit(
        change=change,
        status=status,
        suspects=explain(context),
    )
    # without a pair, the step may lie at a neighbouring commit
    if status is not Status.CONFIRMED:
        first = min(step.candidates)
        last = max(step.candidates)
        window, reach = windows_between(commits, first, last)
        finding = replace(
            finding,
            window=window,
            reach=reach,
        )
    runner_changed = None
    if again is not None:
        runner_changed = again.has_changed
    return replace(
        finding,
        measured_on=line.dates[index],
        runner_changed=runner_changed,
        outline=line.outline(index),
    )


def _runs_around(line: Timeline, index: int) -> tuple[list[SeriesPoint], list[SeriesPoint]]:
    """The last runs of the old level and the first of the new one."""
    new_runs = line.runs(index, index + NEAR_RUNS)[:NEAR_RUNS]
    old_runs = line.runs(index - NEAR_RUNS, index)
    began = min(run.measured_at for run in new_runs)
    # runs of the old level that were made later have the new environment
    earlier_runs = [run for run in old_runs if run.measured_at < began]
    # a history measured backwards has no others
    if not earlier_runs:
        earlier_runs = old_runs
    return earlier_runs[-NEAR_RUNS:], new_runs


def _degraded_by(*sides: Sequence[SeriesPoint]) -> tuple[str, ...]:
    """Reasons on a side on which most runs were slowed down or shared."""
    reasons: set[str] = set()
    for side in sides:
        degraded = [run for run in side if run.degraded_by]
        if 2 * len(degraded) > len(side):
            reasons.update(*(run.degraded_by for run in degraded))
    return tuple(sorted(reasons))


def _measured_again(line: Timeline, step: Step) -> Observation | None:
    """Old code measured again during the new level; None if it was not."""
    # a commit at which the step may lie is neither old nor new
    first_candidate = min(step.index, *step.candidates)
    last_candidate = max(step.index, *step.candidates)
    old_runs = line.runs(step.start, first_candidate)
    new_runs = line.runs(last_candidate, step.end)
    if not old_runs or not new_runs:
        return None
    # runs of a later level say nothing about this one
    later_runs = line.runs(step.end, len(line.commits))
    return measured_again(
        old_runs,
        new_runs,
        log_change=math.log(step.after / step.before),
        ended=min((run.measured_at for run in later_runs), default=None),
    )


def _describe_time_step(
    step: Step,
    comparison: PairedEstimate | None,
    code: CodeObservation | None,
) -> str:
    errors = f"{step.standard_errors:.1f} standard errors"
    levels = levels_in_words(step.before, step.after)
    sentence = f"median time {levels}, {describe_counts(step)}, {errors}"
    if comparison is not None:
        sentence += f"; measured again side by side: {describe_comparison(comparison)}"
    # a comparison of code needs both sides compiled
    if code is None:
        return sentence
    if code.changed_targets:
        targets = f"{code.changed_targets} of {code.known_targets} targets"
        return f"{sentence}; machine code changed on {targets}"
    return f"{sentence}; machine code unchanged on all {code.known_targets} targets"
