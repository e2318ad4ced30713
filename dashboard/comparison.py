"""Two runs side by side, as stored: what both measured, what only one did, and what was judged in between.

Plain values to plain values. A verdict is never made here: it is looked up among the stored change points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.ab.comparable import Timing, refuse_medians
from roofwatch.collector.record.machine import Outcome
from roofwatch.dashboard.wording import natural_order
from roofwatch.db.queries.run_values import MeasuredCase, RunDetail, RunSummary, StaticRow
from roofwatch.db.values import ChangePoint, CommitRef, Regression, RegressionState

_ANY_RUNNER = ""
"""The runner class of compiled code, which does not depend on the runner."""


@dataclass(frozen=True)
class ComparedCase:
    """One case and implementation on both sides; a side is None where its run does not have it."""

    case_id: str
    kernel: str
    implementation: str
    base: MeasuredCase | None
    head: MeasuredCase | None
    change_points: tuple[ChangePoint, ...]
    """Stored ones of any of its metrics, after the base and up to the head."""
    code_change: str
    """What became of its machine code over all targets, in words; empty where neither side compiled any."""
    refusal: str = ""
    """Why its times are not compared; empty where they may be, or where one side has none."""

    @property
    def relative_change(self) -> float | None:
        """(head − base) / base of the shown medians; None unless both sides have one, and they compare."""
        if self.refusal:
            return None
        if self.base is None or self.head is None or not self.base.median_ns or not self.head.median_ns:
            return None
        return (self.head.median_ns - self.base.median_ns) / self.base.median_ns

    @property
    def relevance(self) -> tuple[bool, bool, bool, float]:
        """Sorts the rows: judged, then broken or repaired, then on one side only, then by the size of the move, the
        same for n times slower and n times faster.
        """
        is_on_both = self.base is not None and self.head is not None
        has_new_outcome = is_on_both and _outcome(self.base) is not _outcome(self.head)
        change = self.relative_change
        moved = 0.0 if change is None else abs(math.log1p(change))
        return bool(self.change_points), has_new_outcome, not is_on_both, moved


class Shown(StrEnum):
    """Which rows of a comparison somebody wants to see."""

    EVERYTHING = "everything"
    JUDGED = "with a stored verdict"
    OTHER_OUTCOMES = "other outcomes"
    ONE_SIDE = "on one side only"
    OTHER_CODE = "other machine code"
    REFUSED = "not comparable"

    def admits(self, row: ComparedCase) -> bool:
        """A row is of that kind."""
        judged, new_outcome, one_sided, _ = row.relevance
        return {
            Shown.EVERYTHING: True,
            Shown.JUDGED: judged,
            Shown.OTHER_OUTCOMES: new_outcome,
            Shown.ONE_SIDE: one_sided,
            Shown.OTHER_CODE: row.code_change.startswith("changed"),
            Shown.REFUSED: bool(row.refusal),
        }[self]


class Order(StrEnum):
    """In which the rows of a comparison are listed."""

    RELEVANCE = "relevance"
    SLOWER = "slower first"
    FASTER = "faster first"
    CASE = "case"


def in_order(rows: Sequence[ComparedCase], order: Order) -> list[ComparedCase]:
    """Rows come by relevance; what has no change comes last where changes are asked for."""
    if order is Order.RELEVANCE:
        return list(rows)
    if order is Order.CASE:
        return sorted(rows, key=lambda row: (natural_order(row.case_id), row.implementation))
    sign = -1 if order is Order.SLOWER else 1
    return sorted(rows, key=lambda row: math.inf if row.relative_change is None else sign * row.relative_change)


def _outcome(case: MeasuredCase | None) -> Outcome | None:
    return None if case is None else case.outcome


def compare_runs(base: RunDetail, head: RunDetail, regressions: Sequence[Regression]) -> list[ComparedCase]:
    """Every case and implementation of either run, the most relevant first."""
    base_cases, head_cases = _by_key(base), _by_key(head)
    base_static, head_static = _static_by_key(base), _static_by_key(head)
    refusal = why_not_comparable(base.summary, head.summary)
    changes = defaultdict[tuple[str, str], list[ChangePoint]](list)
    for change in change_points_between(base.summary.commit, head.summary.commit, regressions):
        if change.series.runner_class in {_ANY_RUNNER, head.summary.runner_class}:
            changes[change.series.case_id, change.series.implementation].append(change)
    rows = []
    for key in base_cases.keys() | head_cases.keys():
        either = head_cases.get(key) or base_cases[key]
        rows.append(
            ComparedCase(
                case_id=either.case_id,
                kernel=either.kernel,
                implementation=either.implementation,
                base=base_cases.get(key),
                head=head_cases.get(key),
                change_points=tuple(changes.get(key, ())),
                code_change=_code_change(base_static.get(key, {}), head_static.get(key, {})),
                refusal=_refusal(base_cases.get(key), head_cases.get(key), refusal),
            )
        )
    return sorted(rows, key=lambda row: (*(-value for value in row.relevance), row.case_id, row.implementation))


def change_points_between(base: CommitRef, head: CommitRef, regressions: Sequence[Regression]) -> list[ChangePoint]:
    """Stored change points after `base` and up to `head`, oldest first. They are judged forwards, so there are none
    where `head` is older. Dismissed ones are not among them.
    """
    return sorted(
        (
            change
            for regression in regressions
            if regression.state is not RegressionState.DISMISSED
            for change in regression.change_points
            if base.first_parent_count < change.commit.first_parent_count <= head.first_parent_count
        ),
        key=lambda change: change.commit,
    )


def why_not_comparable(base: RunSummary, head: RunSummary) -> str | None:
    """Why times of two runs must not be set against each other; None where they may."""
    if base.runner_class != head.runner_class:
        return f"the base was measured on {base.runner_class}, the head on {head.runner_class}"
    if base.harness_version != head.harness_version:
        return f"the base was measured by harness {base.harness_version}, the head by harness {head.harness_version}"
    return None


def _refusal(base: MeasuredCase | None, head: MeasuredCase | None, whole: str | None) -> str:
    timings = _timing(base), _timing(head)
    if timings[0] is None or timings[1] is None:
        return ""
    return whole or str(refuse_medians(timings[0], timings[1]) or "")


def _timing(case: MeasuredCase | None) -> Timing | None:
    """How it was timed; None where it was not."""
    return None if case is None or case.median_ns is None else Timing(case.timer, case.cache)


def changed_facts(before: StaticRow | None, now: StaticRow) -> str:
    """What differs between two compilations of one function for one target, in words."""
    if before is None:
        return "new"
    if before.outcome is not now.outcome:
        return f"{before.outcome.replace('_', ' ')} → {now.outcome.replace('_', ' ')}"
    if before.code_hash == now.code_hash:
        return "same machine code"
    moved = [
        f"{title} {earlier} → {later}"
        for title, earlier, later in (
            ("registers", before.registers, now.registers),
            ("spilled registers", before.spilled_registers, now.spilled_registers),
            ("local bytes", before.local_bytes, now.local_bytes),
            ("shared bytes", before.shared_bytes, now.shared_bytes),
            ("code bytes", before.code_bytes, now.code_bytes),
        )
        if earlier != later
    ]
    return ", ".join(["code changed", *moved])


def _by_key(detail: RunDetail) -> dict[tuple[str, str], MeasuredCase]:
    return {(case.case_id, case.implementation): case for case in detail.cases}


def _static_by_key(detail: RunDetail) -> dict[tuple[str, str], dict[tuple[str, str], StaticRow]]:
    """Case and implementation -> function and target -> facts."""
    found: dict[tuple[str, str], dict[tuple[str, str], StaticRow]] = {}
    for row in detail.static_rows:
        found.setdefault((row.case_id, row.implementation), {})[row.function, row.target] = row
    return found


def _code_change(base: dict[tuple[str, str], StaticRow], head: dict[tuple[str, str], StaticRow]) -> str:
    if not base and not head:
        return ""
    if not base or not head:
        return "only on the base" if base else "only on the head"
    hashes = {
        key: (base[key].code_hash if key in base else None, head[key].code_hash if key in head else None)
        for key in base.keys() | head.keys()
    }
    changed = sorted({target for (_, target), (before, after) in hashes.items() if before != after}, key=natural_order)
    if not changed:
        return "same everywhere"
    return f"changed on {len(changed)} of {len({target for _, target in hashes})}: {', '.join(changed)}"
