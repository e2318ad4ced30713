"""What one device of a cluster is given at a time: some cases of a suite."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.selection import Selected


@dataclass(frozen=True)
class Share:
    """Cases that are measured together, on devices of one machine."""

    number: int
    case_ids: tuple[str, ...]
    rank_count: int
    """Devices that it takes: more than one for kernels that several processes launch together."""

    def plan(self, plan: RunPlan) -> RunPlan:
        """The plan of all, for these cases alone."""
        # ids are patterns there, and may have brackets
        return replace(plan, cases=tuple(glob.escape(case_id) for case_id in self.case_ids))


@dataclass(frozen=True)
class _Dealt:
    case_id: str
    rank_count: int
    implementation_count: int


def deal(selected: Sequence[Selected], share_count: int) -> tuple[Share, ...]:
    """Cut a suite into shares of about equal numbers of results.

    Cases stay in the suite's order, so that those of one kernel, which share what is compiled and tuned, mostly stay
    together; the same suite is cut the same way every time.

    Args:
        selected: What is to be measured.
        share_count: About so many; more where kernels need different numbers of devices, fewer where there are fewer
            cases.
    """
    cases = list(_cases(selected))
    fair_count = max(1.0, len(selected) / share_count)
    shares: list[Share] = []
    for rank_count in sorted({case.rank_count for case in cases}):
        alike = [case for case in cases if case.rank_count == rank_count]
        for case_ids in _cut(alike, fair_count):
            shares.append(Share(len(shares), case_ids, rank_count))
    return tuple(shares)


def _cases(selected: Iterable[Selected]) -> Iterable[_Dealt]:
    for (case_id, rank_count), group in groupby(selected, key=lambda one: (one.case.case_id, one.rank_count)):
        yield _Dealt(case_id, rank_count, sum(1 for _ in group))


def _cut(cases: Sequence[_Dealt], fair_count: float) -> Iterable[tuple[str, ...]]:
    total_count, share_number = 0, 0
    share: list[str] = []
    for case in cases:
        # by its middle, so that a large case goes where most of it belongs
        number = int((total_count + case.implementation_count / 2) / fair_count)
        if share and number != share_number:
            yield tuple(share)
            share = []
        share_number = number
        share.append(case.case_id)
        total_count += case.implementation_count
    if share:
        yield tuple(share)
