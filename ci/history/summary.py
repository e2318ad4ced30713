"""How many of the judged regressions were false. Pure."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from roofwatch.model.history import RegressionState
from roofwatch.model.triage import TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

# 97.5 % quantile of the normal distribution
_Z_95 = 1.959964
_PRIOR_COUNT = 10
_PRIOR_SHARE = 0.5
"""Alerts that a project begins with, and their share of real ones: `bench/alert_rates.py`.
"""


def share_real(
    true_count: int,
    decided_count: int,
    *,
    prior: float = _PRIOR_SHARE,
) -> float:
    """Estimate the probability that the next alert of a project is real, from those decided so far.

    The mean of a beta distribution. Its prior counts as ten alerts, so it fades as decisions come.

    Args:
        true_count: Real ones.
        decided_count: All that a person or a measurement decided on.
        prior: Share of real ones before any decision.
    """
    return (_PRIOR_COUNT * prior + true_count) / (_PRIOR_COUNT + decided_count)


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
        if not self.decided_count:
            return None
        return self.false_count / self.decided_count

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate by Wilson (1927), which is valid for few decisions too."""
        rate = self.rate
        count = self.decided_count
        if rate is None:
            return None
        spread = _Z_95**2 / count
        centre = (rate + spread / 2) / (1 + spread)
        binomial = rate * (1 - rate) / count
        variance = binomial + spread / (4 * count)
        half = _Z_95 * math.sqrt(variance) / (1 + spread)
        low = max(centre - half, 0.0)
        high = min(centre + half, 1.0)
        return low, high


def count_false_alarms(
    regressions: Iterable[TriagedRegression],
    *,
    since: datetime | None = None,
) -> FalseAlarms:
    """Count the reported regressions by what became of them.

    Args:
        regressions: All that were judged; improvements are left out.
        since: Oldest commit time that counts; None for all.
    """
    counts: Counter[str] = Counter()
    for triaged in regressions:
        regression = triaged.regression
        state = triaged.triage.state
        is_recent = since is None or regression.commit.committed_at >= since
        # an improvement that is none alarms nobody
        if regression.verdict is not Verdict.REGRESSED or not is_recent:
            continue
        counts["reported"] += 1
        if regression.state is RegressionState.DISMISSED:
            counts["refuted"] += 1
        elif state is TriageState.INVALID:
            counts["invalid"] += 1
        elif regression.is_confirmed or state is not TriageState.NEW:
            # a person who triaged it took it for real
            counts["true"] += 1
    return FalseAlarms(
        reported_count=counts["reported"],
        refuted_count=counts["refuted"],
        invalid_count=counts["invalid"],
        true_count=counts["true"],
    )
