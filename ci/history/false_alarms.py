"""Which regressions may call somebody: the false ones among a night's alerts, held at a rate. Pure.

A night judges thousands of series, and a detector that errs once in a thousand errs every night. So each step of a time
carries a p-value, valid wherever in its series it was found (`roofwatch.ci.changepoint.chance`); a regression's is
Simes's
over its change points; and among all that a night tells, Benjamini and Hochberg decide which survive. What is told is
controlled, not its change points: a cause that moves a hundred series counts once, or it would buy room for five false
ones beside it.

Sources: Simes 1986 (An improved Bonferroni procedure for multiple tests of significance); Benjamini and Hochberg 1995;
counting clusters instead of their members, Benjamini and Heller 2007 (False discovery rates for spatial signals).
docs/analysis.md has the simulated rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.db.values import Regression, RegressionState, Verdict

Told = tuple[Regression, Sequence[TrendFinding]]


def choose_alerts(regressions: Sequence[Told], *, series_by_date: Mapping[date, int], rate: float) -> list[Regression]:
    """Mark those that are sure enough to call somebody.

    Args:
        regressions: Each with its findings.
        series_by_date: How many series of times were judged in each night, moved or not.
        rate: Expected share of false ones among a night's alerts.

    Returns:
        The regressions in the order given. Confirmed ones are alerts whatever else the night tells; dismissed ones,
        unconfirmed failures and times that the clock moved are none.
    """
    p_values = [_p_of(findings) for _, findings in regressions]
    by_night: dict[date | None, list[int]] = defaultdict(list)
    for position, (regression, findings) in enumerate(regressions):
        if p_values[position] is not None and _may_call(regression):
            by_night[_night_of(findings)].append(position)
    alerts = {position for position, (regression, _) in enumerate(regressions) if _is_sure(regression)}
    for night, positions in by_night.items():
        # a series that tells nothing is a hypothesis too, whose p-value is 1
        moved = sum(one.p_value is not None for position in positions for one in regressions[position][1])
        judged = series_by_date.get(night, 0) if night is not None else 0
        count = len(positions) + max(judged - moved, 0)
        alerts |= _survivors({position: p_values[position] or 0.0 for position in positions}, count, rate)
    return [replace(regression, is_alert=position in alerts) for position, (regression, _) in enumerate(regressions)]


def _may_call(regression: Regression) -> bool:
    """A time that the clock moved calls nobody: of the kernel nothing is known to have changed."""
    return regression.state is RegressionState.OPEN and regression.verdict is not Verdict.INCONCLUSIVE


def _is_sure(regression: Regression) -> bool:
    return regression.is_confirmed and regression.state is RegressionState.OPEN


def _p_of(findings: Sequence[TrendFinding]) -> float | None:
    """Simes's p-value of all change points of times; None if there are none."""
    ordered = sorted(finding.p_value for finding in findings if finding.p_value is not None)
    if not ordered:
        return None
    return min(1.0, *(p * len(ordered) / rank for rank, p in enumerate(ordered, start=1)))


def _night_of(findings: Sequence[TrendFinding]) -> date | None:
    return min((finding.night for finding in findings if finding.night is not None), default=None)


def _survivors(p_values: Mapping[int, float], count: int, rate: float) -> set[int]:
    ordered = sorted(p_values, key=lambda position: p_values[position])
    last = max(
        (rank for rank, position in enumerate(ordered, start=1) if p_values[position] <= rate * rank / count), default=0
    )
    return set(ordered[:last])
