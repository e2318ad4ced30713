"""Two runs side by side: the choices, what both measured, and the stored verdicts in between."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from enum import StrEnum

from roofwatch.ci.ab.comparable import refuse_foreign, refuse_harness, refuse_method, refuse_runner
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.claims.separate_runs import claims_of_runs
from roofwatch.ci.history.recent import MedianChange, Spread, compare_medians
from roofwatch.ci.messages import Remark, on_one_line
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.dashboard.wording import natural_order, written
from roofwatch.model.claim import Claim
from roofwatch.model.history import ChangePoint, CommitRef, Regression, RegressionState, timing_of
from roofwatch.model.record import Side
from roofwatch.model.stored_results import (
    FilterOptions,
    FleetRun,
    MeasuredCase,
    RecentRuns,
    RunDetail,
)
from roofwatch.model.verdict import Verdict


class By(StrEnum):
    """What the sides of a comparison are."""

    COMMITS = "commits"
    RUNS = "runs"
    BRANCHES = "branches"
    TOOLCHAINS = "toolchains"
    DEVICES = "devices"


def runs_by(by: By, runs: Sequence[FleetRun], facets: FilterOptions) -> dict[str, list[FleetRun]]:
    """Group runs by choice, ordered by newest run.

    Args:
        by: What is compared.
        runs: Newest first.
        facets: Commits by branch.

    Returns:
        The runs of each choice, best first: reachable commits, clean work trees, runs outside
        pairs, then the newest.
    """
    found: dict[str, list[FleetRun]] = {}
    for run in runs:
        for choice in _choices(by, run, facets.commits_by_branch):
            found.setdefault(choice, []).append(run)
    # sorting is stable, so newest runs stay first
    return {
        choice: sorted(own, key=lambda run: (run.is_unreachable, run.is_dirty, run.is_pair_side))
        for choice, own in found.items()
    }


def _choices(by: By, run: FleetRun, commits_by_branch: Mapping[str, frozenset[str]]) -> list[str]:
    environment = run.environment
    if by is By.BRANCHES:
        return [branch for branch, shas in commits_by_branch.items() if run.commit.sha in shas]
    if by is By.TOOLCHAINS:
        versions = (
            ("torch", environment.torch_version),
            ("triton", environment.triton_version),
            ("CUDA", environment.cuda_version),
            ("driver", environment.driver_version),
        )
        return [", ".join(f"{name} {version}" for name, version in versions if version)]
    return [run.run_id if by is By.RUNS else run.runner_class]


def run_for(runs: Sequence[FleetRun], *, runner_class: str | None = None) -> FleetRun:
    """Return the best run of a choice, preferably on a runner class."""
    return next((run for run in runs if run.runner_class == runner_class), runs[0])


def title_of(by: By, choice: str, runs: Sequence[FleetRun], zone: tzinfo) -> str:
    run = runs[0]
    if by is By.RUNS:
        left = ", no longer on its branch" if run.is_unreachable else ""
        choice = (
            f"{written(run.started_at, zone)} {run.commit.short_sha} on {run.runner_class} "
            f"({choice[:8]}{left})"
        )
    return on_one_line(choice)


@dataclass(frozen=True)
class ComparedCase:
    """One case and implementation; a side is None if its run does not have it."""

    case_id: str
    implementation: str
    base: MeasuredCase | None
    head: MeasuredCase | None
    change_points: tuple[ChangePoint, ...]
    """Stored change points of any metric, after the base and up to the head."""
    code_change: str
    """Whether machine code changed, over all targets; empty if neither side compiled any."""
    refusal: str = ""
    """Why the times cannot be compared; empty if they can."""
    claim: Claim | None = None
    """What may be claimed of it; None if neither run measured it."""
    judged: MedianChange | None = None
    """The difference against the noise from run to run, which tells what to look at and decides
    nothing; None if that is not known, or the times cannot be compared.
    """
    comparison: Comparison | None = None
    """Of the paired blocks, if the runs are a pair."""

    @property
    def kernel(self) -> str:
        return self.case_id.partition("/")[0]

    @property
    def relative_change(self) -> float | None:
        """Return (head − base) / base, of a pair from its blocks, else of the medians; None if they
        cannot be compared.
        """
        if self.refusal or self.base is None or self.head is None:
            return None
        if self.comparison is not None:
            return self.comparison.relative_change
        if not self.base.median_ns or not self.head.median_ns:
            return None
        return (self.head.median_ns - self.base.median_ns) / self.base.median_ns

    @property
    def has_new_outcome(self) -> bool:
        return (
            self.base is not None
            and self.head is not None
            and self.base.outcome is not self.head.outcome
        )

    @property
    def is_one_sided(self) -> bool:
        return self.base is None or self.head is None

    @property
    def is_profiled(self) -> bool:
        """Whether both sides have a profile, of times that compare."""
        return bool(
            self.base
            and self.head
            and self.base.is_profiled
            and self.head.is_profiled
            and not self.refusal
        )

    @property
    def is_within_noise(self) -> bool:
        if self.comparison is not None:
            return self.claim is not None and self.claim.verdict is Verdict.UNCHANGED
        return self.judged is not None and self.judged.verdict is Verdict.UNCHANGED

    @property
    def is_changed(self) -> bool:
        """Whether anything changed, as far as the noise is known."""
        is_off = bool(self.refusal) or (
            self.relative_change is not None and not self.is_within_noise
        )
        return bool(self.change_points) or self.has_new_outcome or self.is_one_sided or is_off

    @property
    def claim_text(self) -> str:
        return "" if self.claim is None else self.claim.text

    @property
    def relevance(self) -> tuple[bool, bool, bool, bool, float]:
        """Return the sort key: stored verdict, new outcome, one side only, beyond the noise, size
        of the change.
        """
        change = self.relative_change
        moved = 0.0 if change is None else abs(math.log1p(change))
        return (
            bool(self.change_points),
            self.has_new_outcome,
            self.is_one_sided,
            not self.is_within_noise,
            moved,
        )


SHOWN: Mapping[str, Callable[[ComparedCase], bool]] = {
    "changed": lambda row: row.is_changed,
    "everything": lambda _: True,
    "with a verdict": lambda row: bool(row.change_points),
    "outcome changed": lambda row: row.has_new_outcome,
    "on one side only": lambda row: row.is_one_sided,
    "machine code changed": lambda row: row.code_change.startswith("changed"),
    "not comparable": lambda row: bool(row.refusal),
}
"""Which rows of a comparison are shown."""


def compare_runs(
    base: RunDetail,
    head: RunDetail,
    regressions: Sequence[Regression],
    recent: Sequence[RecentRuns] = (),
    *,
    pair: PullRequestJudgement | None = None,
) -> list[ComparedCase]:
    """Compare every case and implementation of two runs, most relevant first.

    Args:
        base: Run to compare against.
        head: New run.
        regressions: Stored ones.
        recent: The newest runs of the head's runner class, which show the noise.
        pair: The judgement of their records if the two are a pair.
    """
    base_cases, head_cases = (
        {(case.case_id, case.implementation): case for case in side.cases} for side in (base, head)
    )
    base_static, head_static = _static_by_key(base), _static_by_key(head)
    refusal = why_not_comparable(base, head)
    changes = defaultdict[tuple[str, str], list[ChangePoint]](list)
    for change in change_points_between(base.summary.commit, head.summary.commit, regressions):
        # compiled code does not depend on the runner
        if change.series.runner_class in {"", head.summary.runner_class}:
            changes[change.series.case_id, change.series.implementation].append(change)
    rows = [
        ComparedCase(
            *key,
            base=base_cases.get(key),
            head=head_cases.get(key),
            change_points=tuple(changes[key]),
            code_change=_code_change(base_static[key], head_static[key]),
            refusal=str(_refusal(base_cases.get(key), head_cases.get(key), refusal) or ""),
        )
        for key in base_cases | head_cases
    ]
    judged = _judge(rows, recent)
    claims = claims_of_runs(base, head)
    comparisons: dict[tuple[str, str], Comparison | None] = {}
    if pair is not None:
        claims |= {case.subject.case_key: case.evidence.claimed for case in pair.cases}
        comparisons = {case.subject.case_key: case.evidence.comparison for case in pair.cases}
    rows = [
        replace(
            row,
            judged=judged.get((row.case_id, row.implementation)),
            claim=claims.get((row.case_id, row.implementation)),
            comparison=comparisons.get((row.case_id, row.implementation)),
        )
        for row in rows
    ]
    return sorted(
        rows,
        key=lambda row: (*(-value for value in row.relevance), row.case_id, row.implementation),
    )


def _judge(
    rows: Sequence[ComparedCase], recent: Sequence[RecentRuns]
) -> Mapping[tuple[str, str], MedianChange]:
    """Judge the times of rows by the spread of the newest runs of the same series, timer and cache
    state.
    """
    spreads = {
        (one.key.case_id, one.key.implementation, one.timing): Spread.of(one.values)
        for runner in recent
        for one in runner.series
    }
    medians_ns, known = {}, {}
    for row in rows:
        base, head = row.base, row.head
        if (
            row.relative_change is None
            or base is None
            or head is None
            or not base.median_ns
            or not head.median_ns
        ):
            continue
        key = row.case_id, row.implementation
        spread = spreads.get((*key, timing_of(head.timer, head.cache)))
        if spread is not None:
            medians_ns[key], known[key] = (base.median_ns, head.median_ns), spread
    return compare_medians(medians_ns, known)


def is_pair(base: RunDetail, head: RunDetail) -> bool:
    """Whether two runs are base and head of one pair, in this order."""
    if base.pairing is None or head.pairing is None:
        return False
    sides = [base.pairing.side, head.pairing.side]
    return base.pairing.pair_id == head.pairing.pair_id and sides == [Side.BASE, Side.HEAD]


def change_points_between(
    base: CommitRef, head: CommitRef, regressions: Sequence[Regression]
) -> list[ChangePoint]:
    """Return stored change points after `base` and up to `head`, oldest first,
    of open regressions.
    """
    return sorted(
        (
            change
            for regression in regressions
            if regression.state is RegressionState.OPEN
            for change in regression.change_points
            if base.first_parent_count < change.commit.first_parent_count <= head.first_parent_count
        ),
        key=lambda change: change.commit,
    )


def why_not_comparable(base: RunDetail, head: RunDetail) -> Remark | None:
    refusals = [
        *refuse_foreign(base.foreign_code, head.foreign_code),
        *refuse_runner(base.summary.runner_class, head.summary.runner_class),
        *refuse_harness(base.summary.harness_version, head.summary.harness_version),
    ]
    return next(iter(refusals), None)


def _refusal(
    base: MeasuredCase | None, head: MeasuredCase | None, whole: Remark | None
) -> Remark | None:
    if base is None or head is None or base.median_ns is None or head.median_ns is None:
        return None
    return whole or refuse_method(base, head)


_Hashes = dict[tuple[str, str], str | None]
"""Code hash by function and target."""


def _static_by_key(detail: RunDetail) -> defaultdict[tuple[str, str], _Hashes]:
    """Return code hashes by case and implementation."""
    found = defaultdict[tuple[str, str], _Hashes](dict)
    for row in detail.static_rows:
        found[row.case_id, row.implementation][row.function, row.target] = row.code_hash
    return found


def _code_change(base: _Hashes, head: _Hashes) -> str:
    if not base and not head:
        return ""
    if not base or not head:
        return "only on the base" if base else "only on the head"
    places = base | head
    changed = {place[1] for place in places if base.get(place) != head.get(place)}
    if not changed:
        return "same everywhere"
    names = ", ".join(sorted(changed, key=natural_order))
    return f"changed on {len(changed)} of {len({target for _, target in places})}: {names}"
