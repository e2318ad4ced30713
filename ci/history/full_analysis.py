"""One case and implementation judged by its whole history: what it tells, and how it stands. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.changepoint import online
from roofwatch.ci.history.dates import Nights
from roofwatch.ci.history.error_steps import ErrorSteps
from roofwatch.ci.history.history import gather
from roofwatch.ci.history.outcome_changes import OUTCOME_METRICS
from roofwatch.ci.history.screen import ByCommit, has_changed_error, has_moved
from roofwatch.ci.history.standing import BesideStanding, ErrorStanding, Standing, TimeStanding
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.history.timed_history import TimedHistory
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.part import Outcome
from roofwatch.db.queries.columns import ErrorColumns, TimeColumns
from roofwatch.db.values import Series, SeriesKey

_UNSETTLED = 8
"""Runs in which any new level of errors shows; what lies outside the range of those before is looked at each time."""


@dataclass(frozen=True)
class WholeLook:
    standing: Standing
    findings: tuple[TrendFinding, ...] = ()
    runner_classes: tuple[str, ...] = ()
    """Of its series of times, those that never gave one among them."""


def look_at_series(
    series: Sequence[Series],
    code: str,
    evidence: PairEvidence,
    thresholds: Thresholds,
    witnesses: Witnesses | None = None,
) -> WholeLook:
    """Judge all series of one case and implementation.

    Args:
        series: Of the metrics that are judged.
        code: Fingerprint of the newest machine code.
        evidence: Of paired measurements.
        thresholds: What is worth telling.
        witnesses: What the runs show beside their times; none if left out.
    """
    gathered = gather(series, evidence, thresholds, witnesses)
    standing = Standing(
        times=tuple(_time_standing(timed, thresholds) for timed in gathered.times if timed.by_timing),
        errors=tuple(_error_standing(errors) for errors in gathered.errors if errors.values),
        code=code,
        is_failing=any(_is_failing(one) for one in series),
        beside=tuple(
            BesideStanding(steps.key.runner_class, timing, steps.key.metric, *_settled_range(steps.newest_level))
            for beside in gathered.beside
            for timing, steps in beside.by_timing.items()
        ),
    )
    classes = tuple(one.key.runner_class for one in series if one.key.metric == "median_ns")
    return WholeLook(standing, tuple(gathered.findings), classes)


def look_at_columns(
    times: Sequence[TimeColumns], errors: Sequence[ErrorColumns], code: str, thresholds: Thresholds
) -> WholeLook | None:
    """The same by the bare numbers of what never failed, whose code never changed; None if any of them moved, and has
    to be read with all that explains it.
    """
    known = [ByCommit.of(one) for one in times]
    if any(has_moved(one, thresholds) for one in known) or any(has_changed_error(one, thresholds) for one in errors):
        return None
    by_class: dict[str, list[ByCommit]] = defaultdict(list)
    for time in known:
        by_class[time.columns.key.runner_class].append(time)
    standing = Standing(
        times=tuple(_quiet_standing(own, thresholds) for own in by_class.values()),
        errors=tuple(_shown(one.key, one.rmse_ratios, len(one.rmse_ratios)) for one in errors if len(one.rmse_ratios)),
        code=code,
        beside=tuple(
            BesideStanding(one.key.runner_class, one.timing, metric, *_settled_range(values[~np.isnan(values)]))
            for one in times
            for metric, values in one.beside.items()
        ),
    )
    return WholeLook(standing, runner_classes=tuple(by_class))


def _time_standing(timed: TimedHistory, thresholds: Thresholds) -> TimeStanding:
    timing, steps = next(iter(timed.by_timing.items()))
    starts = [step.index for step in steps.steps]
    newest = steps.commits[-1]
    return TimeStanding(
        runner_class=steps.key.runner_class,
        timing=timing,
        last=(newest.first_parent_count, newest.sha),
        state=online.resume(
            steps.values,
            starts,
            min_relative_change=thresholds.trend_relative_change,
            relative_errors=steps.relative_errors,
        ),
        looked_at=len(steps.values),
        level_count=len(steps.values) - (starts[-1] if starts else 0),
        nights=Nights.of(timed.nights),
    )


def _quiet_standing(by_timing: Sequence[ByCommit], thresholds: Thresholds) -> TimeStanding:
    """Of one runner class: the newest way of timing is what the next time is held against."""
    newest = max(by_timing, key=lambda one: one.columns.last_commit or (-1, ""))
    columns, count = newest.columns, len(newest.values)
    assert columns.last_commit is not None
    return TimeStanding(
        runner_class=columns.key.runner_class,
        timing=columns.timing,
        last=columns.last_commit,
        state=online.resume(
            newest.values, [], min_relative_change=thresholds.trend_relative_change, relative_errors=newest.errors
        ),
        looked_at=count,
        level_count=count,
        nights=Nights.of({night for one in by_timing for night in one.nights.tolist()}),
    )


def _error_standing(errors: ErrorSteps) -> ErrorStanding:
    return _shown(errors.key, errors.newest_level, len(errors.runs))


def _shown(key: SeriesKey, level: Sequence[float] | NDArray[np.float64], run_count: int) -> ErrorStanding:
    low, high = _settled_range(level)
    return ErrorStanding(key.runner_class, key.tensor, low, high, looked_at=run_count, run_count=run_count)


def _settled_range(level: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """The range of a level, its newest values aside if there are others: they may be the first of the next one."""
    settled = level[:-_UNSETTLED] if len(level) > _UNSETTLED else level
    return float(min(settled)), float(max(settled))


def _is_failing(series: Series) -> bool:
    """Whether no run of the newest commit worked, in a series that says so."""
    if series.key.metric not in OUTCOME_METRICS or not series.points:
        return False
    newest = series.points[-1].commit
    return all(point.outcome is not Outcome.OK for point in series.points if point.commit == newest)
