"""Which commits that were never measured to measure first. Pure.

What a measurement teaches is where something changed, so the order is that of a search: first the commits among which
a change is known to lie, halved until it lies between neighbours; then the newest, since nothing is known after the
last one that was measured; then the longest stretch that nobody looked into, halved likewise. Of equals the later one
is first: it is more likely to be still there, and remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Aim(StrEnum):
    """What a measurement is for."""

    CHANGE = "change"
    """A change is known to lie here."""
    NEWEST = "newest"
    """Nothing is known after the last commit that was measured."""
    GAP = "gap"
    """Nobody looked here."""


@dataclass(frozen=True)
class KnownChange:
    """Something changed after one commit and up to another."""

    before: int
    """Place of the last commit without it; −1 where that is before the range."""
    after: int
    """Place of the first commit that is known to have it."""
    what: str
    """In words."""


@dataclass(frozen=True)
class Choice:
    """A commit to measure."""

    place: int
    aim: Aim
    commit_count: int
    """Of the commits without a measurement that it lies among, itself included."""
    what: str = ""
    """The change that it narrows down, in words."""

    @property
    def reason(self) -> str:
        if self.aim is Aim.NEWEST:
            return "the newest of the range"
        is_last = self.commit_count == 1
        if self.aim is Aim.CHANGE:
            where = "the last commit to rule out" if is_last else f"halves the {self.commit_count} commits"
            return f"{where} for: {self.what}"
        return "between two that were measured" if is_last else f"halves {self.commit_count} commits nobody measured"


def choose_order(
    commit_count: int, *, measured: Collection[int], useless: Collection[int], changes: Sequence[KnownChange]
) -> list[Choice]:
    """All commits that may be worth measuring, the most informative first.

    Args:
        commit_count: Of the range; commits are named by their places in it, from 0, the oldest.
        measured: Places that were measured.
        useless: Places that cannot be measured, or would tell what a neighbour tells.
        changes: What is known to have changed within the range.
    """
    known, open_places = set(measured), set(range(commit_count)) - set(measured) - set(useless)
    order: list[Choice] = []
    while open_places:
        choice = max(_choices(commit_count, known, open_places, changes), key=_rank)
        order.append(choice)
        known.add(choice.place)
        open_places.remove(choice.place)
    return order


def _choices(
    commit_count: int, known: set[int], open_places: set[int], changes: Sequence[KnownChange]
) -> Iterator[Choice]:
    newest = max(open_places)
    if not any(place > newest for place in known):
        yield Choice(newest, Aim.NEWEST, 1)
    for gap in _gaps(commit_count, known, open_places):
        change = next((each for each in changes if each.before < gap[-1] and each.after > gap[0]), None)
        middle = gap[len(gap) // 2]
        if change is None:
            yield Choice(middle, Aim.GAP, len(gap))
        else:
            yield Choice(middle, Aim.CHANGE, len(gap), change.what)


def _gaps(commit_count: int, known: set[int], open_places: set[int]) -> Iterator[list[int]]:
    """Open places with no measured one between them."""
    gap: list[int] = []
    for place in range(commit_count):
        if place in known and gap:
            yield gap
            gap = []
        elif place in open_places:
            gap.append(place)
    if gap:
        yield gap


def _rank(choice: Choice) -> tuple[int, int, int]:
    return -list(Aim).index(choice.aim), choice.commit_count, choice.place
