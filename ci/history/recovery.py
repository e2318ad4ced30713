"""Whether what got worse is back where it was, and by which commit. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from roofwatch.ci.history.secondary_change import threshold_beside
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.values import ChangePoint, CommitRef, Regression, RegressionState, SeriesKey, Verdict

_MOST = 0.8
"""Share of a regression's change points that must be undone: of hundreds of series some step unseen."""

_Improvements = Mapping[SeriesKey, Sequence[ChangePoint]]


def note_recoveries(regressions: Sequence[Regression], thresholds: Thresholds) -> list[Regression]:
    """Say of each regression by which commit it was undone, if improvements of the same series brought it back.

    Args:
        regressions: All of a project, improvements too.
        thresholds: What is worth telling: a level that is worse by less is the old one.
    """
    improved: dict[SeriesKey, list[ChangePoint]] = defaultdict(list)
    for regression in regressions:
        if regression.state is RegressionState.OPEN:
            for point in regression.change_points:
                if point.verdict is Verdict.IMPROVED:
                    improved[point.series].append(point)
    return [
        replace(regression, recovered_at=_recovery(regression, improved, thresholds))
        if regression.verdict is Verdict.REGRESSED
        else regression
        for regression in regressions
    ]


def _recovery(regression: Regression, improved: _Improvements, thresholds: Thresholds) -> CommitRef | None:
    worse = [point for point in regression.change_points if point.verdict is Verdict.REGRESSED]
    undone = [commit for point in worse if (commit := _undone_at(point, improved, thresholds)) is not None]
    if not worse or len(undone) < math.ceil(_MOST * len(worse)):
        return None
    return max(undone)


def _undone_at(point: ChangePoint, improved: _Improvements, thresholds: Thresholds) -> CommitRef | None:
    tolerance = _tolerance(point.series, thresholds)
    later = [
        other
        for other in improved.get(point.series, ())
        if other.commit > point.commit and _is_back(point, other, tolerance)
    ]
    return min((other.commit for other in later), default=None)


def _tolerance(series: SeriesKey, thresholds: Thresholds) -> float:
    if series.definition.layer is Layer.ACCURACY:
        return thresholds.error_relative_change
    own = threshold_beside(series.metric, thresholds)
    return thresholds.trend_relative_change if own is None else own


def _is_back(point: ChangePoint, improvement: ChangePoint, tolerance: float) -> bool:
    if point.before is None or point.after is None:
        # it had ceased to work, and does again
        return improvement.before is None
    if improvement.after is None:
        return False
    limit = point.before * (1 + tolerance) if point.after > point.before else point.before * (1 - tolerance)
    return not point.series.definition.is_worse(base=limit, head=improvement.after)
