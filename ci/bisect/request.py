"""What to bisect to explain a regression: which of its series, and between which commits. Pure."""

from __future__ import annotations

from roofwatch.db.values import BisectionRange, ChangePoint, Regression, Series

TIME_METRIC = "median_ns"
_POINTS_AROUND = 2
"""The step may as well lie a commit or two beside where a history places it: so many measured commits more on either
side cost the search one measurement."""


def series_to_bisect(regression: Regression) -> ChangePoint | None:
    """The change point to go by: of the steps of times the largest. None where no time moved in a step: what else
    moved is exact, or is no commit's doing.
    """
    steps = [
        point
        for point in regression.change_points
        if point.series.metric == TIME_METRIC and not point.is_gradual and point.relative_change is not None
    ]
    return max(steps, key=lambda point: abs(point.relative_change or 0.0), default=None)


def range_of(regression: Regression, series: Series | None = None) -> BisectionRange | None:
    """What to ask for; None where there is nothing to bisect.

    Args:
        regression: What was found.
        series: That of its `series_to_bisect`, for ends a little apart from where the step was seen; its ends are the
            commits around the step if left out.
    """
    point = series_to_bisect(regression)
    if point is None:
        return None
    good, bad = point.previous_commit, point.commit
    if series is not None:
        measured = sorted({each.commit for each in series.points if each.value is not None})
        before = [commit for commit in measured if commit < good]
        after = [commit for commit in measured if commit > bad]
        good = before[-_POINTS_AROUND:][0] if before else good
        bad = after[:_POINTS_AROUND][-1] if after else bad
    return BisectionRange(
        project=regression.project,
        case_id=point.series.case_id,
        implementation=point.series.implementation,
        good_sha=good.sha,
        bad_sha=bad.sha,
        runner_class=point.series.runner_class,
    )
