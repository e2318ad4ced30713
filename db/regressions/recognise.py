"""Which regression of a new judgement is one that was found before. Pure.

With every record that comes in, a change is seen better: it may turn out to lie a commit beside, or to have moved
another kernel too. So a regression is known again by its commit, kernel and verdict, and otherwise by what it speaks
of: the same way, about the same place, and at least half of the series of the smaller one in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from roofwatch.db.values import Regression

_IN_COMMON = 0.5


@dataclass(frozen=True)
class Known:
    """A regression as it was last found."""

    regression_id: UUID
    sha: str
    kernel: str
    verdict: str
    series: frozenset[str]
    place: int | None
    """Of its commit on the branch; None where that is no longer there."""


def recognise(known: Sequence[Known], found: Sequence[Regression]) -> list[UUID | None]:
    """The id of each that was found, or None for one that is new; no id comes twice."""
    by_key = {(one.sha, one.kernel, one.verdict): one.regression_id for one in known}
    ids = [by_key.get((one.commit.sha, one.kernel, one.verdict.value)) for one in found]
    taken = set(ids)
    likenesses = [
        (likeness, position, one.regression_id)
        for position, regression in enumerate(found)
        if ids[position] is None
        for one in known
        if one.regression_id not in taken and (likeness := _likeness(one, regression)) >= _IN_COMMON
    ]
    for _, position, regression_id in sorted(likenesses, key=lambda each: (-each[0], each[1], str(each[2]))):
        if ids[position] is None and regression_id not in taken:
            ids[position] = regression_id
            taken.add(regression_id)
    return ids


def series_in_words(regression: Regression) -> frozenset[str]:
    """What a regression speaks of. Not which tensor or function: these come and go with a rewrite."""
    keys = [point.series for point in regression.change_points]
    return frozenset(" · ".join((key.case_id, key.implementation, key.metric, key.runner_class)) for key in keys)


def _likeness(known: Known, found: Regression) -> float:
    """Share of the series in common; 0 where they cannot be the same."""
    if known.verdict != found.verdict.value or known.place is None or not found.change_points:
        return 0.0
    first = min(point.previous_commit.first_parent_count for point in found.change_points)
    last = max(point.commit.first_parent_count for point in found.change_points)
    if not first < known.place <= last + (last - first):
        return 0.0
    series = series_in_words(found)
    smaller = min(len(series), len(known.series))
    return len(series & known.series) / smaller if smaller else 0.0
