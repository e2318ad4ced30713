"""A regression as a reader meets it: what was judged, with what people decided about it. Pure."""

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
        """It waits for somebody: it still stands, and nobody settled it."""
        return (
            self.regression.verdict is Verdict.REGRESSED
            and self.regression.state is RegressionState.OPEN
            and self.regression.recovered_at is None
            and self.triage.state in _OPEN_STATES
        )

    @property
    def is_settled(self) -> bool:
        """A regression that waits for nobody any more."""
        return self.regression.verdict is Verdict.REGRESSED and not self.is_open

    @property
    def is_called_none(self) -> bool:
        """By a person."""
        return self.triage.state is TriageState.INVALID

    @property
    def is_improvement(self) -> bool:
        return self.regression.verdict is Verdict.IMPROVED and self.regression.state is RegressionState.OPEN

    @property
    def is_inconclusive(self) -> bool:
        """Something moved, and no kernel is accused of it: the clock moved with it, for one."""
        return self.regression.verdict is Verdict.INCONCLUSIVE and self.regression.state is RegressionState.OPEN

    @property
    def settled_by(self) -> str:
        """Why it waits for nobody."""
        if self.regression.state is RegressionState.DISMISSED:
            return "measured again and not there"
        if self.triage.state not in _OPEN_STATES:
            return str(self.triage.state)
        return "recovered" if self.regression.recovered_at is not None else "open"


class Order(StrEnum):
    """In which regressions are listed."""

    URGENCY = "urgency"
    CHANGE = "largest change"
    COMMIT = "newest commit"
    KERNEL = "kernel"


def in_order(triaged: Iterable[Triaged], order: Order) -> list[Triaged]:
    """What the order leaves alike stays as `most_urgent_first` has it."""
    found = most_urgent_first(triaged)
    if order is Order.CHANGE:
        return sorted(found, key=_size, reverse=True)
    if order is Order.COMMIT:
        return sorted(found, key=lambda one: one.regression.commit, reverse=True)
    if order is Order.KERNEL:
        return sorted(found, key=lambda one: natural_order(one.regression.kernel))
    return found


def _size(one: Triaged) -> float:
    """Of its worst change, the same for n times slower and n times faster; what has no ratio, as it fails, is more."""
    change = worst_change_point(one.regression).relative_change
    return math.inf if change is None or change <= -1 else abs(math.log1p(change))


def most_urgent_first(triaged: Iterable[Triaged]) -> list[Triaged]:
    """Those that call somebody, then those that nobody has seen yet, then the newest commits."""
    newest_first = sorted(triaged, key=lambda one: one.regression.commit, reverse=True)
    return sorted(newest_first, key=lambda one: (not one.regression.is_alert, one.triage.state is not TriageState.NEW))
