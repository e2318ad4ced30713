"""Two commits side by side: on each runner, what both measured and what may be said of it. Pure."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from roofwatch.ci.ab.comparable import (
    refuse_foreign,
    refuse_harness,
    refuse_method,
    refuse_runner,
)
from roofwatch.ci.ab.compare import PairedEstimate
from roofwatch.ci.changepoint.student import critical_t
from roofwatch.ci.claims.separate_runs import judge_runs
from roofwatch.ci.messages import Remark
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.dashboard.wording import natural_order
from roofwatch.model.case_key import CaseKey
from roofwatch.model.claim import Claim
from roofwatch.model.history import (
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO_REFERENCE, TIME, Better, Metric
from roofwatch.model.stored_results import ImportedPair, MeasuredCase, RunDetail
from roofwatch.model.verdict import Reason, Verdict

Interval = tuple[float, float]
"""Lowest and highest value."""
Sides = tuple[float | None, float | None]
"""Values of base and head; None of a side without one."""

_CONFIDENCE = 0.95
_FURTHER = (
    "host_ns",
    "peak_allocated_bytes",
    RATIO_TO_REFERENCE,
    "rmse_ratio",
)
"""Metrics besides time that a reader may unfold."""
_BROKEN = frozenset({Reason.WRONG_RESULT, Reason.FAILED})


class Group(StrEnum):
    """What may be said of a row, in the order in which rows are shown."""

    SLOWER = "slower"
    BROKEN = "broken"
    FASTER = "faster"
    MENDED = "works again"
    CANNOT_SAY = "cannot say"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """One case, implementation and metric; a side is None if its run does not have it."""

    key: SeriesKey
    base: float | None
    head: float | None
    """In the metric's unit."""
    base_case: MeasuredCase | None = None
    head_case: MeasuredCase | None = None
    """None of another tool's values."""
    claim: Claim | None = None
    """None of another tool's values, which no pair can decide."""
    comparison: PairedEstimate | None = None
    """Of the samples of both sides, if they were read."""
    refusal: str = ""
    """Why the values cannot be compared; empty if they can."""
    change_points: tuple[ChangePoint, ...] = ()
    """Stored change points of any metric, after the base and up to the head."""
    code_change: str = ""
    """Whether machine code changed, over all targets; empty if neither side compiled any."""

    @property
    def metric(self) -> Metric:
        return self.key.definition

    @property
    def change(self) -> float | None:
        """Return (head − base) / base, from paired blocks if they were read; None if the sides
        cannot be compared.
        """
        # a base of zero has no ratio
        if self.refusal or not self.base or self.head is None:
            return None
        if self.comparison is not None:
            return self.comparison.relative_change
        return self.head / self.base - 1

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the change; None if it is unknown."""
        if self.comparison is None or self.refusal:
            return None
        low, high = self.comparison.relative_interval
        # few blocks give no upper end
        if math.isfinite(high):
            return low, high
        return None

    @property
    def group(self) -> Group:
        if self.claim is None:
            return Group.CANNOT_SAY
        verdict = self.claim.verdict
        reason = self.claim.reason
        if verdict is Verdict.REGRESSED:
            if reason in _BROKEN:
                return Group.BROKEN
            return Group.SLOWER
        if verdict is Verdict.IMPROVED:
            if reason is Reason.FIXED:
                return Group.MENDED
            return Group.FASTER
        if verdict is Verdict.UNCHANGED:
            return Group.UNCHANGED
        return Group.CANNOT_SAY

    @property
    def verdict(self) -> Verdict:
        if self.claim is None:
            return Verdict.INCONCLUSIVE
        return self.claim.verdict

    def of_both(self, name: str) -> tuple[Any, Any]:
        """Return a field of both sides' cases; None of a side without a case."""
        base = getattr(self.base_case, name, None)
        head = getattr(self.head_case, name, None)
        return base, head

    @property
    def utilisations(self) -> Sides:
        return self.of_both("utilisation")

    @property
    def outcomes(self) -> tuple[Outcome | None, Outcome | None]:
        return self.of_both("outcome")

    @property
    def further(self) -> dict[str, Sides]:
        """Return base and head of the further metrics that a side has, by key."""
        metrics: dict[str, Sides] = {}
        for name in _FURTHER:
            sides = self.of_both(name)
            if sides != (None, None):
                metrics[name] = sides
        return metrics

    def was_found(self, verdict: Verdict) -> bool:
        """Whether the history has a change with this verdict."""
        return any(change.verdict is verdict for change in self.change_points)

    @property
    def is_profiled(self) -> bool:
        """Whether both sides have a profile, of times that compare."""
        if self.refusal or self.base_case is None or self.head_case is None:
            return False
        return self.base_case.is_profiled and self.head_case.is_profiled

    @property
    def rank(self) -> tuple[object, ...]:
        """Return the sort key within a group: found in the history first, then the size."""
        change = self.change
        size = 0.0
        if change is not None and change > -1:
            size = abs(math.log1p(change))
        # False sorts before True
        return not self.change_points, -size, self.key


def rows_of(
    base: RunDetail,
    head: RunDetail,
    regressions: Sequence[Regression],
    *,
    judgement: PullRequestJudgement | None = None,
    imported: Iterable[ImportedPair] = (),
) -> list[ComparedRow]:
    """Compare what two runs measured, in the order in which it is shown.

    Args:
        base: Run to compare against.
        head: New run.
        regressions: Stored ones.
        judgement: Of the records of both, if their samples were read.
        imported: Values of other tools in both.
    """
    base_cases = _cases_by_key(base)
    head_cases = _cases_by_key(head)
    base_code = _code_by_key(base)
    head_code = _code_by_key(head)
    refusal = why_not_comparable(base, head)
    changes_by_subject = _found_by_key(base, head, regressions)
    # summaries of both runs are always there; they refuse rather than decide
    judged_cases = judge_runs(base, head)
    if judgement is not None:
        # samples decide more than the stored summaries
        judged_cases += judgement.cases
    evidence_by_subject = {case.subject.case_key: case.evidence for case in judged_cases}
    rows: list[ComparedRow] = []
    for case_id, implementation in base_cases | head_cases:
        subject = case_id, implementation
        base_case = base_cases.get(subject)
        head_case = head_cases.get(subject)
        evidence = evidence_by_subject[subject]
        row = ComparedRow(
            key=_key(head, case_id, implementation, TIME.key),
            base=getattr(base_case, "median_ns", None),
            head=getattr(head_case, "median_ns", None),
            base_case=base_case,
            head_case=head_case,
            claim=evidence.claimed,
            comparison=evidence.comparison,
            refusal=str(_refusal(base_case, head_case, refusal) or ""),
            change_points=tuple(changes_by_subject[subject]),
            code_change=_code_change(base_code[subject], head_code[subject]),
        )
        rows.append(row)
    for pair in imported:
        found_changes = changes_by_subject[pair.case_id, pair.implementation]
        # an imported case may have several metrics, and only one that changed
        changes = [change for change in found_changes if change.series.metric == pair.metric]
        row = ComparedRow(
            key=_key(head, pair.case_id, pair.implementation, pair.metric),
            base=pair.base,
            head=pair.head,
            refusal=str(refusal or ""),
            change_points=tuple(changes),
        )
        rows.append(row)
    order = list(Group)

    def place_of(row: ComparedRow) -> tuple[int, tuple[object, ...]]:
        # as the groups are declared: what became slower stands first
        return order.index(row.group), row.rank

    return sorted(rows, key=place_of)


def _cases_by_key(run: RunDetail) -> dict[CaseKey, MeasuredCase]:
    return {case.case_key: case for case in run.cases}


def _key(
    run: RunDetail,
    case_id: str,
    implementation: str,
    name: str,
) -> SeriesKey:
    summary = run.summary
    return SeriesKey(
        summary.project,
        case_id,
        implementation,
        name,
        runner_class=summary.runner_class,
    )


def _found_by_key(
    base: RunDetail,
    head: RunDetail,
    regressions: Sequence[Regression],
) -> defaultdict[CaseKey, list[ChangePoint]]:
    changes = change_points_between(base.summary.commit, head.summary.commit, regressions)
    # compiled code does not depend on the runner
    runner_classes = {"", head.summary.runner_class}
    changes_by_subject = defaultdict[CaseKey, list[ChangePoint]](list)
    for change in changes:
        series = change.series
        if series.runner_class in runner_classes:
            changes_by_subject[series.case_key].append(change)
    return changes_by_subject


def change_points_between(
    base: CommitRef,
    head: CommitRef,
    regressions: Sequence[Regression],
) -> list[ChangePoint]:
    """Return stored change points after `base` and up to `head`, oldest first,
    of open regressions.
    """
    changes: list[ChangePoint] = []
    for regression in regressions:
        # what ended is no difference between the two any more
        if regression.state is not RegressionState.OPEN:
            continue
        for change in regression.change_points:
            # along the branch: dates of commits may be out of order
            position = change.commit.first_parent_count
            if base.first_parent_count < position <= head.first_parent_count:
                changes.append(change)
    return sorted(changes, key=lambda change: change.commit)


def why_not_comparable(base: RunDetail, head: RunDetail) -> Remark | None:
    refusals = [
        *refuse_foreign(base.foreign_code, head.foreign_code),
        *refuse_runner(base.summary.runner_class, head.summary.runner_class),
        *refuse_harness(base.summary.harness_version, head.summary.harness_version),
    ]
    return next(iter(refusals), None)


def _refusal(
    base: MeasuredCase | None,
    head: MeasuredCase | None,
    whole: Remark | None,
) -> Remark | None:
    if base is None or head is None:
        return None
    # a side without a time is a failure, not a refusal
    if base.median_ns is None or head.median_ns is None:
        return None
    return whole or refuse_method(base, head)


# --- machine code


_Hashes = dict[tuple[str, str], str | None]
"""Code hash by function and target."""


def _code_by_key(detail: RunDetail) -> defaultdict[CaseKey, _Hashes]:
    """Return code hashes by case and implementation."""
    hashes_by_subject = defaultdict[CaseKey, _Hashes](dict)
    for row in detail.static_rows:
        # one function may be compiled for several targets
        hashes = hashes_by_subject[row.case_key]
        hashes[row.function, row.target] = row.code_hash
    return hashes_by_subject


def _code_change(base: _Hashes, head: _Hashes) -> str:
    if not base and not head:
        return ""
    # a side that compiled nothing says nothing about a change
    if not head:
        return "only on the base"
    if not base:
        return "only on the head"
    targets = {target for _, target in base | head}
    # a function that only one side has is a change too
    differing = base.items() ^ head.items()
    changed = {target for (_, target), _ in differing}
    if not changed:
        return "same everywhere"
    names = ", ".join(sorted(changed, key=natural_order))
    return f"changed on {len(changed)} of {len(targets)}: {names}"


# --- one runner on one line


@dataclass(frozen=True)
class Geomean:
    """The geometric mean of head / base over cases."""

    change: float
    """Minus 1."""
    interval: Interval | None
    """Of the mean over the cases, 95 %; None for fewer than three."""
    count: int


def geomean_of(rows: Iterable[ComparedRow]) -> Geomean | None:
    """Average the changes as changes of a time, which falls when a rate rises; None without any."""
    logs: list[float] = []
    for row in rows:
        change = row.change
        # a time of zero has no logarithm
        if change is None or change <= -1:
            continue
        # a ratio to the library would count its time twice
        if not row.key.is_performance:
            continue
        log_change = math.log1p(change)
        if row.metric.better is not Better.LOWER:
            log_change = -log_change
        logs.append(log_change)
    if not logs:
        return None
    mean = statistics.fmean(logs)
    interval = None
    # two cases have a spread that says nothing
    if len(logs) > 2:
        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half_width = critical_t(len(logs) - 1, _CONFIDENCE) * error
        low = math.expm1(mean - half_width)
        high = math.expm1(mean + half_width)
        interval = low, high
    return Geomean(
        change=math.expm1(mean),
        interval=interval,
        count=len(logs),
    )


@dataclass(frozen=True)
class RunnerSummary:
    """What two commits are on one runner, in numbers."""

    geomean: Geomean | None
    counts: Mapping[Group, int]
    worse_found: int
    """Open regressions of the history between the two commits, by case."""
    better_found: int
    roofs: tuple[float, float] | None
    """Median share of the achievable rate of base and head, over cases that have both."""


def summarise(rows: Sequence[ComparedRow]) -> RunnerSummary:
    base_shares: list[float] = []
    head_shares: list[float] = []
    for row in rows:
        base, head = row.utilisations
        # of the same cases on both sides: a case that one side lacks would move the median
        if base is not None and head is not None:
            base_shares.append(base)
            head_shares.append(head)
    roofs = None
    if base_shares:
        base_median = statistics.median(base_shares)
        head_median = statistics.median(head_shares)
        roofs = base_median, head_median
    return RunnerSummary(
        geomean=geomean_of(rows),
        counts=Counter(row.group for row in rows),
        worse_found=sum(row.was_found(Verdict.REGRESSED) for row in rows),
        better_found=sum(row.was_found(Verdict.IMPROVED) for row in rows),
        roofs=roofs,
    )


def differences(base: RunDetail, head: RunDetail) -> list[str]:
    """Name what differs between two runs besides the commit, for which there is no verdict."""
    if base.environment is None or head.environment is None:
        return []
    remarks: list[str] = []
    titles = {
        "device_name": "device",
        "driver_version": "driver",
    }
    for name, title in titles.items():
        base_value = getattr(base.environment, name)
        head_value = getattr(head.environment, name)
        if base_value != head_value:
            remarks.append(f"{title} {base_value or 'unknown'} → {head_value or 'unknown'}")
    return remarks
