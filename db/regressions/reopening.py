"""When what was decided about a regression changes by itself. Pure.

A regression lies in the past, so every judgement finds it again. It has come back if it had gone or was undone, and is
not any more; or if somebody said that it was fixed, and commits that were measured since then say that it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.db.auth.values import TriageState
from roofwatch.db.values import Regression

ROOFWATCH = "roofwatch"
"""Who decides by itself."""
LATER_COMMITS = 3
"""So many measured commits without the fix are no coincidence, and as many show it where it is."""


@dataclass(frozen=True)
class Standing:
    """A regression's decision before a judgement."""

    state: TriageState
    person: str | None
    was_found: bool
    """By the judgement before."""
    later_count: int
    """Commits that were measured of places after the newest one of when it was decided."""


@dataclass(frozen=True)
class Change:
    state: TriageState
    reason: str


def change_of(standing: Standing, regression: Regression) -> Change | None:
    """What becomes of a decision now that a judgement says this; None where it stands."""
    recovered = regression.recovered_at
    if recovered is not None:
        if standing.state in {TriageState.NEW, TriageState.ACKNOWLEDGED}:
            return Change(TriageState.FIXED, f"back where it was at {recovered.short_sha} ({recovered.subject[:200]})")
        return None
    if standing.state is not TriageState.FIXED:
        return None
    if not standing.was_found:
        return Change(TriageState.NEW, "it had gone, and is found again")
    if standing.person == ROOFWATCH:
        return Change(TriageState.NEW, "it had recovered, and has not any more")
    if standing.later_count >= LATER_COMMITS:
        return Change(TriageState.NEW, f"still there after {standing.later_count} commits that were measured since")
    return None
