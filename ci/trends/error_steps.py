"""Steps of how far results lie from the reference: what got less accurate, or more, within its tolerance. Pure.

An error is judged as a time is, on the scale of its logarithm, with two differences. An error of exactly 0 has no
logarithm: it counts as half of the smallest other one, so that the loss of exactness is a step and equal errors are
none. And a check draws the same inputs every time, so that where nothing changed, nothing moves at all: a level
whose errors are all the same number is certain, and needs no second measurement.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ci import detect
from ci.error_floor import error_floor
from ci.explain import NEAR_RUNS, Around, explain_error
from ci.thresholds import Thresholds
from ci.trends.compiled_changes import CompiledHistory
from ci.trends.trend_finding import Status, TrendFinding, window_of, windows_between
from db.values import ChangePoint, CommitRef, SeriesKey, SeriesPoint, Verdict

METRIC = "rmse_ratio"
"""The error that is judged; the largest error of an element rests on one element, and jumps by itself."""

_SURE_RUNS = 2
"""Runs on either side that must say the same number."""


class ErrorSteps:
    """One series of errors: its values by commit, and where they step."""

    def __init__(
        self, key: SeriesKey, by_commit: Mapping[CommitRef, Sequence[SeriesPoint]], thresholds: Thresholds
    ) -> None:
        self.key = key
        self.points = {
            commit: checked
            for commit, points in by_commit.items()
            if (checked := [point for point in points if point.value is not None])
        }
        self._commits = list(self.points)
        self.values = [
            statistics.median(point.value for point in points if point.value is not None)
            for points in self.points.values()
        ]
        floor = error_floor(key.case_id)
        self.steps = [
            step
            for step in find_error_steps(self.values, thresholds)
            # what was exact all the time and no longer is, such as a copy, lost something however small
            if not step.before or max(step.before, step.after) > floor
        ]

    def findings(self, compiled: CompiledHistory) -> Iterator[TrendFinding]:
        """Every step."""
        edges = [0, *(step.index for step in self.steps), len(self._commits)]
        for step, start, end in zip(self.steps, edges, edges[2:], strict=False):
            yield self._finding(step, start, end, compiled)

    def _finding(self, step: detect.ChangePoint, start: int, end: int, compiled: CompiledHistory) -> TrendFinding:
        before, after = self._runs(start, step.index)[-NEAR_RUNS:], self._runs(step.index, end)[:NEAR_RUNS]
        is_exact = _says_one_number(before) and _says_one_number(after)
        commit, previous = self._commits[step.index], self._commits[step.index - 1]
        verdict = Verdict.REGRESSED if step.after > step.before else Verdict.IMPROVED
        code = compiled.move(self.key, previous, commit, verdict)
        change = ChangePoint(
            series=self.key,
            commit=commit,
            previous_commit=previous,
            verdict=verdict,
            before=step.before,
            after=step.after,
            evidence=self._sentence(step, is_exact=is_exact),
        )
        candidates = {step.index} if is_exact else set(step.candidates)
        around = Around(
            before=before,
            after=after,
            log_change=math.log(step.after / step.before) if step.before > 0 and step.after > 0 else math.inf,
            candidates=frozenset(self._commits[place] for place in candidates),
            code=code,
        )
        window, reach = windows_between(self._commits, min(candidates), max(candidates))
        return TrendFinding(
            change=change,
            status=Status.CONFIRMED if is_exact else Status.UNCONFIRMED,
            suspects=explain_error(around),
            window=window_of(change) if is_exact else window,
            reach=window_of(change) if is_exact else reach,
        )

    def _runs(self, first: int, last: int) -> list[SeriesPoint]:
        return [point for commit in self._commits[first:last] for point in self.points[commit]]

    def _sentence(self, step: detect.ChangePoint, *, is_exact: bool) -> str:
        metric = self.key.definition
        relative = f" ({step.after / step.before - 1:+.0%})" if step.before > 0 else ""
        sure = "the same in every run on either side" if is_exact else f"{step.standard_errors:.1f} standard errors"
        return (
            f"{metric.title} {metric.format(step.before)} to {metric.format(step.after)}{relative}, "
            f"{step.count_before} commits before and {step.count_after} after, {sure}"
        )


def find_error_steps(values: Sequence[float] | NDArray[np.float64], thresholds: Thresholds) -> list[detect.ChangePoint]:
    """Steps of an error; what `before` and `after` say are the errors as measured.

    Args:
        values: Errors, a commit each, 0 or above.
        thresholds: What is worth telling.
    """
    given = np.asarray(values, dtype=np.float64)
    positive = given[given > 0]
    if not len(positive):
        return []
    least = float(positive.min())
    if not np.any(given == 0) and float(positive.max()) < least * (1 + thresholds.error_relative_change):
        return []  # medians of levels lie within the values
    floored = np.where(given > 0, given, least / 2)
    steps = detect.find_change_points(floored, min_relative_change=thresholds.error_relative_change)
    edges = [0, *(step.index for step in steps), len(given)]
    return [
        replace(
            step, before=float(np.median(given[start : step.index])), after=float(np.median(given[step.index : end]))
        )
        for step, start, end in zip(steps, edges, edges[2:], strict=False)
    ]


def _says_one_number(runs: Sequence[SeriesPoint]) -> bool:
    return len(runs) >= _SURE_RUNS and len({point.value for point in runs}) == 1
