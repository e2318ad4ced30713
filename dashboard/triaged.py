"""Regressions with their triage, as readers see them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.dashboard.wording import natural_order, worst_change_point
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.values import Regression, RegressionState, Verdict

_OPEN_STATES = {TriageState.NEW, TriageState.ACKNOWLEDGED}


@dataclass(frozen=True)
class Triaged:
    regression: Regression
    triage: Triage

    @property
    def is_open(self) -> bool:
        """Whether somebody still has to act on it."""
        return (
            self.regression.verdict is Verdict.REGRESSED
            and self.regression.state is RegressionState.OPEN
            and self.regression.recovered_at is None
            and self.triage.state in _OPEN_STATES
        )

    @property
    def is_settled(self) -> bool:
        """Whether it is a regression that is no longer open."""
        return self.regression.verdict is Verdict.REGRESSED and not self.is_open

    @property
    def is_invalid(self) -> bool:
        """Whether a person called it invalid."""
        return self.triage.state is TriageState.INVALID

    @property
    def is_improvement(self) -> bool:
        return self.regression.verdict is Verdict.IMPROVED and self.regression.state is RegressionState.OPEN

    @property
    def is_inconclusive(self) -> bool:
        """Whether something changed without a kernel to blame, for example the clock."""
        return self.regression.verdict is Verdict.INCONCLUSIVE and self.regression.state is RegressionState.OPEN

    @property
    def settled_by(self) -> str:
        """Return why it is no longer open."""
        if self.regression.state is RegressionState.DISMISSED:
            return "not confirmed when measured again"
        if self.triage.state not in _OPEN_STATES:
            return str(self.triage.state)
        return "recovered" if self.regression.recovered_at is not None else "open"


class Order(StrEnum):
    """Order of a list of regressions."""

    URGENCY = "urgency"
    CHANGE = "largest change"
    COMMIT = "newest commit"
    KERNEL = "kernel"


def in_order(triaged: Iterable[Triaged], order: Order) -> list[Triaged]:
    """Sort regressions; ties keep the order of urgency."""
    found = most_urgent_first(triaged)
    if order is Order.CHANGE:
        return sorted(found, key=_size, reverse=True)
    if order is Order.COMMIT:
        return sorted(found, key=lambda one: one.regression.commit, reverse=True)
    if order is Order.KERNEL:
        return sorted(found, key=lambda one: natural_order(one.regression.kernel))
    return found


def _size(one: Triaged) -> float:
    """Return the size of the worst change: symmetric for slower and faster, infinite for failures."""
    change = worst_change_point(one.regression).relative_change
    return math.inf if change is None or change <= -1 else abs(math.log1p(change))


def most_urgent_first(triaged: Iterable[Triaged]) -> list[Triaged]:
    """Sort by alert, then new ones, then newest commit."""
    newest_first = sorted(triaged, key=lambda one: one.regression.commit, reverse=True)
    return sorted(newest_first, key=lambda one: (not one.regression.is_alert, one.triage.state is not TriageState.NEW))
