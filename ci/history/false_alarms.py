"""Which regressions may alert, at a controlled false discovery rate, and how many reported ones were false. Pure.

Thousands of series are judged every day. A step of a time has a p-value (`roofwatch.ci.changepoint.chance`), and a
regression has Simes's over its change points. Benjamini and Hochberg's procedure controls the regressions of a day.
Regressions are controlled, not change points: a cause that changes a hundred series counts once.

Sources: Simes 1986; Benjamini and Hochberg 1995; for clusters, Benjamini and Heller 2007. docs/explanation/verdicts.md
has the simulated rates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime

from roofwatch.ci.history.finding import TrendFinding
from roofwatch.db.values import Regression, RegressionState, Verdict

Key = tuple[str, str, str, str]
"""`Regression.key`."""
_Z_95 = 1.959964


def choose_alerts(
    regressions: Sequence[tuple[Regression, Sequence[TrendFinding]]],
    *,
    series_by_date: Mapping[date, int],
    rate: float,
) -> list[Regression]:
    """Set `is_alert` of the regressions that are sure enough.

    Confirmed ones always alert. Dismissed ones, unconfirmed failures and times that the clock explains never do.

    Args:
        regressions: Each with its findings.
        series_by_date: Number of judged series of times on each day, changed or not.
        rate: False discovery rate among a day's alerts.

    Returns:
        The regressions in the order given.
    """
    alerts = set()
    p_values: dict[int, float] = {}
    by_day: dict[date | None, list[int]] = defaultdict(list)
    for position, (regression, findings) in enumerate(regressions):
        if regression.state is not RegressionState.OPEN:
            continue
        if regression.is_confirmed:
            alerts.add(position)
        own = sorted(finding.p_value for finding in findings if finding.p_value is not None)
        if own and regression.verdict is not Verdict.INCONCLUSIVE:
            p_values[position] = min(1.0, *(p * len(own) / rank for rank, p in enumerate(own, start=1)))
            days = [finding.measured_on for finding in findings if finding.measured_on is not None]
            by_day[min(days, default=None)].append(position)
    for day, positions in by_day.items():
        # a series that did not change is a hypothesis too, with a p-value of 1
        changed = sum(one.p_value is not None for position in positions for one in regressions[position][1])
        judged = series_by_date.get(day, 0) if day is not None else 0
        count = len(positions) + max(judged - changed, 0)
        ordered = sorted(positions, key=lambda position: p_values[position])
        ranks = [rank for rank, one in enumerate(ordered, start=1) if p_values[one] <= rate * rank / count]
        alerts.update(ordered[: max(ranks, default=0)])
    return [replace(regression, is_alert=position in alerts) for position, (regression, _) in enumerate(regressions)]


# --- the observed rate


@dataclass(frozen=True)
class FalseAlarms:
    """How many of the reported regressions were false."""

    reported_count: int
    refuted_count: int
    """Measured again in pairs, and not there."""
    invalid_count: int
    """Marked as no regression by a person, and not refuted."""
    true_count: int
    """Confirmed by a measurement, or accepted by a person."""

    @property
    def false_count(self) -> int:
        return self.refuted_count + self.invalid_count

    @property
    def decided_count(self) -> int:
        return self.false_count + self.true_count

    @property
    def rate(self) -> float | None:
        """Share of false ones among those decided; None if none is."""
        return self.false_count / self.decided_count if self.decided_count else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate by Wilson (1927), which is valid for few decisions too."""
        rate, count = self.rate, self.decided_count
        if rate is None:
            return None
        spread = _Z_95**2 / count
        centre = (rate + spread / 2) / (1 + spread)
        half = _Z_95 * math.sqrt(rate * (1 - rate) / count + spread / (4 * count)) / (1 + spread)
        return max(centre - half, 0.0), min(centre + half, 1.0)


def count_false_alarms(
    regressions: Iterable[Regression],
    *,
    called_none: Set[Key],
    called_real: Set[Key],
    since: datetime | None,
) -> FalseAlarms:
    """Count the reported regressions by what became of them.

    Args:
        regressions: All that were judged; improvements are left out.
        called_none: Those that a person marked as no regression.
        called_real: Those that a person acknowledged, expected or fixed.
        since: Oldest commit time that counts; None for all.
    """
    reported = [
        one
        for one in regressions
        if one.verdict is Verdict.REGRESSED and (since is None or one.commit.committed_at >= since)
    ]
    standing = [one for one in reported if one.state is not RegressionState.DISMISSED]
    real = [one for one in standing if one.key not in called_none and (one.is_confirmed or one.key in called_real)]
    return FalseAlarms(
        reported_count=len(reported),
        refuted_count=len(reported) - len(standing),
        invalid_count=sum(one.key in called_none for one in standing),
        true_count=len(real),
    )
