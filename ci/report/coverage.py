"""Gaps of coverage: cases that fail, cannot run, or were never measured although another runner does. Pure."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, product

from roofwatch.collector.record.machine import Outcome


class Gap(StrEnum):
    """In order of importance."""

    FAILING = "failing"
    """An implementation fails."""
    UNSUPPORTED = "unsupported"
    """No implementation can run there."""
    NEVER_MEASURED = "never measured"
    """No result on this runner class, but on another one."""


@dataclass(frozen=True)
class CoverageGap:
    """Cases of one kernel with one gap on one runner class."""

    kernel: str
    runner_class: str
    gap: Gap
    case_ids: tuple[str, ...]
    case_count: int
    """Number of the kernel's cases, on all runner classes."""
    outcomes: tuple[Outcome, ...]
    """Outcomes of the failing cases."""


def coverage_gaps(cases: Mapping[str, Mapping[str, Set[Outcome]]]) -> list[CoverageGap]:
    """List the gaps, failures first, then by the number of cases.

    Cases have the outcomes of all implementations by runner class, of its newest run.
    """
    known = sorted({case_id for by_case in cases.values() for case_id in by_case})
    by_kernel = {kernel: tuple(found) for kernel, found in groupby(known, key=lambda case_id: case_id.split("/", 1)[0])}
    gaps = []
    for (runner_class, by_case), (kernel, case_ids) in product(cases.items(), by_kernel.items()):
        for gap in Gap:
            found = tuple(one for one in case_ids if _gap_of(by_case.get(one, frozenset())) is gap)
            ended = {outcome for one in found for outcome in by_case.get(one, ()) if outcome.is_failure}
            if found:
                outcomes = tuple(outcome for outcome in Outcome if outcome in ended)
                gaps.append(CoverageGap(kernel, runner_class, gap, found, len(case_ids), outcomes))
    return sorted(gaps, key=lambda one: (list(Gap).index(one.gap), -len(one.case_ids), one.kernel, one.runner_class))


def _gap_of(outcomes: Set[Outcome]) -> Gap | None:
    if not outcomes:
        return Gap.NEVER_MEASURED
    if outcomes == {Outcome.UNSUPPORTED}:
        return Gap.UNSUPPORTED
    return Gap.FAILING if any(outcome.is_failure for outcome in outcomes) else None
