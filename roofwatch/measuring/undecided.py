"""Which cases of a pair get more blocks: those that it helps, the nearest to their end first, while there is time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import islice

from roofwatch.ci.ab.compare import look_number, looks_after
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run_plan import Activity, Subject

_MORE_BLOCKS_DECIDE = frozenset({Reason.NOISE, Reason.TOO_FEW_BLOCKS, Reason.MULTIPLICITY})
_BLOCKS_OF_A_FLOOR = 18
"""From so many on, a standard deviation is known to a sixth of itself: 1 / √(2 n)."""
_OF_A_BLOCK = (Activity.WARM_UP, Activity.TIMING, Activity.OVERHEAD)

Judge = Callable[[RunRecord, RunRecord], PullRequestJudgement]


def is_undecided(case: CaseJudgement) -> bool:
    """Whether more blocks may give a verdict."""
    return case.reason in _MORE_BLOCKS_DECIDE


def needs_more(case: CaseJudgement) -> bool:
    """Whether it is undecided, or was flagged at the first look alone: nobody is told of a slowdown, or of a speedup,
    that was not there when it was measured again.
    """
    return is_undecided(case) or (_is_flagged(case) and look_number(_block_count(case)) == 1)


def is_floor_unknown(case: CaseJudgement) -> bool:
    """Whether more blocks would say noticeably better how noisy it is."""
    return case.comparison is not None and case.comparison.block_count < _BLOCKS_OF_A_FLOOR


class MoreWhileItHelps:
    """Asked after each look at a pair what else to measure.

    The looks are those of `roofwatch.ci.ab.compare`, so their verdicts hold however many there are.

    Args:
        judge: Judges the two records.
        helps: Whether more blocks would help a case.
        budget_s: Seconds for more blocks, from the first look on.
        say: Takes a line that says where things are.
        clock: Seconds; never goes backwards.
    """

    def __init__(
        self,
        judge: Judge,
        helps: Callable[[CaseJudgement], bool],
        *,
        budget_s: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._judge = judge
        self._helps = helps
        self._budget_s = budget_s
        self._say = say
        self._clock = clock
        self._deadline: float | None = None

    def __call__(self, base: RunRecord, head: RunRecord) -> Mapping[Subject, int]:
        """How many blocks those shall have on each side that get more."""
        if self._deadline is None:
            self._deadline = self._clock() + self._budget_s
        cases = [case for case in self._judge(base, head).cases if case.comparison is not None]
        open_cases = sorted(filter(self._helps, cases), key=_blocks_to_go)
        left_s = self._deadline - self._clock()
        wanted = _affordable(open_cases, left_s, seconds_per_pair=_seconds_per_pair(base, head))
        self._say(_where(len(cases), len(open_cases), len(wanted), left_s))
        return wanted


def _is_flagged(case: CaseJudgement) -> bool:
    return case.reason is Reason.BEYOND_THRESHOLD and case.comparison is not None


def _block_count(case: CaseJudgement) -> int:
    """On each side, those that are left out among them."""
    return 0 if case.comparison is None else case.comparison.block_count + len(case.left_out)


def _blocks_to_go(case: CaseJudgement) -> float:
    if _is_flagged(case):
        return 0.0  # what is to be told comes first
    if case.comparison is None or case.comparison.more_blocks is None:
        return math.inf
    return case.comparison.more_blocks


def _affordable(open_cases: list[CaseJudgement], left_s: float, *, seconds_per_pair: float) -> dict[Subject, int]:
    """Up to the next look each, as far down the list as the time goes."""
    wanted: dict[Subject, int] = {}
    for case in open_cases:
        count = _block_count(case)
        next_look = next(islice(looks_after(count), 1))
        left_s -= (next_look - count) * seconds_per_pair
        if left_s < 0:
            break
        wanted[Subject(case.case_id, case.implementation)] = next_look
    return wanted


def _seconds_per_pair(base: RunRecord, head: RunRecord) -> float:
    """What a block on each side takes, by what those so far took."""
    records = (base, head)
    spent_ns = sum(record.spent_ns.get(activity, 0) for record in records for activity in _OF_A_BLOCK)
    blocks = sum(len(measured.blocks) for record in records for measured in record.measurements)
    return 2 * spent_ns / 1e9 / max(1, blocks)


def _where(judged: int, still_open: int, wanted: int, left_s: float) -> str:
    settled = f"{judged - still_open} of {judged} settled"
    if not still_open:
        return settled
    left = f"{max(0.0, left_s):.0f} s left"
    if not wanted:
        return f"{settled}, {still_open} open; {left}, too few for another look"
    return f"{settled}, {still_open} open, {wanted} of them get more blocks; {left}"
