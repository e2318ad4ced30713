"""What changed by commit: regressions of one commit are one row, and a range is one line. Pure."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.history.summary import count_false_alarms, share_real
from roofwatch.model.grouping import group_by
from roofwatch.model.history import ChangePoint, CommitRef, SeriesKey
from roofwatch.model.library import is_library
from roofwatch.model.metrics import Better
from roofwatch.model.stored_results import RecentRuns, RoofCell
from roofwatch.model.triage import TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

_SHA = re.compile(r"[0-9a-f]{7,64}")
"""A sha, or as many first digits as Git writes."""
_MOST_COST = math.log(1_000)
"""Log cost of a failure, or of a change from zero: more than that of any change with a ratio."""


def cost_of(point: ChangePoint) -> float:
    """Return the log cost of a change: above 0 is worse."""
    is_worse = point.verdict is not Verdict.IMPROVED
    # a failure has no ratio, but is worse than any slowdown
    if not point.before or not point.after or point.before < 0 or point.after < 0:
        if is_worse:
            return _MOST_COST
        return -_MOST_COST
    log_change = math.log(point.after / point.before)
    is_rate = point.series.definition.better is Better.HIGHER
    if not is_rate:
        return log_change
    return -log_change


@dataclass(frozen=True)
class CommitEntry:
    """The regressions, or the improvements, of one commit or of one range of commits."""

    commit: CommitRef
    verdict: Verdict
    parts: tuple[TriagedRegression, ...]
    """The worst first."""
    probability: float | None
    """That it is real; None if it is confirmed."""

    @property
    def key(self) -> str:
        """What tells it from other rows."""
        return f"{self.commit.sha} {self.verdict}"

    @property
    def change_points(self) -> list[ChangePoint]:
        """Those of all parts."""
        points: list[ChangePoint] = []
        for part in self.parts:
            points.extend(part.regression.change_points)
        return points

    def part_of(self, change: ChangePoint) -> TriagedRegression:
        return next(part for part in self.parts if change in part.regression.change_points)

    def is_named(
        self,
        *,
        regression_id: str | None,
        sha: str | None,
        verdict: str | None,
    ) -> bool:
        """Whether an address means this row: by a regression, or without one by its commit, whose
        sha may be short.
        """
        if regression_id is not None:
            return any(part.regression_id == regression_id for part in self.parts)
        # `startswith` is true of any text that is short enough
        if sha is None or _SHA.fullmatch(sha) is None:
            return False
        is_commit = self.commit.sha.startswith(sha)
        return is_commit and verdict in (None, str(self.verdict))

    @property
    def worst(self) -> ChangePoint:
        """The change that stands for the row: a time rather than another metric."""
        timed = [point for point in self.change_points if point.series.is_performance]
        # compiled code has no cost in time
        any_point = self.parts[0].regression.change_points[0]
        return max(
            timed,
            key=_absolute_cost,
            default=any_point,
        )

    @property
    def kernels(self) -> tuple[str, ...]:
        """That of the worst change first, then the most affected."""
        by_size = sorted(
            self.change_points,
            key=_absolute_cost,
            reverse=True,
        )
        ordered = [self.worst, *by_size]
        kernels = (point.series.kernel for point in ordered)
        return tuple(dict.fromkeys(kernels))

    def change_on(self, kernel: str, runner_class: str) -> ChangePoint | None:
        """Return the largest change of a kernel on a runner class; of compiled code on none."""
        points = [
            point
            for point in self.change_points
            if (point.series.kernel, point.series.runner_class) == (kernel, runner_class)
        ]
        return max(
            points,
            key=_absolute_cost,
            default=None,
        )

    @property
    def is_confirmed(self) -> bool:
        return self.probability is None

    @property
    def is_waiting(self) -> bool:
        """Whether somebody has to act on any part of it now."""
        open_parts = [part for part in self.parts if part.is_open]
        return any(not part.is_snoozed for part in open_parts)

    @property
    def state(self) -> str:
        """What became of it, in a few words."""
        waiting = [part for part in self.parts if part.is_open]
        # an improvement that nobody settled needs no word
        if not waiting and self.verdict is not Verdict.REGRESSED:
            settled = self.parts[0].settled_by
            if settled == "open":
                return ""
            return settled
        if not waiting:
            return self.parts[0].settled_by
        # the state that asks for action wins
        if all(part.is_snoozed for part in waiting):
            return "snoozed"
        assignees = {part.triage.assignee for part in waiting if part.triage.assignee}
        if assignees:
            return ", ".join(sorted(assignees))
        if any(part.triage.state is TriageState.ACKNOWLEDGED for part in waiting):
            return "acknowledged"
        return "new"


def _commit_and_verdict(triaged: TriagedRegression) -> tuple[CommitRef, Verdict]:
    return triaged.regression.commit, triaged.regression.verdict


def rows_by_commit(regressions: Sequence[TriagedRegression]) -> list[CommitEntry]:
    """Group regressions by commit and verdict, the newest commit first."""
    false_alarms = count_false_alarms(regressions)
    chance = share_real(false_alarms.true_count, false_alarms.decided_count)
    groups = group_by(regressions, _commit_and_verdict)
    rows: list[CommitEntry] = []
    for (commit, verdict), parts in groups.items():
        is_confirmed = any(part.regression.is_confirmed for part in parts)
        ordered = sorted(
            parts,
            key=_largest_cost,
            reverse=True,
        )
        rows.append(
            CommitEntry(
                commit=commit,
                verdict=verdict,
                parts=tuple(ordered),
                probability=None if is_confirmed else chance,
            )
        )
    return sorted(
        rows,
        key=lambda row: row.commit,
        reverse=True,
    )


def _absolute_cost(point: ChangePoint) -> float:
    return abs(cost_of(point))


def _largest_cost(triaged: TriagedRegression) -> float:
    return max(map(_absolute_cost, triaged.regression.change_points))


# --- one line


@dataclass(frozen=True)
class RangeSummary:
    """What happened in a range of commits."""

    slower_count: int
    """Commits."""
    settled_count: int
    """Of these, those on which nobody has to act any more."""
    faster_count: int
    geomeans: Mapping[str, float]
    """Relative change of the cost by runner class, over all of its series."""
    roof_shares: tuple[float, float] | None
    """Share of the roof of the median case, in the first and the last run; None if unknown."""


def summarise(
    rows: Iterable[CommitEntry],
    recent: Sequence[RecentRuns],
    cells: Iterable[RoofCell],
) -> RangeSummary:
    """Sum up a range.

    Only decided changes count in a geometric mean; a series without one counts as unchanged.

    Args:
        rows: Of the range, whatever became of them.
        recent: The series of each runner class.
        cells: Values of the range.
    """
    counted = [row for row in rows if _is_counted(row)]
    costs: dict[SeriesKey, float] = {}
    for row in counted:
        for point in row.change_points:
            if point.series.is_performance:
                cost_so_far = costs.get(point.series, 0.0)
                costs[point.series] = cost_so_far + cost_of(point)
    geomeans: dict[str, float] = {}
    # a series without a change counts with a cost of 0
    for runner in recent:
        # the time of a library is no work of this project
        all_keys = [line.key for line in runner.series]
        keys = [key for key in all_keys if not is_library(key.implementation)]
        if keys:
            total = sum(costs.get(key, 0.0) for key in keys)
            mean_log_change = total / len(keys)
            geomeans[runner.runner_class] = math.expm1(mean_log_change)
    slower = [row for row in counted if row.verdict is Verdict.REGRESSED]
    return RangeSummary(
        slower_count=len(slower),
        settled_count=sum(not row.is_waiting for row in slower),
        faster_count=sum(row.verdict is Verdict.IMPROVED for row in counted),
        geomeans=geomeans,
        roof_shares=_roof_shares(cells),
    )


def _is_counted(row: CommitEntry) -> bool:
    refused = {TriageState.INVALID}
    return any(
        part.regression.state == "open" and part.triage.state not in refused for part in row.parts
    )


def _roof_shares(cells: Iterable[RoofCell]) -> tuple[float, float] | None:
    """Median first and last share of the roofline, without libraries; None without any."""
    first_shares: list[float] = []
    last_shares: list[float] = []
    for cell in cells:
        shares = [share for share in cell.utilisations if share is not None]
        # libraries are what the project is compared with
        if shares and not is_library(cell.key.implementation):
            first_shares.append(shares[0])
            last_shares.append(shares[-1])
    if not first_shares:
        return None
    return statistics.median(first_shares), statistics.median(last_shares)
