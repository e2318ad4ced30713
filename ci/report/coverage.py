"""What is not covered: cases that fail, cannot run, or were never measured where others are. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.collector.record.machine import Outcome


class Gap(StrEnum):
    FAILING = "failing"
    """Any of its implementations fails."""
    UNSUPPORTED = "unsupported"
    """None of its implementations can run there."""
    NEVER_MEASURED = "never measured"
    """Another runner measures it, or it was planned there, and no result came."""


@dataclass(frozen=True)
class CoverageGap:
    """Cases of one kernel with one gap on one runner class."""

    kernel: str
    runner_class: str
    gap: Gap
    case_ids: tuple[str, ...]
    case_count: int
    """Of the kernel, on all runner classes together."""
    outcomes: tuple[Outcome, ...]
    """How the failing ones ended."""


def coverage_gaps(cases: Mapping[str, Mapping[str, Set[Outcome]]]) -> list[CoverageGap]:
    """Find what is not covered, failures first, then by how many cases.

    Args:
        cases: By runner class, the outcomes of all implementations of each case of its newest run.
    """
    known = {case_id for by_case in cases.values() for case_id in by_case}
    count_by_kernel: dict[str, int] = defaultdict(int)
    for case_id in known:
        count_by_kernel[_kernel_of(case_id)] += 1
    found: dict[tuple[str, str, Gap], list[str]] = defaultdict(list)
    for runner_class, by_case in cases.items():
        for case_id in sorted(known):
            gap = _gap_of(by_case.get(case_id, frozenset()))
            if gap is not None:
                found[_kernel_of(case_id), runner_class, gap].append(case_id)
    gaps = [
        CoverageGap(
            kernel=kernel,
            runner_class=runner_class,
            gap=gap,
            case_ids=tuple(case_ids),
            case_count=count_by_kernel[kernel],
            outcomes=_failures(cases[runner_class], case_ids) if gap is Gap.FAILING else (),
        )
        for (kernel, runner_class, gap), case_ids in found.items()
    ]
    order = list(Gap)
    return sorted(gaps, key=lambda one: (order.index(one.gap), -len(one.case_ids), one.kernel, one.runner_class))


def _kernel_of(case_id: str) -> str:
    return case_id.split("/", 1)[0]


def _gap_of(outcomes: Set[Outcome]) -> Gap | None:
    if not outcomes:
        return Gap.NEVER_MEASURED
    if outcomes == {Outcome.UNSUPPORTED}:
        return Gap.UNSUPPORTED
    return Gap.FAILING if outcomes - {Outcome.OK, Outcome.UNSUPPORTED} else None


def _failures(by_case: Mapping[str, Set[Outcome]], case_ids: list[str]) -> tuple[Outcome, ...]:
    ended = set().union(*(by_case[case_id] for case_id in case_ids))
    return tuple(outcome for outcome in Outcome if outcome in ended - {Outcome.OK, Outcome.UNSUPPORTED})
