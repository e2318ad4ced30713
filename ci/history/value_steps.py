"""Steps of what is measured once in a run, and that no pair confirms: errors, memory, the time of the host. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.causes.compiled_changes import CompiledHistory
from roofwatch.ci.causes.explain import NEAR_RUNS, Around
from roofwatch.ci.changepoint import detect
from roofwatch.ci.history.points import PointsByCommit, value_of_each, with_value
from roofwatch.ci.history.trend_finding import Status, TrendFinding, window_of, windows_between
from roofwatch.db.values import ChangePoint, SeriesKey, SeriesPoint, Suspect, Verdict

_SURE_RUNS = 2
"""Runs on either side that must say the same number."""
_Values = Sequence[float] | NDArray[np.float64]


class ValueSteps:
    """One series by commit, and where it steps."""

    def __init__(
        self,
        key: SeriesKey,
        by_commit: PointsByCommit,
        *,
        find: Callable[[Sequence[float]], list[detect.ChangePoint]],
        explain: Callable[[Around], tuple[Suspect, ...]],
    ) -> None:
        """Find the steps.

        Args:
            key: Of the series.
            by_commit: Its points, commits in order.
            find: Finds the steps of its values, a commit each.
            explain: Weighs what may have caused one.
        """
        self.key = key
        self.points = with_value(by_commit)
        self._commits = list(self.points)
        self.values = value_of_each(self.points)
        self.steps = find(self.values)
        self._explain = explain

    @property
    def runs(self) -> list[float]:
        """The value of each run."""
        return [point.value for points in self.points.values() for point in points if point.value is not None]

    @property
    def newest_level(self) -> list[float]:
        """The value of each run since the last step."""
        since = self.steps[-1].index if self.steps else 0
        return [point.value for point in self._runs(since, len(self._commits)) if point.value is not None]

    def findings(self, compiled: CompiledHistory) -> Iterator[TrendFinding]:
        """Every step."""
        edges = [0, *(step.index for step in self.steps), len(self._commits)]
        for step, start, end in zip(self.steps, edges, edges[2:], strict=False):
            yield self._finding(step, start, end, compiled)

    def _finding(self, step: detect.ChangePoint, start: int, end: int, compiled: CompiledHistory) -> TrendFinding:
        before, after = self._runs(start, step.index)[-NEAR_RUNS:], self._runs(step.index, end)[:NEAR_RUNS]
        is_exact = _says_one_number(before) and _says_one_number(after)
        commit, previous = self._commits[step.index], self._commits[step.index - 1]
        is_worse = self.key.definition.is_worse(base=step.before, head=step.after)
        verdict = Verdict.REGRESSED if is_worse else Verdict.IMPROVED
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
            log_change=_log_ratio(step.before, step.after),
            candidates=frozenset(self._commits[place] for place in candidates),
            code=code,
        )
        window, reach = windows_between(self._commits, min(candidates), max(candidates))
        return TrendFinding(
            change=change,
            status=Status.CONFIRMED if is_exact else Status.UNCONFIRMED,
            suspects=self._explain(around),
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


def find_value_steps(
    values: _Values, *, min_relative_change: float, least: float | None = None
) -> list[detect.ChangePoint]:
    """Steps of values that may be zero; what `before` and `after` say are the values as measured.

    Args:
        values: A commit each, 0 or above.
        min_relative_change: Smaller ones are not worth telling.
        least: What counts as no more than nothing; half of the least value that is above 0 if left out.
    """
    given = np.asarray(values, dtype=np.float64)
    positive = given[given > 0]
    if not len(positive):
        return []
    floored = np.where(given > 0, given, float(positive.min()) / 2) if least is None else np.maximum(given, least)
    if float(floored.max()) < float(floored.min()) * (1 + min_relative_change):
        return []  # medians of levels lie within the values
    steps = detect.find_change_points(floored, min_relative_change=min_relative_change)
    newest = _newest_exact_step(floored, steps[-1].index if steps else 0, min_relative_change)
    if newest is not None:
        steps = [*steps[:-1], *(replace(step, count_after=newest.count_before) for step in steps[-1:]), newest]
    edges = [0, *(step.index for step in steps), len(given)]
    return [
        replace(
            step, before=float(np.median(given[start : step.index])), after=float(np.median(given[step.index : end]))
        )
        for step, start, end in zip(steps, edges, edges[2:], strict=False)
    ]


def _newest_exact_step(
    values: NDArray[np.float64], begins: int, min_relative_change: float
) -> detect.ChangePoint | None:
    """The step to a number that the newest values all say and none said before, from a level of one number.

    The detector waits at the end of a long series for as many values as a spell of a busy machine may last. Of what is
    counted, or computed from the same inputs, no machine makes a spell: nothing ever moved it, and a state that comes
    and goes would have come before. So the shortest level is enough, as it is inside a series.

    Args:
        values: A commit each, above 0.
        begins: Where the newest level begins that the detector has told.
        min_relative_change: Smaller ones are not worth telling.
    """
    others = np.flatnonzero(values != values[-1])
    index = int(others[-1]) + 1 if len(others) else 0
    old = values[begins:index]
    count = len(values) - index
    if min(count, len(old)) < detect.MIN_SEGMENT or np.any(old != old[0]) or np.any(values[:index] == values[-1]):
        return None
    if abs(math.log(values[-1] / old[0])) < math.log1p(min_relative_change):
        return None
    before, after = float(old[0]), float(values[-1])
    return detect.ChangePoint(index, before, after, len(old), count, math.inf, candidates=(index,))


def _log_ratio(before: float, after: float) -> float:
    """ln(after / before), infinite where one of the two is 0."""
    if before > 0 and after > 0:
        return math.log(after / before)
    return math.inf if after > before else -math.inf


def _says_one_number(runs: Sequence[SeriesPoint]) -> bool:
    return len(runs) >= _SURE_RUNS and len({point.value for point in runs}) == 1
