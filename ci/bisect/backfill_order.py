"""The order in which to measure commits that were never measured. Pure.

Known changes are narrowed down first by halving, then the newest commit is measured, then the longest gap is halved.
Of equal choices the later commit is first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Aim(StrEnum):
    """Why to measure a commit, the most important first."""

    CHANGE = "change"
    """A change is known to be in this gap."""
    NEWEST = "newest"
    """Nothing later was measured."""
    GAP = "gap"


@dataclass(frozen=True)
class KnownChange:
    """A change between two commits."""

    before: int
    """Position of the last commit without it; −1 if that is before the range."""
    after: int
    """Position of the first commit that has it."""
    summary: str


@dataclass(frozen=True)
class Choice:
    """A commit to measure."""

    position: int
    aim: Aim
    commit_count: int
    """Unmeasured commits in its gap, including this one."""
    reason: str


def choose_order(
    commit_count: int, *, measured: Collection[int], skipped: Collection[int], changes: Sequence[KnownChange]
) -> list[Choice]:
    """Order all commits that are worth measuring, the most informative first.

    Args:
        commit_count: Of the range; commits are numbered from 0, the oldest.
        measured: Positions that were measured.
        skipped: Positions that cannot be measured, or equal a neighbour.
        changes: Known changes in the range.
    """
    known, unmeasured = set(measured), set(range(commit_count)) - set(measured) - set(skipped)
    order: list[Choice] = []
    while unmeasured:
        newest = max(unmeasured)
        choices = [_choice_in(gap, changes) for gap in _gaps(known, unmeasured)]
        if not any(position > newest for position in known):
            choices.append(Choice(newest, Aim.NEWEST, 1, "the newest commit"))
        best = max(choices, key=lambda one: (-list(Aim).index(one.aim), one.commit_count, one.position))
        order.append(best)
        known.add(best.position)
        unmeasured.remove(best.position)
    return order


def _gaps(known: set[int], unmeasured: set[int]) -> list[list[int]]:
    """Group unmeasured commits that have no measured commit between them."""
    gaps: list[list[int]] = [[]]
    for position in sorted(known | unmeasured):
        if position in known:
            gaps.append([])
        else:
            gaps[-1].append(position)
    return [gap for gap in gaps if gap]


def _choice_in(gap: list[int], changes: Sequence[KnownChange]) -> Choice:
    middle = gap[len(gap) // 2]
    change = next((one for one in changes if one.before < gap[-1] and one.after > gap[0]), None)
    reason = f"halves {len(gap)} unmeasured commits" if len(gap) > 1 else "fills the gap"
    if change is None:
        return Choice(middle, Aim.GAP, len(gap), reason)
    return Choice(middle, Aim.CHANGE, len(gap), f"{reason}: {change.summary}")
