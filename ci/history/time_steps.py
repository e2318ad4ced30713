"""Steps of the times of a history, each with all that it was held against. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.clock import clock_step
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.causes.evidence import SupportingEvidence, describe_comparison
from roofwatch.ci.causes.explain import NEAR_RUNS, ChangeContext, CodeChange, explain
from roofwatch.ci.causes.runner_evidence import RunnerEvidence, measured_again
from roofwatch.ci.changepoint import detect
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.drift import Drift, PartialFix, find_partial_fixes
from roofwatch.ci.history.commit_changes import CompiledHistory
from roofwatch.ci.history.finding import Status, TrendFinding, windows_between
from roofwatch.ci.history.slow_drift import drift_finding, find_slow_drift
from roofwatch.ci.history.value_steps import Timeline, timelines
from roofwatch.ci.reason import Reason
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import ChangePoint, Series, SeriesPoint, Verdict

QUARTILES_TO_ERROR = 1.2533 / 1.349
"""Standard error of a median, in distances between the quartiles, of one value: 1.2533 σ, and the quartiles of a normal
distribution lie 1.349 σ apart."""
_MOST_OF_A_DRIFT = 3
"""Newest steps that are held against a drift together: one that was cut into more moved by a fifth at least, and is
nothing slow."""
_SURE_OF_A_DRIFT = 6.0
"""By how much more than it takes to report a drift it must be likelier than the steps in its place: odds of 20 to 1
once more, since a step names a commit, and a drift none."""
_ENOUGH_FOR_NOISE = 20
"""Commits before which the noise of a series is not known well enough."""


class TimeSteps:
    """One series of times by one timer and cache state, and where it steps."""

    def __init__(self, line: Timeline, thresholds: Thresholds) -> None:
        self._line = line
        self._thresholds = thresholds
        self._errors = [_relative_error(runs) for runs in line.points.values()]
        self.dates = [_first_measured(runs) for runs in line.points.values()]
        """When each commit was first measured, in UTC."""
        self._steps = find_steps(line.values, self._errors, thresholds)

    def findings(self, evidence: SupportingEvidence, compiled: CompiledHistory) -> Iterator[TrendFinding]:
        """Every step, and the drift since the last of them: a step is the plainer explanation."""
        line = self._line
        count = self._count_steps(evidence)
        chances = chances_of_steps(line.values, self._steps)
        least = self._thresholds.drift_relative_change
        ratchets = {one.worse_at: one for one in find_partial_fixes(self._steps, min_relative_change=least)}
        for step, chance in zip(self._steps[:count], chances[:count], strict=True):
            yield self._finding(step, chance, ratchets.get(step.index), evidence, compiled)
        begins, drift = self._drift_since(count)
        if drift is not None:
            since = replace(line, points={commit: line.points[commit] for commit in line.commits[begins:]})
            yield drift_finding(since, drift, self.dates[begins:], self._thresholds)

    def _drift_since(self, step_count: int) -> tuple[int, Drift | None]:
        """Where the level after so many steps begins, and the drift since then."""
        begins = self._steps[step_count - 1].index if step_count else 0
        return begins, find_slow_drift(self._line.values[begins:], self.dates[begins:], self._thresholds)

    def _count_steps(self, evidence: SupportingEvidence) -> int:
        """How many of the steps are reported: the newest may be a drift that was cut up."""
        count = least = len(self._steps)
        for step in reversed(self._steps[-_MOST_OF_A_DRIFT:]):
            # one that is known to the commit, or was measured again, is a step
            if len(step.candidates) < 2:
                break
            if evidence.check_step(self._line.key, self._line.commits, step)[2] is not None:
                break
            least -= 1
        for kept in range(least, count):
            _, drift = self._drift_since(kept)
            if drift is not None and drift.likelihood_ratio > _SURE_OF_A_DRIFT:
                return kept
        return count

    def _finding(
        self,
        step: detect.Step,
        chance: float,
        ratchet: PartialFix | None,
        evidence: SupportingEvidence,
        compiled: CompiledHistory,
    ) -> TrendFinding:
        line = self._line
        key, commits = line.key, line.commits
        index, status, comparison = evidence.check_step(key, commits, step)
        verdict = Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED
        code = compiled.code_change(key, commits[index - 1], commits[index], verdict)
        change = ChangePoint(
            series=key,
            commit=commits[index],
            previous_commit=commits[index - 1],
            verdict=verdict,
            before=step.before,
            after=step.after,
            evidence=_sentence(step, comparison, code) + self._never_came_back(ratchet),
        )
        log_change = math.log(step.after / step.before)
        if status is Status.UNCONFIRMED:
            change = self._in_cycles(change, step, log_change)
        runner = self._runner(step, log_change, evidence)
        after = line.runs(index, index + NEAR_RUNS)[:NEAR_RUNS]
        levels = (
            [commits[step.index - step.count_before], commits[index - 1]],
            [commits[index], commits[step.index + step.count_after - 1]],
        )
        context = ChangeContext(
            before=_measured_before(line.runs(index - NEAR_RUNS, index), after)[-NEAR_RUNS:],
            after=after,
            log_change=log_change,
            candidates=frozenset(commits[place] for place in step.candidates),
            code=code,
            paired=comparison if status is Status.CONFIRMED else None,
            counted=evidence.counters_around(key, levels),
            launched=evidence.launches_around(key, levels),
            runner=runner,
        )
        finding = TrendFinding.at_commit(change, status, explain(context))
        if status is not Status.CONFIRMED:
            window, reach = windows_between(commits, min(step.candidates), max(step.candidates))
            finding = replace(finding, window=window, reach=reach)
        return replace(
            finding,
            log_error=abs(log_change) / step.standard_errors if step.standard_errors > 0 else 0.0,
            p_value=chance,
            night=self.dates[index],
            runner=None if runner.again is None else runner.again.move,
        )

    def _in_cycles(self, change: ChangePoint, step: detect.Step, log_change: float) -> ChangePoint:
        """The change, which is inconclusive where the clock explains it."""
        before = self._line.runs(step.index - step.count_before, step.index)
        after = self._line.runs(step.index, step.index + step.count_after)
        in_cycles = clock_step(before, after, log_change)
        least = self._thresholds.trend_relative_change
        if in_cycles is None or not in_cycles.is_clock_move(min_relative_change=least):
            return change
        return replace(
            change,
            verdict=Verdict.INCONCLUSIVE,
            evidence=f"{change.evidence}; {Reason.CLOCK_MOVED}: {in_cycles.in_words()}",
        )

    def _runner(self, step: detect.Step, log_change: float, evidence: SupportingEvidence) -> RunnerEvidence:
        """What code from before the step says of the runner while the new level stands."""
        line, end = self._line, step.index + step.count_after
        # a commit that may itself have done it is neither old nor new
        old = line.runs(step.index - step.count_before, min(step.index, *step.candidates))
        new = line.runs(max(step.index, *step.candidates), end)
        if not old or not new:
            return RunnerEvidence()
        ended = min((run.measured_at for run in line.runs(end, len(line.commits))), default=None)
        return RunnerEvidence(
            again=measured_again(old, new, log_change=log_change, ended=ended),
            floor=evidence.calibrations.floor_around(line.key, min(run.measured_at for run in new), ended),
        )

    def _never_came_back(self, ratchet: PartialFix | None) -> str:
        if ratchet is None:
            return ""
        return (
            f"; a fix at {self._line.commits[ratchet.better_at].short_sha} brought it back to "
            f"{metric('median_ns').format(ratchet.after)} only: {ratchet.kept_share:.0%} of the change is still there"
        )


def find_steps(
    values: Sequence[float] | NDArray[np.float64],
    errors: Sequence[float] | NDArray[np.float64],
    thresholds: Thresholds,
) -> list[detect.Step]:
    """Steps of a time.

    Args:
        values: Medians, a commit each.
        errors: Their standard errors as a fraction; NaN where they are not known.
        thresholds: What is worth reporting.
    """
    return detect.find_change_points(
        values, min_relative_change=thresholds.trend_relative_change, relative_errors=errors
    )


def series_noise(series: Series, thresholds: Thresholds | None = None) -> detect.NoiseFloor | None:
    """How noisy a series of times is, by the newest timer and cache state, and how small a step it can show; None of
    what is no time, and of fewer than 20 commits.
    """
    lines = timelines(series)
    if series.key.metric != "median_ns" or not lines or len(lines[0].commits) < _ENOUGH_FOR_NOISE:
        return None
    limits = thresholds or Thresholds()
    return detect.noise_floor(lines[0].values, min_relative_change=limits.trend_relative_change)


def _relative_error(runs: Iterable[SeriesPoint]) -> float:
    """Standard error of a commit's time as a fraction of it; NaN where one of its runs does not say.

    Samples of a block agree with each other more than with the next block's, so blocks are counted, not samples.
    """
    squares = []
    for run in runs:
        if run.value is None or run.low is None or run.high is None or not run.block_count:
            return math.nan
        squares.append((QUARTILES_TO_ERROR * (run.high - run.low) / run.value) ** 2 / run.block_count)
    return math.sqrt(sum(squares)) / len(squares)


def _first_measured(runs: Iterable[SeriesPoint]) -> date:
    return min(run.measured_at for run in runs).astimezone(UTC).date()


def _measured_before(before: list[SeriesPoint], after: list[SeriesPoint]) -> list[SeriesPoint]:
    """The runs of the old level that came before the new one: what is measured again later is measured with what has
    changed since. All of them where none did, as in a history that was measured backwards.
    """
    began = min(run.measured_at for run in after)
    return [run for run in before if run.measured_at < began] or before


def _sentence(step: detect.Step, comparison: Comparison | None, code: CodeChange | None) -> str:
    sentence = (
        f"median time {metric('median_ns').format(step.before)} to {metric('median_ns').format(step.after)} "
        f"({step.after / step.before - 1:+.1%}), {step.count_before} commits before and {step.count_after} after, "
        f"{step.standard_errors:.1f} standard errors"
    )
    if comparison is not None:
        sentence += f"; measured again side by side: {describe_comparison(comparison)}"
    if code is None:
        return sentence
    if code.changed_targets:
        return f"{sentence}; machine code changed on {code.changed_targets} of {code.known_targets} targets"
    return f"{sentence}; machine code unchanged on all {code.known_targets} targets"
