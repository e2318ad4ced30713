"""Steps of the times of a history, each with what it was held against. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.ab.pair_evidence import PairEvidence, in_words, look_again
from roofwatch.ci.causes.clock_step import clock_step
from roofwatch.ci.causes.compiled_changes import CompiledHistory
from roofwatch.ci.causes.explain import NEAR_RUNS, Around, CodeMove, explain
from roofwatch.ci.causes.runner_evidence import Calibrations, RunnerEvidence, measured_again
from roofwatch.ci.changepoint import detect
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.drift import Drift, find_ratchets
from roofwatch.ci.history.points import PointsByCommit, value_of_each, with_value
from roofwatch.ci.history.relative_error import relative_error
from roofwatch.ci.history.slow_drift import drift_finding, find_slow_drift
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.history.trend_finding import Status, TrendFinding, Window, window_of, windows_between
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import ChangePoint, CommitRef, SeriesKey, SeriesPoint, Verdict

_MOST_OF_A_DRIFT = 3
"""Newest steps that are held against a drift together: one that was cut into more moved by a fifth at least, and is
nothing slow."""
_SURE_OF_A_DRIFT = 6.0
"""By how much more than it takes to be told a drift must be likelier than the steps in its place: odds of 20 to 1 once
more, since a step names a commit, and a drift none."""


class TimeSteps:
    """One series of times: its values, and where they step; which of the steps a drift explains better, its findings
    say.
    """

    def __init__(self, key: SeriesKey, by_commit: PointsByCommit, thresholds: Thresholds) -> None:
        self.key = key
        self._points = with_value(by_commit)
        self.commits = list(self._points)
        self.values = value_of_each(self._points)
        self._nights = [_night(points) for points in self._points.values()]
        self.relative_errors = relative_errors(self._points)
        self.steps = find_steps(self.values, self.relative_errors, thresholds)
        self._min_relative_change = thresholds.trend_relative_change
        self._thresholds = thresholds
        self._ratchets = {
            ratchet.worse_at: ratchet
            for ratchet in find_ratchets(self.steps, min_relative_change=thresholds.drift_relative_change)
        }

    def _drift_since(self, count: int) -> tuple[int, Drift | None]:
        """Where the level of so many steps begins, and the drift since then."""
        begins = self.steps[count - 1].index if count else 0
        return begins, find_slow_drift(self.values[begins:], self._nights[begins:], self._thresholds)

    def _told_count(self, evidence: PairEvidence) -> int:
        """How many of the steps are told: the newest may be a drift that was cut up."""
        count = len(self.steps)
        least = count
        for step in reversed(self.steps[-_MOST_OF_A_DRIFT:]):
            # one that is known to the commit, or was measured again, is a step
            if len(step.candidates) < 2 or self._look_again(step, evidence)[2] is not None:
                break
            least -= 1
        for told in range(least, count):
            _, drift = self._drift_since(told)
            if drift is not None and drift.likelihood_ratio > _SURE_OF_A_DRIFT:
                return told
        return count

    def _look_again(self, step: detect.ChangePoint, evidence: PairEvidence) -> tuple[int, Status, Comparison | None]:
        return look_again(self.key, self.commits, step, _verdict_of(step), evidence)

    @property
    def dates(self) -> set[date]:
        """When a commit was first measured, in UTC."""
        return set(self._nights)

    def findings(
        self, evidence: PairEvidence, compiled: CompiledHistory, witnesses: Witnesses
    ) -> Iterator[TrendFinding]:
        """Every step, and the drift."""
        told = self._told_count(evidence)
        chances = chances_of_steps(self.values, self.steps)
        for step, chance in zip(self.steps[:told], chances[:told], strict=True):
            yield self._finding(step, chance, evidence, compiled, witnesses)
        # steps are the plainer explanation: a drift is looked for since the last of them
        begins, drift = self._drift_since(told)
        if drift is not None:
            since = slice(begins, None)
            yield drift_finding(
                *(self.key, drift, self.values[since], self.commits[since]),
                *(list(self._points.values())[since], self._nights[since]),
                min_relative_change=self._min_relative_change,
            )

    def _finding(
        self,
        step: detect.ChangePoint,
        chance: float,
        evidence: PairEvidence,
        compiled: CompiledHistory,
        witnesses: Witnesses,
    ) -> TrendFinding:
        verdict = _verdict_of(step)
        index, status, comparison = self._look_again(step, evidence)
        commit, previous = self.commits[index], self.commits[index - 1]
        code = compiled.move(self.key, previous, commit, verdict)
        change = ChangePoint(
            series=self.key,
            commit=commit,
            previous_commit=previous,
            verdict=verdict,
            before=step.before,
            after=step.after,
            evidence=_sentence(step, comparison, code) + self._never_came_back(step),
        )
        log_change = math.log(step.after / step.before)
        if status is Status.UNCONFIRMED:
            change = self._in_cycles(change, step, log_change)
        runner = self._runner(step, log_change, witnesses.calibrations)
        levels = self._levels(step, index)
        after = self._runs(range(index, min(len(self.commits), index + NEAR_RUNS)))[:NEAR_RUNS]
        around = Around(
            before=self._early(self._runs(range(max(0, index - NEAR_RUNS), index)), after)[-NEAR_RUNS:],
            after=after,
            log_change=log_change,
            candidates=frozenset(self.commits[place] for place in step.candidates),
            code=code,
            paired=comparison if status is Status.CONFIRMED else None,
            counted=witnesses.counted.around(self.key, *levels),
            launched=witnesses.launched.around(self.key, *levels),
            runner=runner,
        )
        window, reach = self._window(step, change, status)
        return TrendFinding(
            change=change,
            status=status,
            suspects=explain(around),
            window=window,
            reach=reach,
            log_error=abs(log_change) / step.standard_errors if step.standard_errors > 0 else 0.0,
            p_value=chance,
            night=self._nights[index],
            runner=None if runner.again is None else runner.again.move,
        )

    def _in_cycles(self, change: ChangePoint, step: detect.ChangePoint, log_change: float) -> ChangePoint:
        """The change, which cannot be told where the clock moved and the cycles did not."""
        start, end = step.index - step.count_before, step.index + step.count_after
        in_cycles = clock_step(self._runs(range(start, step.index)), self._runs(range(step.index, end)), log_change)
        if in_cycles is None or not in_cycles.is_clock_move(min_relative_change=self._min_relative_change):
            return change
        return replace(change, verdict=Verdict.INCONCLUSIVE, evidence=f"{change.evidence}; {in_cycles.in_words()}")

    def _runner(self, step: detect.ChangePoint, log_change: float, calibrations: Calibrations) -> RunnerEvidence:
        """What code of before the step says of the runner while the new level stands."""
        # a commit that may itself have done it is neither old nor new
        old_end, new_start = min(step.index, *step.candidates), max(step.index, *step.candidates)
        old = self._runs(range(step.index - step.count_before, old_end))
        new = self._runs(range(new_start, step.index + step.count_after))
        later = self._runs(range(step.index + step.count_after, len(self.commits)))
        if not old or not new:
            return RunnerEvidence()
        ended = min((run.measured_at for run in later), default=None)
        began = min(run.measured_at for run in new)
        return RunnerEvidence(
            again=measured_again(old, new, log_change=log_change, ended=ended),
            floor=calibrations.floor_around(self.key, began, ended),
        )

    def _never_came_back(self, step: detect.ChangePoint) -> str:
        ratchet = self._ratchets.get(step.index)
        if ratchet is None:
            return ""
        return (
            f"; a fix at {self.commits[ratchet.better_at].short_sha} brought it back to "
            f"{metric('median_ns').format(ratchet.after)} only: {ratchet.kept_share:.0%} of the change is still there"
        )

    def _levels(self, step: detect.ChangePoint, index: int) -> tuple[list[CommitRef], list[CommitRef]]:
        """First and last commits of the levels on either side."""
        first, last = step.index - step.count_before, step.index + step.count_after - 1
        commits = self.commits
        return [commits[first], commits[index - 1]], [commits[index], commits[last]]

    @staticmethod
    def _early(before: list[SeriesPoint], after: list[SeriesPoint]) -> list[SeriesPoint]:
        """The runs of the old level that came before the new one: what is measured again later is measured with what
        has changed since. All of them where none did, as in a history that was measured backwards.
        """
        began = min(run.measured_at for run in after)
        return [run for run in before if run.measured_at < began] or before

    def _runs(self, places: range) -> list[SeriesPoint]:
        return [point for place in places for point in self._points[self.commits[place]]]

    def _window(self, step: detect.ChangePoint, change: ChangePoint, status: Status) -> tuple[Window, Window]:
        if status is Status.CONFIRMED:
            return window_of(change), window_of(change)
        first, last = min(step.candidates), max(step.candidates)
        return windows_between(self.commits, first, last)


def _verdict_of(step: detect.ChangePoint) -> Verdict:
    return Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED


def find_steps(
    values: Sequence[float] | NDArray[np.float64],
    errors: Sequence[float] | NDArray[np.float64],
    thresholds: Thresholds,
) -> list[detect.ChangePoint]:
    """Steps of a time.

    Args:
        values: Medians, a commit each.
        errors: Their standard errors as a fraction; NaN where they are not known.
        thresholds: What is worth telling.
    """
    return detect.find_change_points(
        values, min_relative_change=thresholds.trend_relative_change, relative_errors=errors
    )


def relative_errors(by_commit: PointsByCommit) -> list[float]:
    """Standard error of each commit's time as a fraction of it; NaN where its runs do not say."""
    return [relative_error((_spread(point), point.block_count) for point in points) for points in by_commit.values()]


def _spread(point: SeriesPoint) -> float | None:
    """Distance between the quartiles over the median."""
    if point.value is None or point.low is None or point.high is None:
        return None
    return (point.high - point.low) / point.value


def _night(points: Sequence[SeriesPoint]) -> date:
    return min(point.measured_at for point in points).astimezone(UTC).date()


def _sentence(step: detect.ChangePoint, comparison: Comparison | None, code: CodeMove | None) -> str:
    sentence = (
        f"median time {metric('median_ns').format(step.before)} to {metric('median_ns').format(step.after)} "
        f"({step.after / step.before - 1:+.1%}), {step.count_before} commits before and {step.count_after} after, "
        f"{step.standard_errors:.1f} standard errors"
    )
    if comparison is not None:
        sentence += f"; measured again side by side: {in_words(comparison)}"
    if code is not None:
        sentence += (
            f"; machine code changed on {code.changed_targets} of {code.known_targets} targets"
            if code.changed_targets
            else f"; machine code unchanged on all {code.known_targets} targets"
        )
    return sentence
