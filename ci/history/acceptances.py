"""Which regressions of the main branch were accepted in pull requests. Pure."""

from collections.abc import Sequence

from roofwatch.ci.history.finding import is_outcome
from roofwatch.model.acceptance import AcceptedRegression, PullRequestAcceptance
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import TIME, Layer
from roofwatch.model.record import MergedPullRequest
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

# 95 % of the values of an accepted level lie within
_STANDARD_ERRORS = 2.0
_REASONS = {
    TIME.key: (Reason.BEYOND_THRESHOLD,),
    "peak_allocated_bytes": (Reason.MEMORY_CHANGED,),
    "rmse_ratio": (Reason.LESS_ACCURATE,),
}
"""Reason of a pull request's finding, by the metric of a series."""
_MEASURES = {TIME.key: "time"}
"""Measure of a finding, if it is not the metric."""
_CODE_REASONS = (
    Reason.SPILLS_CHANGED,
    Reason.FIT_CHANGED,
    Reason.TENSOR_CORES_CHANGED,
    Reason.ACCESS_WIDTH_CHANGED,
)
_EXPLAINS_ONLY = frozenset(
    {"host_ns", "registers", "shared_bytes", "theoretical_occupancy", "local_bytes"}
    | {"spilled_registers", "spill_store_count", "spill_load_count"}
)
"""Metrics that explain a change of time, and need no acceptance of their own."""


def accepted_in(
    regression: Regression,
    acceptances: Sequence[PullRequestAcceptance],
    merged: Sequence[MergedPullRequest],
) -> AcceptedRegression | None:
    """Return who accepted a regression; None unless everything in it was accepted.

    Only pull requests that its range of commits merged count, and no change may be noticeably
    larger than what was accepted.
    """
    if regression.verdict is not Verdict.REGRESSED:
        return None
    candidates = [
        acceptance
        for acceptance in reversed(acceptances)
        if _is_within(acceptance, regression, merged)
    ]
    used: list[PullRequestAcceptance] = []
    for point in _points_to_accept(regression):
        # one point that nobody accepted leaves the whole regression open
        covering = (item for item in candidates if _covers(item, point))
        accepting = next(covering, None)
        if accepting is None:
            return None
        if accepting not in used:
            used.append(accepting)
    if not used:
        return None
    reasons = [item.reason for item in used]
    if len(used) > 1:
        reasons = [f"{item.pull_request}: {item.reason}" for item in used]
    return AcceptedRegression(
        pull_requests=_joined([item.pull_request for item in used]),
        person=_joined([item.person for item in used]),
        reason="; ".join(dict.fromkeys(reasons)),
    )


def _joined(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _is_within(
    acceptance: PullRequestAcceptance,
    regression: Regression,
    merged: Sequence[MergedPullRequest],
) -> bool:
    """Return whether a pull request was merged after the regression's base, up to its commit."""
    if regression.commit.sha == acceptance.head_sha:
        return True
    number = int(acceptance.pull_request[1:])
    first = regression.base.first_parent_count
    last = regression.commit.first_parent_count
    for change in merged:
        position = change.first_parent_count
        # a drift or an isolated change has its own commit as base
        is_in_range = first < position <= last or position == last
        is_accepted = change.number == number or change.head_sha == acceptance.head_sha
        if is_in_range and is_accepted:
            return True
    return False


def _points_to_accept(regression: Regression) -> list[ChangePoint]:
    """Return what must be accepted: machine code that explains a time is accepted with it."""
    worse = [point for point in regression.change_points if point.verdict is Verdict.REGRESSED]
    decisive = [
        point for point in worse if is_outcome(point) or point.series.metric not in _EXPLAINS_ONLY
    ]
    return decisive or worse


def _covers(acceptance: PullRequestAcceptance, point: ChangePoint) -> bool:
    """Return whether a change was accepted, and is not noticeably larger than then."""
    series = point.series
    subject = series.case_key
    if is_outcome(point):
        return _covers_failure(acceptance, point)
    names: list[tuple[str, ...]]
    # compiled facts have no noise, so the value itself is what was accepted
    if series.definition.layer is Layer.STATIC:
        part = series.function, series.target
        names = [(*subject, *part, reason, series.metric) for reason in _CODE_REASONS]
        size = point.after
    else:
        measure = _MEASURES.get(series.metric, series.metric)
        names = [(*subject, reason, measure) for reason in _REASONS.get(series.metric, ())]
        size = _smallest_change(point)
    bounds = [acceptance.bound_of(name) for name in names]
    # a series without a value on both sides has no size to compare
    if size is None:
        return False
    return any(bound is not None and size <= bound for bound in bounds)


def _smallest_change(point: ChangePoint) -> float | None:
    """Return the smallest credible change: other runs of another day measured it."""
    change = point.relative_change
    if change is None:
        return None
    error = THRESHOLDS.relative_change
    if point.standard_errors:
        standard_error = abs(change) / abs(point.standard_errors)
        error = max(error, _STANDARD_ERRORS * standard_error)
    return change - error


def _covers_failure(acceptance: PullRequestAcceptance, point: ChangePoint) -> bool:
    """Whether the failure was accepted; a wrong result must be accepted as one."""
    series = point.series
    subject = series.case_key
    if series.definition.layer is Layer.ACCURACY:
        # a failed check of accuracy may be a wrong result, which is accepted by name only
        wrong = (*subject, Reason.WRONG_RESULT, "rmse_ratio")
        return acceptance.wrong_results and acceptance.bound_of(wrong) is not None
    names = [(*subject, Reason.FAILED, str(outcome)) for outcome in Outcome]
    return any(acceptance.bound_of(name) is not None for name in names)
